//! Ids of threats and features that names of tests cite.

use std::collections::BTreeSet;
use std::fs;
use std::ops::RangeInclusive;

use crate::{root, rust_files, sources};

/// Ids at the beginning of the name of a test, such as `a4` and `a5` of `a4_a5_what_it_shows`.
fn threat_ids(name: &str) -> Vec<String> {
    ids(name, 'a'..='m')
}

/// Ids of features, such as `l6` of `feature_l6_what_it_shows`.
fn feature_ids(name: &str) -> Vec<String> {
    let rest = name.strip_prefix("feature_");
    rest.map_or(Vec::new(), |rest| ids(rest, 'a'..='z'))
}

fn ids(name: &str, letters: RangeInclusive<char>) -> Vec<String> {
    let id = |part: &&str| {
        let (letter, number) = part.split_at(part.len().min(1));
        let known = letter.chars().all(|letter| letters.contains(&letter));
        known && !number.is_empty() && number.chars().all(|digit| digit.is_ascii_digit())
    };
    let ids = name.split('_').take_while(id);
    ids.map(str::to_uppercase).collect()
}

#[test]
fn threats_that_tests_cite_are_listed() {
    let cited = missing("tests/THREATS.md", threat_ids);
    assert!(cited > 40, "only {cited} ids were found");
}

#[test]
fn features_that_tests_cite_are_listed() {
    let cited = missing("tests/FEATURES.md", feature_ids);
    assert!(cited >= 10, "only {cited} ids were found");
}

/// Check that a page lists the ids that names of tests cite. Returns how many do.
fn missing(page: &str, ids_of: fn(&str) -> Vec<String>) -> usize {
    let list = fs::read_to_string(root().join(page)).expect("read the list");
    let mut files = sources();
    rust_files(&root().join("tests"), &mut files);
    files.retain(|path| !path.starts_with(root().join("kernels")));
    let mut cited = BTreeSet::new();
    for path in files {
        let text = fs::read_to_string(path).expect("read a source file");
        let after = |attribute: &str| {
            let tests = text.split(attribute).skip(1);
            let names = tests.filter_map(|test| test.split_once("fn ")?.1.split_once('('));
            names.flat_map(|(name, _)| ids_of(name)).collect::<Vec<_>>()
        };
        cited.extend(after("#[test]"));
        cited.extend(after("#[tokio::test"));
    }
    let missing: Vec<_> = cited
        .iter()
        .filter(|id| !list.contains(&format!("| {id} |")))
        .collect();
    assert!(missing.is_empty(), "{page} does not list {missing:?}");
    cited.len()
}
