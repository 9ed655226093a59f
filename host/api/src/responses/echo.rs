//! Parts of a request that its response repeats.

use serde_json::{Map, Value};

/// Fields that the response repeats as they were given.
const REPEATED: [&str; 12] = [
    "instructions",
    "max_tool_calls",
    "metadata",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "store",
    "tool_choice",
    "truncation",
    "user",
];

/// Values of these fields.
pub(super) fn repeated(object: &Map<String, Value>) -> Map<String, Value> {
    let given = |name: &str| Some((name.to_owned(), object.get(name)?.clone()));
    REPEATED.into_iter().filter_map(given).collect()
}

/// A tool with all fields that its type has.
pub(super) fn echoed_tool(mut tool: Value) -> Value {
    if tool["type"] == "function"
        && let Value::Object(tool) = &mut tool
    {
        for field in ["description", "parameters", "strict"] {
            tool.entry(field).or_insert(Value::Null);
        }
    }
    tool
}
