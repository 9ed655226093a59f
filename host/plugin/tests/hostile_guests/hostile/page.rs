//! The catalogue as `docs/plugins/abuse.md` shows it.

use std::fmt::Write as _;

use super::{Case, answers, bounds, files, lies};

/// The parts of the catalogue, with the heading of each.
fn catalogue() -> Vec<(&'static str, Vec<Case>)> {
    vec![
        ("Time (J1)", bounds::time()),
        ("Memory (J2)", bounds::memory()),
        ("Stack (J3)", bounds::stack()),
        ("Values that are none (J4)", lies::values()),
        ("Lies at the border (J4)", lies::borders()),
        ("Handles (J4)", lies::handles()),
        ("Answers that make no sense (J4)", answers::answers()),
        ("Files (J7)", files::files()),
    ]
}

#[test]
fn the_page_tells_what_was_observed() {
    let mut tables = String::new();
    let mut number = 0;
    for (heading, cases) in catalogue() {
        let _ = write!(
            tables,
            "### {heading}\n\n| # | kind | the guest | what comes of it |\n|---|---|---|---|\n"
        );
        for case in cases {
            number += 1;
            let (kind, does, outcome) = (case.kind, case.does, case.outcome);
            let _ = writeln!(tables, "| {number} | {kind} | {does} | {outcome} |");
        }
        tables.push('\n');
    }
    assert!(number >= 40, "{number}");
    crate::guests::hold_page("abuse.md", "catalogue", &tables);
}
