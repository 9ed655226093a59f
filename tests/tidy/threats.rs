//! Ids of threats that names of tests cite.

use std::collections::BTreeSet;
use std::fs;

use crate::{root, rust_files, sources};

/// Ids at the beginning of the name of a test, such as `a4` and `a5` of `a4_a5_what_it_shows`.
fn threat_ids(name: &str) -> Vec<String> {
    let id = |part: &&str| {
        let (letter, number) = part.split_at(part.len().min(1));
        let known = letter.chars().all(|letter| ('a'..='m').contains(&letter));
        known && !number.is_empty() && number.chars().all(|digit| digit.is_ascii_digit())
    };
    let ids = name.split('_').take_while(id);
    ids.map(str::to_uppercase).collect()
}

#[test]
fn threats_that_tests_cite_are_listed() {
    let page = fs::read_to_string(root().join("tests/THREATS.md")).expect("read the list");
    let mut files = sources();
    rust_files(&root().join("tests"), &mut files);
    files.retain(|path| !path.starts_with(root().join("kernels")));
    let mut cited = BTreeSet::new();
    for path in files {
        let text = fs::read_to_string(path).expect("read a source file");
        let after = |attribute: &str| {
            let tests = text.split(attribute).skip(1);
            let names = tests.filter_map(|test| test.split_once("fn ")?.1.split_once('('));
            names
                .flat_map(|(name, _)| threat_ids(name))
                .collect::<Vec<_>>()
        };
        cited.extend(after("#[test]"));
        cited.extend(after("#[tokio::test"));
    }
    let missing: Vec<_> = cited
        .iter()
        .filter(|id| !page.contains(&format!("| {id} |")))
        .collect();
    assert!(cited.len() > 40, "only {} ids were found", cited.len());
    assert!(
        missing.is_empty(),
        "tests/THREATS.md does not list {missing:?}"
    );
}
