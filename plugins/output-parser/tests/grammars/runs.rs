//! Runs of a model without any idea under the grammar of a format: what it writes must be calls, and valid ones.

use std::collections::BTreeMap;

use mortise_output_parser::open;
use mortise_output_parser::style::Style;
use mortise_plugin_sdk::formats::Writing;
use mortise_plugin_sdk::output_parser::{GrammarSource, Setup};
use serde_json::{Value, json};

use crate::answers::answer;
use crate::grammars::walk;

/// Runs for each format: `MORTISE_FORMAT_RUNS`.
pub(crate) fn count() -> u64 {
    let runs = std::env::var("MORTISE_FORMAT_RUNS").ok();
    runs.map_or(4, |runs| runs.parse().expect("MORTISE_FORMAT_RUNS"))
}

/// Outcome of the runs of a format.
pub(crate) struct Runs {
    /// Number of runs that came to an end.
    pub(crate) read: u64,
    /// Texts of which something else came than valid calls.
    pub(crate) failed: Vec<String>,
}

pub(crate) fn run(style: &Style, setup: &Setup, source: &GrammarSource) -> Runs {
    let hint = match &style.format.spec().writing {
        Writing::Tags(tags) => tags.value.1.trim_start_matches('\n'),
        Writing::Literals(literals) => literals.quote,
        Writing::Nested(nested) => nested.tag,
        _ => "\"",
    };
    let validators = validators(setup);
    let (mut read, mut failed) = (0, Vec::new());
    for text in (0..count()).filter_map(|seed| walk(source, hint, seed)) {
        read += 1;
        failed.extend(wrong(&text, style, setup, &validators));
    }
    Runs { read, failed }
}

/// Schemas by which the arguments of each tool are checked, by another's validator.
fn validators(setup: &Setup) -> BTreeMap<String, jsonschema::Validator> {
    let tools: Vec<Value> = serde_json::from_str(&setup.tools).unwrap();
    let each = tools.iter().map(|tool| {
        let function = &tool["function"];
        let nothing = json!({"type": "object", "maxProperties": 0});
        let mut schema = function.get("parameters").cloned().unwrap_or(nothing);
        schema["additionalProperties"] = json!(false);
        let name = function["name"].as_str().unwrap().to_owned();
        (name, jsonschema::validator_for(&schema).unwrap())
    });
    each.collect()
}

/// Defect of an answer of which nothing but valid calls should come.
fn wrong(
    text: &str,
    style: &Style,
    setup: &Setup,
    validators: &BTreeMap<String, jsonschema::Validator>,
) -> Option<String> {
    let parsing = open(style, setup).unwrap().unwrap();
    let found = answer(parsing, std::iter::once(text));
    if !found.content.is_empty() || found.calls.is_empty() {
        return Some(format!("{text:?}\n{found:?}"));
    }
    found.calls.iter().find_map(|call| {
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
        let problem = match validators[&call.name].validate(&arguments) {
            Ok(()) if call.ended => return None,
            Ok(()) => "has no end".to_owned(),
            Err(error) => error.to_string(),
        };
        Some(format!("{text:?}\n{call:?}: {problem}"))
    })
}
