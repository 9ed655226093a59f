use super::{Catalogue, CatalogueError, HasName, NameMatching};

#[derive(Debug)]
struct Entry {
    name: String,
    aliases: Vec<String>,
}

impl HasName for Entry {
    fn name(&self) -> &str {
        &self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }
}

fn entry(name: &str, aliases: &[&str]) -> Entry {
    Entry {
        name: name.to_owned(),
        aliases: aliases.iter().map(|&a| a.to_owned()).collect(),
    }
}

const ALL: NameMatching = NameMatching {
    case_insensitive: true,
    substring: true,
    sole_model: true,
};
const NONE: NameMatching = NameMatching {
    case_insensitive: false,
    substring: false,
    sole_model: false,
};

fn check(matching: NameMatching, models: &[(&str, &[&str])], asked: &str, expected: Option<&str>) {
    let entries = models.iter().map(|(n, a)| entry(n, a)).collect();
    let catalogue = Catalogue::new(entries, matching).expect("distinct names");
    let found = catalogue.resolve(asked).ok().map(|e| e.name.as_str());
    assert_eq!(found, expected, "{asked} with {matching:?}");
}

#[test]
fn each_rule_can_be_switched_off() {
    let models: &[(&str, &[&str])] = &[("Qwen3-8B", &["big"]), ("Llama-3.2-1B", &["small"])];
    check(NONE, models, "Qwen3-8B", Some("Qwen3-8B"));
    check(NONE, models, "small", Some("Llama-3.2-1B"));
    check(NONE, models, "qwen3-8b", None);
    check(ALL, models, "qwen3-8b", Some("Qwen3-8B"));
    check(ALL, models, "BIG", Some("Qwen3-8B"));
    check(ALL, models, "llama", Some("Llama-3.2-1B"));
    check(
        NameMatching {
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
    check(
        NameMatching::default(),
        &[("demo", &[])],
        "gpt-4o",
        Some("demo"),
    );
    check(NameMatching::default(), &[("demo", &[])], "", Some("demo"));
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
    let catalogue =
        Catalogue::new(vec![entry("a", &[]), entry("b", &["c"])], ALL).expect("distinct");
    let error = catalogue.resolve("zzz").expect_err("unknown");
    assert_eq!(error.available, ["a", "b"]);
}

#[test]
fn names_must_be_distinct_and_not_empty() {
    let error = Catalogue::new(vec![entry("a", &[]), entry("b", &["a"])], ALL).expect_err("twice");
    assert!(matches!(error, CatalogueError::Duplicate { name, .. } if name == "a"));
    let error = Catalogue::new(vec![entry("", &[])], ALL).expect_err("empty");
    assert_eq!(error, CatalogueError::EmptyName);
}
