//! The plugin against what `transformers` rendered; see `tests/templates/make_reference.py` and `published.py`.

#[path = "../../../tests/templates/published.rs"]
mod published;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;

use mortise_chat_template::render::{ControlToken, Input, Model, Renderer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// One rendering to compare.
struct Case {
    label: String,
    expected: Result<String, String>,
    found: Result<String, String>,
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field]
        .as_str()
        .unwrap_or_else(|| panic!("`{field}` must be text"))
}

fn model(folder: &Path, name: &str, facts: &Value) -> Model {
    let tokens = facts["control_tokens"].as_array().unwrap();
    Model {
        chat_template: Some(std::fs::read_to_string(folder.join(name)).unwrap()),
        bos_token: text(facts, "bos_token").to_owned(),
        eos_token: text(facts, "eos_token").to_owned(),
        control_tokens: tokens
            .iter()
            .map(|token| ControlToken {
                text: text(token, "text").to_owned(),
                special: token["special"].as_bool().unwrap(),
            })
            .collect(),
    }
}

fn input(conversation: &Value, today: &str) -> Input {
    let json = |field: &str| conversation.get(field).map(Value::to_string);
    let flag = |field: &str, default| conversation[field].as_bool().unwrap_or(default);
    Input {
        messages: conversation["messages"].to_string(),
        tools: json("tools"),
        arguments: json("arguments"),
        add_generation_prompt: flag("add_generation_prompt", true),
        continue_final_message: flag("continue_final_message", false),
        today: today.to_owned(),
    }
}

fn run(reference: &Path) -> Vec<Case> {
    let folder = reference.parent().unwrap();
    let document: Value =
        serde_json::from_str(&std::fs::read_to_string(reference).unwrap()).unwrap();
    let mut cases = Vec::new();
    for (name, facts) in document["templates"].as_object().unwrap() {
        let renderer = Renderer::new("{}", model(folder, name, facts));
        for (conversation, outcome) in document["expected"][name].as_object().unwrap() {
            let found = match &renderer {
                Err(error) => Err(error.to_string()),
                Ok(renderer) => renderer
                    .render(&input(
                        &document["conversations"][conversation],
                        text(&document, "today"),
                    ))
                    .map(|output| output.segments.iter().map(|s| s.text()).collect())
                    .map_err(|error| error.to_string()),
            };
            cases.push(Case {
                label: format!("{name} / {conversation}"),
                expected: match outcome.get("text") {
                    Some(text) => Ok(text.as_str().unwrap().to_owned()),
                    None => Err(text(outcome, "error").to_owned()),
                },
                found,
            });
        }
    }
    cases
}

fn same(case: &Case) -> bool {
    match (&case.expected, &case.found) {
        (Ok(expected), Ok(found)) => expected == found,
        (Err(_), Err(_)) => true,
        _ => false,
    }
}

/// The two texts from shortly before they part.
fn difference(case: &Case) -> String {
    let (expected, found) = match (&case.expected, &case.found) {
        (Ok(expected), Ok(found)) => (expected, found),
        (expected, found) => return format!("{}\n  {expected:?}\n  {found:?}", case.label),
    };
    let common = expected
        .chars()
        .zip(found.chars())
        .take_while(|(left, right)| left == right)
        .count();
    let from = |text: &str| -> String {
        text.chars()
            .skip(common.saturating_sub(20))
            .take(80)
            .collect()
    };
    format!(
        "{}\n  {:?}\n  {:?}",
        case.label,
        from(expected),
        from(found)
    )
}

#[test]
fn our_templates_render_as_in_transformers() {
    let reference =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/templates/reference.json");
    let cases = run(&reference);
    assert!(cases.len() > 100, "{} cases", cases.len());
    let wrong: Vec<String> = cases
        .iter()
        .filter(|case| !same(case))
        .map(difference)
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Templates whose renderings differ from those of transformers on purpose, with the number of conversations. The
/// reasons are in `docs/plugins/chat-template.md`.
const DIFFERENT: &[(&str, usize)] =
    &[("llama_cpp_python__meetkai-functionary-medium-v3.1.jinja", 6)];

#[test]
fn feature_p1_templates_of_published_models_render_as_in_transformers() {
    let test = "feature_p1_templates_of_published_models_render_as_in_transformers";
    let Some((folder, document)) = published::published(env!("CARGO_TARGET_TMPDIR"), test) else {
        return;
    };
    let mut different: BTreeMap<&str, usize> = BTreeMap::new();
    let mut equal = 0;
    for (name, facts) in document["templates"].as_object().unwrap() {
        let renderer = Renderer::new("{}", model(&folder, name, facts)).unwrap();
        for (conversation, hash) in facts["renderings"].as_object().unwrap() {
            // Of what transformers cannot render there is nothing to compare.
            let Some(expected) = hash.as_str() else {
                continue;
            };
            let conversation = &document["conversations"][conversation];
            let found = renderer.render(&input(conversation, text(&document, "today")));
            let found = found.map(|output| {
                let text: String = output.segments.iter().map(|s| s.text()).collect();
                hex(&Sha256::digest(text))
            });
            match found {
                Ok(found) if found == expected => equal += 1,
                _ => *different.entry(name).or_default() += 1,
            }
        }
    }
    let expected: BTreeMap<&str, usize> = DIFFERENT.iter().copied().collect();
    assert_eq!(different, expected);
    let templates: BTreeSet<&String> = document["templates"].as_object().unwrap().keys().collect();
    assert!(templates.len() >= 110 && equal >= 2042, "{equal}");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Templates of published models may not be kept here. Whoever has a folder of them makes a
/// reference with `make_reference.py --templates DIR --out DIR/reference.json` and names it in
/// `MORTISE_TEMPLATE_REFERENCE`.
#[test]
fn templates_from_elsewhere_render_as_in_transformers() {
    let Some(reference) = std::env::var_os("MORTISE_TEMPLATE_REFERENCE") else {
        // Past the capture of the test runner, which shows nothing of tests that pass.
        let line = "skipped: templates_from_elsewhere: MORTISE_TEMPLATE_REFERENCE names no file\n";
        std::io::stderr().write_all(line.as_bytes()).unwrap();
        return;
    };
    let cases = run(Path::new(&reference));
    let rendered: Vec<&Case> = cases.iter().filter(|case| case.expected.is_ok()).collect();
    let right = rendered.iter().filter(|case| same(case)).count();
    let mut wrong: BTreeMap<&str, usize> = BTreeMap::new();
    for case in cases.iter().filter(|case| !same(case)) {
        println!("{}", difference(case));
        *wrong
            .entry(case.label.split(" / ").next().unwrap())
            .or_default() += 1;
    }
    println!(
        "{wrong:#?}\n{right} of {} renderings are equal",
        rendered.len()
    );
    assert!(
        right * 100 >= rendered.len() * 95,
        "{right} of {}",
        rendered.len()
    );
}
