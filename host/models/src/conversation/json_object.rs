//! JSON objects of bounded depth, for what a request carries as free JSON.

use serde_json::{Map, Value};

use crate::limits::MAX_JSON_DEPTH;

/// The JSON is nested more than [`MAX_JSON_DEPTH`] deep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the JSON is nested more than {MAX_JSON_DEPTH} deep")]
pub struct TooDeep;

/// A JSON object that is nested at most [`MAX_JSON_DEPTH`] deep.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JsonObject(Map<String, Value>);

impl JsonObject {
    /// An object of bounded depth.
    ///
    /// # Errors
    /// When it is nested too deeply.
    pub fn new(members: Map<String, Value>) -> Result<Self, TooDeep> {
        match members.values().any(|value| is_too_deep(value, 2)) {
            true => Err(TooDeep),
            false => Ok(Self(members)),
        }
    }

    /// The members in their order.
    pub fn members(&self) -> &Map<String, Value> {
        &self.0
    }
}

/// Whether arrays and objects in `value`, which itself stands at `depth`, are nested too deeply. The
/// walk keeps its own stack, so that depth cannot exhaust the thread's stack.
pub fn is_too_deep(value: &Value, depth: usize) -> bool {
    let mut work = vec![(value, depth)];
    while let Some((value, depth)) = work.pop() {
        if depth > MAX_JSON_DEPTH && (value.is_array() || value.is_object()) {
            return true;
        }
        match value {
            Value::Array(items) => work.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(fields) => work.extend(fields.values().map(|item| (item, depth + 1))),
            _ => {}
        }
    }
    false
}
