//! Counts of what grammars take, by category, and the page that shows them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::grammars::{Native, Takes};
use crate::sources::Group;

/// Comments between which the page has the table.
const BEGIN: &str = "<!-- counts: written by the tests -->\n";
const END: &str = "<!-- end of counts -->";

/// Counts of the schemas of a category and of their instances, by outcome.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    schemas: usize,
    ours: Side,
    native: Side,
    generated: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Side {
    compiled: usize,
    /// Instances that fit, of schemas that compile, and those of them that are taken.
    fitting: usize,
    fitting_taken: usize,
    other: usize,
    other_taken: usize,
}

impl Side {
    fn add(&mut self, side: Self) {
        self.compiled += side.compiled;
        self.fitting += side.fitting;
        self.fitting_taken += side.fitting_taken;
        self.other += side.other;
        self.other_taken += side.other_taken;
    }

    fn cells(&self) -> String {
        let Self {
            compiled,
            fitting,
            fitting_taken,
            other,
            other_taken,
        } = self;
        format!(
            "{compiled} | {fitting_taken} of {fitting} | {} of {other}",
            other - other_taken
        )
    }
}

fn side(group: &Group, grammar: Option<&mut dyn Takes>, mut wrong: impl FnMut(String)) -> Side {
    let mut side = Side::default();
    let Some(grammar) = grammar else {
        return side;
    };
    side.compiled = 1;
    for (instance, fits) in &group.instances {
        let text = instance.to_string();
        let taken = usize::from(grammar.takes(&text));
        if *fits {
            side.fitting += 1;
            side.fitting_taken += taken;
            if taken == 0 && std::env::var_os("MORTISE_SCHEMAS_REFUSED").is_some() {
                println!("refused: {}: {text}", group.name);
            }
        } else {
            side.other += 1;
            side.other_taken += taken;
            if taken == 1 {
                wrong(format!("{}: {text}", group.name));
            }
        }
    }
    side
}

impl Counts {
    /// Count a schema. What is taken and does not fit is added to `wrong`.
    pub(crate) fn count(
        &mut self,
        group: &Group,
        grammar: Result<impl Takes, String>,
        native: &Native,
        wrong: &mut Vec<String>,
    ) {
        self.schemas = 1;
        let mut grammar = grammar.ok();
        self.ours = side(
            group,
            grammar.as_mut().map(|grammar| grammar as &mut dyn Takes),
            |text| wrong.push(text),
        );
        let mut native = native.compile(&group.schema).ok();
        self.native = side(
            group,
            native.as_mut().map(|grammar| grammar as &mut dyn Takes),
            drop,
        );
    }

    /// Count documents that the grammar wrote.
    pub(crate) fn count_generated(
        &mut self,
        group: &Group,
        documents: &[serde_json::Value],
        wrong: &mut Vec<String>,
    ) {
        // Formats may be checked or not: of options that are nothing but formats, one fits, or all do.
        let validator = |formats: bool| {
            let options = jsonschema::options().with_draft(group.draft);
            options
                .should_validate_formats(formats)
                .build(&group.schema)
        };
        // Some refer to documents of the suite's own server, or to metaschemas of theirs.
        let (Ok(with), Ok(without)) = (validator(true), validator(false)) else {
            return;
        };
        for document in documents.iter().filter(|document| is_exact(document)) {
            self.generated += 1;
            if !with.is_valid(document) && !without.is_valid(document) {
                wrong.push(format!("{} (generated): {document}", group.name));
            }
        }
    }
}

/// Whether the numbers of a document are those that were written: larger ones lose digits when they are read, and -0 is no
/// integer then.
fn is_exact(document: &serde_json::Value) -> bool {
    match document {
        serde_json::Value::Number(number) => number.as_f64().is_some_and(|number| {
            number.abs() < 2f64.powi(53) && !(number == 0.0 && number.is_sign_negative())
        }),
        serde_json::Value::Array(items) => items.iter().all(is_exact),
        serde_json::Value::Object(members) => members.values().all(is_exact),
        _ => true,
    }
}

/// Counts by category.
#[derive(Debug, Default)]
pub(crate) struct Table(BTreeMap<String, Counts>);

impl Table {
    pub(crate) fn add(&mut self, category: &str, counts: Counts) {
        for category in [category, "\u{10ffff}"] {
            let sum = self.0.entry(category.to_owned()).or_default();
            sum.schemas += counts.schemas;
            sum.generated += counts.generated;
            sum.ours.add(counts.ours);
            sum.native.add(counts.native);
        }
    }

    /// The counts as a table of Markdown.
    pub(crate) fn written(&self) -> String {
        let mut text = "| category | schemas | compile | valid taken | invalid blocked | compile in llguidance | valid taken | invalid blocked | generated, all valid |\n".to_owned();
        text.push_str("|---|---|---|---|---|---|---|---|---|\n");
        for (category, counts) in &self.0 {
            let category = category.replace('\u{10ffff}', "all");
            let Counts {
                schemas,
                ours,
                native,
                generated,
            } = counts;
            let _ = writeln!(
                text,
                "| {category} | {schemas} | {} | {} | {generated} |",
                ours.cells(),
                native.cells()
            );
        }
        text
    }

    /// Compare with the page, or write it anew where `MORTISE_UPDATE` is set.
    pub(crate) fn check(&self, page: &Path) {
        let text = std::fs::read_to_string(page).expect("the page");
        let begin = text.find(BEGIN).expect("the begin of the counts") + BEGIN.len();
        let end = text.find(END).expect("the end of the counts");
        let table = self.written();
        if std::env::var_os("MORTISE_UPDATE").is_some() {
            let page_text = format!("{}{table}{}", &text[..begin], &text[end..]);
            std::fs::write(page, page_text).expect("the page is written");
        } else {
            assert_eq!(
                &text[begin..end],
                table,
                "MORTISE_UPDATE=1 rewrites docs/schemas.md"
            );
        }
    }
}
