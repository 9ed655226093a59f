//! Groups: processes that may run together, and those that exclude each other.

use std::sync::Arc;

use super::{Parent, Script, code, lives, said};

#[test]
fn feature_b4_a_group_runs_together_and_excludes_all_others() {
    let pid = |file: &'static str| ["--pid", file];
    let (one, two) = (pid("FOLDER/one"), pid("FOLDER/two"));
    let (alone, last) = (pid("FOLDER/alone"), pid("FOLDER/last"));
    let with_group = |name, arguments, group| Script {
        child: group,
        ..Script::new(name, arguments)
    };
    let models = [
        with_group("one", &one, "group = \"a\""),
        with_group("two", &two, "group = \"a\""),
        with_group("alone", &alone, ""),
        Script {
            model: "pinned = true",
            ..with_group("last", &last, "group = \"b\"")
        },
    ];
    let Some(parent) = Parent::start(&models, "") else {
        return;
    };
    assert_eq!(said(&parent.chat("one", "Hi")), "child");
    assert_eq!(said(&parent.chat("two", "Hi")), "child");
    let first = [parent.number("one"), parent.number("two")];
    assert!(first.iter().all(|pid| lives(*pid)));
    assert_eq!(said(&parent.chat("alone", "Hi")), "child");
    assert!(!first.iter().any(|pid| lives(*pid)), "stopped before it");
    assert_eq!(parent.state("one"), "unloaded");
    assert_eq!(said(&parent.chat("last", "Hi")), "child");
    assert!(!lives(parent.number("alone")));
    // A pinned one gives way to nobody.
    let response = parent.chat("one", "Hi");
    assert_eq!(code(&response), (409, "model_excluded".to_owned()));
    let response = parent.act("one", "load");
    assert_eq!(code(&response), (409, "model_excluded".to_owned()));
    assert!(lives(parent.number("last")));
}

#[test]
fn feature_b4_b5_a_storm_over_models_that_exclude_each_other_is_answered() {
    let names = ["one", "two", "three"];
    let arguments = names.map(|name| ["--say", name]);
    let models: Vec<Script<'_>> = names
        .iter()
        .zip(&arguments)
        .map(|(name, arguments)| Script::new(name, arguments))
        .collect();
    let Some(parent) = Parent::start(&models, "") else {
        return;
    };
    let parent = Arc::new(parent);
    let asking = (0..9).map(|number| {
        let (parent, name) = (Arc::clone(&parent), names[number % 3]);
        std::thread::spawn(move || assert_eq!(said(&parent.chat(name, "Hi")), name))
    });
    for asked in asking.collect::<Vec<_>>() {
        asked.join().expect("an answer");
    }
    let states = names.map(|name| parent.state(name));
    let loaded = states.iter().filter(|state| *state == "loaded");
    assert_eq!(loaded.count(), 1, "{states:?}");
}
