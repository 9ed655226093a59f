//! Answers as the crates `tool-parser` and `reasoning-parser` read them, beside what they mean: `tests/parsers/others` asked
//! those crates, and `disagreements.json` says of each difference why it stays.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Case {
    name: String,
    #[serde(default)]
    content: String,
    #[serde(default)]
    reasoning: String,
    /// Name and arguments first.
    #[serde(default)]
    calls: Vec<Vec<Option<String>>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Theirs {
    Read {
        content: String,
        reasoning: String,
        calls: Vec<(String, Value)>,
    },
    Failed {
        #[serde(rename = "error")]
        _error: String,
    },
}

#[derive(Deserialize)]
struct Disagreements {
    /// Kinds of differences, and why they stay.
    reasons: BTreeMap<String, String>,
    /// Reason of each case.
    cases: BTreeMap<String, String>,
}

fn same(case: &Case, theirs: &Theirs) -> bool {
    let Theirs::Read {
        content,
        reasoning,
        calls,
    } = theirs
    else {
        return false;
    };
    let meant = case.calls.iter().map(|call| {
        let text = |at: usize| call.get(at).cloned().flatten().unwrap_or_default();
        let arguments = serde_json::from_str::<Value>(&text(1)).unwrap_or_default();
        (text(0), arguments)
    });
    // Blanks at the ends are a matter of taste.
    case.content.trim() == content.trim()
        && case.reasoning.trim() == reasoning.trim()
        && meant.collect::<Vec<_>>() == *calls
}

#[test]
fn feature_s14_differences_to_other_parsers_are_decided() {
    let cases: Vec<Case> =
        serde_json::from_str(include_str!("../../../tests/parsers/written.json")).unwrap();
    let theirs: BTreeMap<String, Theirs> =
        serde_json::from_str(include_str!("../../../tests/parsers/others.json")).unwrap();
    let decided: Disagreements =
        serde_json::from_str(include_str!("../../../tests/parsers/disagreements.json")).unwrap();
    let mut differ = BTreeSet::new();
    let mut compared = 0;
    for case in &cases {
        if let Some(theirs) = theirs.get(&case.name) {
            compared += 1;
            if !same(case, theirs) {
                differ.insert(case.name.as_str());
            }
        }
    }
    assert!(compared > 200, "{compared} cases");
    let listed: BTreeSet<&str> = decided.cases.keys().map(String::as_str).collect();
    assert_eq!(differ, listed);
    let used: BTreeSet<&String> = decided.cases.values().collect();
    assert_eq!(used, decided.reasons.keys().collect());
    println!("{compared} cases, {} differ", differ.len());
}
