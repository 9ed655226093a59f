//! Probe of a template: what it expects of messages, found by rendering a few once, when it is compiled.

use minijinja::Environment;
use serde_json::{Value, json};

use crate::conversation::Needs;
use crate::template::{Arguments, render_raw};

/// A word that no template contains.
const NEEDLE: &str = "needle7f3a";

/// Try `source`, which `environment` holds compiled.
pub(crate) fn probe(environment: &Environment<'_>, source: &str, arguments: &Arguments) -> Needs {
    let attempt = |messages: Value| render_raw(environment, arguments, &messages).ok();
    let says = |content: Value| {
        let messages = json!([{"role": "user", "content": content}]);
        // A list that is printed as it stands shows the names of its fields.
        attempt(messages).is_some_and(|text| {
            text.contains(NEEDLE) && !text.contains("'text'") && !text.contains("\"text\"")
        })
    };
    let text_content = says(json!(NEEDLE));
    let part_content = says(json!([{"type": "text", "text": NEEDLE}]));
    let calls = |arguments: Value| {
        let content = if text_content || !part_content {
            json!("")
        } else {
            json!([{"type": "text", "text": ""}])
        };
        let call = json!({
            "id": "call00001",
            "type": "function",
            "function": {"name": "f", "arguments": arguments},
        });
        attempt(json!([
            {"role": "user", "content": "u"},
            {"role": "assistant", "content": content, "tool_calls": [call]},
        ]))
    };
    let with_object = calls(json!({NEEDLE: "v"}));
    let object_arguments = with_object
        .is_some_and(|text| text.contains(NEEDLE) && !text.contains(&format!("'{NEEDLE}'")));
    let text_arguments = !object_arguments
        && calls(json!(format!("{{\"{NEEDLE}\": \"v\"}}")))
            .is_some_and(|text| text.contains(NEEDLE));
    Needs {
        text_content: text_content || !part_content,
        part_content,
        null_content: compares_content_with_none(source),
        object_arguments: !text_arguments,
        developer_role: source.contains("developer"),
    }
}

fn compares_content_with_none(source: &str) -> bool {
    source.match_indices("content").any(|(at, word)| {
        let after = source[at + word.len()..].trim_start_matches(['\'', '"', ']', ')', ' ']);
        [
            "is none",
            "is not none",
            "is None",
            "is not None",
            "== none",
            "!= none",
            "== None",
        ]
        .iter()
        .any(|test| after.starts_with(test))
    })
}
