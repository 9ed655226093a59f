//! Texts of which there are always more.

use serde_json::{Map, Value};

/// Keyword of a rewritten schema: the items differ, and are texts.
pub(crate) const DISTINCT: &str = "x-mortise-distinct";
/// Keyword of a rewritten schema: each name of a member stands once.
pub(crate) const NAMES: &str = "x-mortise-names";
/// Keywords that may stand beside `type` where a text is free.
const SILENT: [&str; 11] = [
    "type",
    "minLength",
    "title",
    "description",
    "examples",
    "default",
    "$comment",
    "$id",
    "readOnly",
    "writeOnly",
    "deprecated",
];
/// Least greatest length: of shorter texts there may not be enough.
const LEAST_LENGTH: u64 = 4;
/// Texts of a list.
const MAX_LISTED: usize = 1_000;

/// Number of texts that a schema lists, if it lists nothing else and each once.
pub(crate) fn listed(fields: &Map<String, Value>) -> Option<usize> {
    let values = fields.get("enum")?.as_array()?;
    let text = |key: &str, value: &Value| match key {
        "enum" => true,
        "type" => value == "string",
        key => SILENT.contains(&key) && key != "minLength",
    };
    let texts: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
    let apart = texts
        .iter()
        .enumerate()
        .all(|(at, text)| !texts[..at].contains(text));
    let only = texts.len() == values.len() && fields.iter().all(|(key, value)| text(key, value));
    (only && apart && texts.len() <= MAX_LISTED).then_some(texts.len())
}

/// Whether the texts that a schema takes never run out: nothing is said of them but how long they are.
pub(crate) fn are_free(fields: &Map<String, Value>) -> bool {
    let text = fields.get("type") == Some(&Value::from("string"));
    let short = |key: &str, value: &Value| {
        key == "maxLength" && value.as_u64().is_some_and(|most| most >= LEAST_LENGTH)
    };
    text && fields
        .iter()
        .all(|(key, value)| SILENT.contains(&key.as_str()) || short(key, value))
}
