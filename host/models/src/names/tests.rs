use super::{Entry, Ladder, Registry, RegistryError};

fn entry(name: &str, aliases: &[&str]) -> Entry<()> {
    Entry {
        name: name.to_owned(),
        aliases: aliases.iter().map(|&a| a.to_owned()).collect(),
        created: 0,
        owned_by: "mortise".to_owned(),
        value: (),
    }
}

const ALL: Ladder = Ladder {
    case_insensitive: true,
    substring: true,
    sole_model: true,
};
const NONE: Ladder = Ladder {
    case_insensitive: false,
    substring: false,
    sole_model: false,
};

fn check(ladder: Ladder, models: &[(&str, &[&str])], asked: &str, expected: Option<&str>) {
    let entries = models.iter().map(|(n, a)| entry(n, a)).collect();
    let registry = Registry::new(entries, ladder).expect("distinct names");
    let found = registry.resolve(asked).ok().map(|e| e.name.as_str());
    assert_eq!(found, expected, "{asked} with {ladder:?}");
}

#[test]
fn each_step_of_the_ladder_can_be_switched() {
    let models: &[(&str, &[&str])] = &[("Qwen3-8B", &["big"]), ("Llama-3.2-1B", &["small"])];
    check(NONE, models, "Qwen3-8B", Some("Qwen3-8B"));
    check(NONE, models, "small", Some("Llama-3.2-1B"));
    check(NONE, models, "qwen3-8b", None);
    check(ALL, models, "qwen3-8b", Some("Qwen3-8B"));
    check(ALL, models, "BIG", Some("Qwen3-8B"));
    check(ALL, models, "llama", Some("Llama-3.2-1B"));
    check(
        Ladder {
            substring: false,
            ..ALL
        },
        models,
        "llama",
        None,
    );
    check(ALL, models, "b", None);
    check(ALL, models, "", None);
    check(ALL, models, "gpt-4o", None);
}

#[test]
fn a_sole_model_answers_to_any_name() {
    check(Ladder::default(), &[("demo", &[])], "gpt-4o", Some("demo"));
    check(Ladder::default(), &[("demo", &[])], "", Some("demo"));
    check(NONE, &[("demo", &[])], "gpt-4o", None);
}

#[test]
fn an_exact_name_wins_over_a_name_in_other_case() {
    let models: &[(&str, &[&str])] = &[("A", &[]), ("a", &[])];
    check(ALL, models, "a", Some("a"));
    check(ALL, models, "A", Some("A"));
}

#[test]
fn unknown_models_are_answered_with_the_known_ones() {
    let registry = Registry::new(vec![entry("a", &[]), entry("b", &["c"])], ALL).expect("distinct");
    let error = registry.resolve("zzz").expect_err("unknown");
    assert_eq!(error.available, ["a", "b"]);
}

#[test]
fn names_must_be_distinct_and_not_empty() {
    let error = Registry::new(vec![entry("a", &[]), entry("b", &["a"])], ALL).expect_err("twice");
    assert!(matches!(error, RegistryError::Duplicate { name, .. } if name == "a"));
    let error = Registry::new(vec![entry("", &[])], ALL).expect_err("empty");
    assert_eq!(error, RegistryError::EmptyName);
}
