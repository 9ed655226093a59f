//! The book, made by mdBook.

use std::process::Command;

use crate::support::{example, have};
use crate::{environment, run};

#[test]
fn feature_z14_the_book_builds_without_a_warning() {
    if !have(&["python3"]) {
        return;
    }
    let venv = environment("sdk-mdbook", "mdbook/requirements.txt");
    let docs = example::root().join("docs");
    let out = tempfile::tempdir().expect("make a folder");
    let report = run(Command::new(venv.join("bin/mdbook"))
        .env("MDBOOK_LOG", "warn")
        .arg("build")
        .arg(&docs)
        .arg("--dest-dir")
        .arg(out.path()));
    // At this level nothing but warnings is told.
    assert!(report.trim().is_empty(), "{report}");
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).expect("the contents");
    let links = summary.split("](").skip(1);
    let pages = links.filter_map(|rest| rest.split(')').next()?.strip_suffix(".md"));
    let mut made = 0;
    for page in pages {
        let file = match page.rsplit_once('/') {
            Some((folder, "README")) => format!("{folder}/index.html"),
            _ => format!("{page}.html"),
        };
        assert!(out.path().join(&file).is_file(), "{file}");
        made += 1;
    }
    assert!(made > 30, "{made} pages");
}
