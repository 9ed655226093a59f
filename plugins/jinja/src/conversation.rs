//! Brings the caller's messages into the shape that templates were written for, as servers built
//! on `transformers` do.
//!
//! * Content given as parts stays so if the template handles parts; else texts are joined by line
//!   breaks. Content given as text becomes one part if the template knows nothing but parts.
//! * Content that is null or missing becomes empty text, unless the template itself compares
//!   content with none.
//! * Arguments of tool calls, which travel as JSON text, become objects, unless the template
//!   treats them as text, or they are not a JSON object.
//! * The role `developer` becomes `system`, unless the template names it.
//! * Reasoning is found under each of the names that templates read it by.

use serde_json::{Map, Value, json};

/// Expectations of a template about messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Renders content that is text.
    pub(crate) text_content: bool,
    /// Renders content that is a list of parts.
    pub(crate) part_content: bool,
    /// Compares content with none.
    pub(crate) null_content: bool,
    /// Renders the arguments of tool calls as JSON if they are an object.
    pub(crate) object_arguments: bool,
    /// Names the role `developer`.
    pub(crate) developer_role: bool,
}

/// Names that reasoning is passed under; the first is the usual one.
const REASONING_FIELDS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// Read and normalise messages. The error names the field.
pub(crate) fn read_messages(text: &str, needs: Needs) -> Result<Vec<Value>, String> {
    let messages: Vec<Value> = serde_json::from_str(text)
        .map_err(|error| format!("`messages` must be a JSON array: {error}"))?;
    messages
        .into_iter()
        .enumerate()
        .map(|(index, message)| match message {
            Value::Object(fields) => normalise(fields, needs)
                .map(Value::Object)
                .map_err(|problem| format!("`messages[{index}]{problem}")),
            _ => Err(format!("`messages[{index}]` must be an object")),
        })
        .collect()
}

fn normalise(mut message: Map<String, Value>, needs: Needs) -> Result<Map<String, Value>, String> {
    match message.get_mut("role") {
        Some(Value::String(role)) => {
            if role == "developer" && !needs.developer_role {
                "system".clone_into(role);
            }
        }
        _ => return Err(".role` must be a string".to_owned()),
    }
    let content = normalise_content(message.remove("content").unwrap_or_default(), needs)?;
    // The key keeps its place only if it is last, but no template looks at that.
    message.insert("content".to_owned(), content);
    if needs.object_arguments
        && let Some(Value::Array(calls)) = message.get_mut("tool_calls")
    {
        calls.iter_mut().for_each(read_arguments);
    }
    Ok(alias_reasoning(message))
}

fn normalise_content(content: Value, needs: Needs) -> Result<Value, String> {
    match content {
        Value::Null if needs.null_content => Ok(Value::Null),
        Value::Null => Ok(text_content(String::new(), needs)),
        Value::String(text) => Ok(text_content(text, needs)),
        Value::Array(parts) if needs.part_content => Ok(Value::Array(parts)),
        Value::Array(parts) => {
            let texts = parts.iter().enumerate().map(|(index, part)| {
                part.get("text").and_then(Value::as_str).ok_or_else(|| {
                    let kind = part.get("type").and_then(Value::as_str).unwrap_or("?");
                    format!(
                        ".content[{index}]` has type `{kind}`; the chat template of this model \
                         takes parts of type `text` only"
                    )
                })
            });
            let texts: Vec<&str> = texts.collect::<Result<_, _>>()?;
            Ok(text_content(texts.join("\n"), needs))
        }
        _ => Err(".content` must be a string, an array of parts or null".to_owned()),
    }
}

fn text_content(text: String, needs: Needs) -> Value {
    if needs.text_content {
        Value::String(text)
    } else {
        json!([{"type": "text", "text": text}])
    }
}

fn read_arguments(call: &mut Value) {
    let Some(arguments) = call.pointer_mut("/function/arguments") else {
        return;
    };
    if let Value::String(text) = arguments {
        if text.trim().is_empty() {
            *arguments = json!({});
        } else if let Ok(object) = serde_json::from_str::<Map<String, Value>>(text) {
            *arguments = Value::Object(object);
        }
    }
}

fn alias_reasoning(message: Map<String, Value>) -> Map<String, Value> {
    let reasoning = REASONING_FIELDS
        .iter()
        .filter_map(|field| message.get(*field))
        .find(|value| !value.is_null())
        .cloned();
    let Some(reasoning) = reasoning else {
        return message;
    };
    let mut aliased = Map::new();
    aliased.insert("thinking".to_owned(), reasoning.clone());
    aliased.extend(message);
    aliased.insert("reasoning_content".to_owned(), reasoning);
    aliased
}

/// Append `tag` to what the last message says, or thinks if it says nothing, and return that. `None` if it does neither.
pub(crate) fn tag_last(messages: &mut [Value], tag: &str) -> Option<String> {
    let message = messages.last_mut()?;
    let mut said = message.get_mut("content").and_then(text_of);
    if let Some(text) = said.as_mut().filter(|text| !text.is_empty()) {
        return Some(tagged(text, tag));
    }
    let mut thought = None;
    for field in REASONING_FIELDS {
        if let Some(Value::String(text)) = message.get_mut(field)
            && !text.is_empty()
        {
            thought = Some(tagged(text, tag));
        }
    }
    thought.or_else(|| {
        let said = message.get_mut("content").and_then(text_of)?;
        Some(tagged(said, tag))
    })
}

/// Text of a content: the last of its parts.
fn text_of(content: &mut Value) -> Option<&mut String> {
    let text = match content {
        Value::Array(parts) => parts
            .iter_mut()
            .rev()
            .find_map(|part| part.get_mut("text"))?,
        other => other,
    };
    match text {
        Value::String(text) => Some(text),
        _ => None,
    }
}

fn tagged(text: &mut String, tag: &str) -> String {
    let said = text.clone();
    text.push_str(tag);
    said
}
