//! Calls that a region holds.

use mortise_plugin_sdk::tools::{Tool, Tools};
use serde_json::{Map, Value};

use super::content::shaped;
use super::spec::Field;

/// A call as an answer has it.
pub(super) struct Call {
    pub(super) name: String,
    pub(super) id: Option<String>,
    /// A JSON object.
    pub(super) arguments: String,
}

/// The calls that a region's text means. `None` if it means none, or one of a tool that was not declared.
pub(super) fn calls(
    field: &Field,
    captures: &Map<String, Value>,
    text: &str,
    tools: &Tools,
) -> Option<Vec<Call>> {
    let value = field.content.parse(text)?;
    let value = match (&field.transform, value) {
        (None, value) => value,
        (Some(shape), Value::Array(items)) if field.transform_each => {
            let each = items.into_iter().map(|item| {
                let Value::Object(item) = item else {
                    return None;
                };
                let mut scope = captures.clone();
                scope.extend(item);
                shaped(shape, &scope)
            });
            Value::Array(each.collect::<Option<_>>()?)
        }
        (Some(_), _) if field.transform_each => return None,
        (Some(shape), value) => {
            let mut scope = captures.clone();
            scope.insert("content".to_owned(), value);
            shaped(shape, &scope)?
        }
    };
    let items = match value {
        Value::Array(items) => items,
        one => vec![one],
    };
    let calls: Vec<Call> = (items.into_iter())
        .map(|item| call(item, tools))
        .collect::<Option<_>>()?;
    (!calls.is_empty()).then_some(calls)
}

fn call(item: Value, tools: &Tools) -> Option<Call> {
    let Value::Object(mut item) = item else {
        return None;
    };
    let id = match item.remove("id") {
        Some(Value::String(id)) => Some(id),
        _ => None,
    };
    let mut function = match item.remove("function") {
        Some(Value::Object(function)) => function,
        Some(_) => return None,
        None => item,
    };
    let tool = tools.get(function.get("name")?.as_str()?)?;
    let arguments = match function.remove("arguments") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(arguments)) => arguments,
        Some(Value::String(text)) => serde_json::from_str(&text).ok()?,
        Some(_) => return None,
    };
    Some(Call {
        name: tool.name.clone(),
        id,
        arguments: Value::Object(typed(tool, arguments)).to_string(),
    })
}

/// Arguments with the types that the schema has: a text becomes another value where the schema has no text.
fn typed(tool: &Tool, mut arguments: Map<String, Value>) -> Map<String, Value> {
    for (key, value) in &mut arguments {
        let types = tool.types(key);
        if types.is_empty() || types.contains(&"string") {
            continue;
        }
        match value {
            Value::String(text) => *value = tool.typed(key, text),
            Value::Array(items) if !types.contains(&"array") => {
                for item in items {
                    if let Value::String(text) = item {
                        *item = tool.typed(key, text);
                    }
                }
            }
            _ => {}
        }
    }
    arguments
}
