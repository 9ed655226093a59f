//! Checks the messages of a chat request and brings them to the plain shape that chat templates
//! know: `developer` becomes `system`, and text parts become one string.

use mortise_http::{Problem as ApiError, kind_of, nearest};
use serde_json::{Map, Value, json};

use super::fields::wrong_type;

/// Most messages in one request.
const MAX_MESSAGES: usize = 4096;

/// The old `function_call` had no id; call and result are tied together by this one.
const LEGACY_CALL_ID: &str = "call_0";

const ROLES: [&str; 6] = [
    "system",
    "developer",
    "user",
    "assistant",
    "tool",
    "function",
];

/// Fields a message may have. `reasoning` is what some servers call `reasoning_content`.
const KNOWN: [&str; 12] = [
    "role",
    "content",
    "name",
    "tool_calls",
    "tool_call_id",
    "function_call",
    "refusal",
    "reasoning_content",
    "reasoning",
    "audio",
    "annotations",
    "prefix",
];

/// Check all messages and bring them to the plain shape.
pub(crate) fn normalize(messages: Vec<Value>) -> Result<Vec<Value>, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::invalid(
            "messages",
            "`messages` must hold at least one message",
        ));
    }
    if messages.len() > MAX_MESSAGES {
        return Err(ApiError::invalid(
            "messages",
            format!(
                "`messages` holds {} messages; the limit is {MAX_MESSAGES}",
                messages.len()
            ),
        ));
    }
    messages
        .into_iter()
        .enumerate()
        .map(|(index, message)| normalize_one(&format!("messages[{index}]"), message))
        .collect()
}

fn normalize_one(path: &str, message: Value) -> Result<Value, ApiError> {
    let Value::Object(mut message) = message else {
        return Err(wrong_type(path, "an object", &message));
    };
    check_names(path, &message)?;
    let role = take_role(path, &message)?;
    let mut plain = Map::new();
    let name = match role {
        "developer" => "system",
        "function" => "tool",
        other => other,
    };
    plain.insert("role".to_owned(), json!(name));

    let refusal = take_text(path, "refusal", &mut message)?;
    let content = take_content(path, message.shift_remove("content"))?.or(refusal);
    let calls = take_calls(path, role, &mut message)?;
    if content.is_none() && (role != "assistant" || calls.is_none()) {
        let path = format!("{path}.content");
        return Err(ApiError::invalid(
            path.as_str(),
            format!("`{path}` is required in a message of role `{role}`"),
        ));
    }
    plain.insert(
        "content".to_owned(),
        content.map_or(json!(""), Value::String),
    );
    if let Some(calls) = calls {
        plain.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    for field in ["name", "tool_call_id", "reasoning_content"] {
        if let Some(text) = take_text(path, field, &mut message)? {
            plain.insert(field.to_owned(), Value::String(text));
        }
    }
    if let Some(text) = take_text(path, "reasoning", &mut message)? {
        plain
            .entry("reasoning_content")
            .or_insert(Value::String(text));
    }
    if role == "function" {
        plain.insert("tool_call_id".to_owned(), json!(LEGACY_CALL_ID));
    }
    if role == "tool" && !plain.contains_key("tool_call_id") {
        let path = format!("{path}.tool_call_id");
        return Err(ApiError::invalid(
            path.as_str(),
            format!("`{path}` is required in a message of role `tool`"),
        ));
    }
    Ok(Value::Object(plain))
}

fn check_names(path: &str, message: &Map<String, Value>) -> Result<(), ApiError> {
    for (name, value) in message {
        if KNOWN.contains(&name.as_str()) {
            continue;
        }
        if value.is_null() {
            continue;
        }
        let hint = match nearest(name, KNOWN) {
            Some(candidate) => format!("; did you mean `{candidate}`?"),
            None => String::new(),
        };
        let field = format!("{path}.{name}");
        let mut error = ApiError::invalid(field.as_str(), format!("unknown field `{field}`{hint}"));
        error.code = "unknown_parameter".to_owned();
        return Err(error);
    }
    for refused in ["audio", "prefix"] {
        if message.get(refused).is_some_and(|value| !value.is_null()) {
            let field = format!("{path}.{refused}");
            return Err(ApiError::unsupported(
                field.as_str(),
                format!("`{field}` is not supported"),
            ));
        }
    }
    Ok(())
}

fn take_role(path: &str, message: &Map<String, Value>) -> Result<&'static str, ApiError> {
    let field = format!("{path}.role");
    let role = match message.get("role") {
        Some(Value::String(role)) => role,
        Some(other) => return Err(wrong_type(&field, "a string", other)),
        None => {
            let mut error = ApiError::invalid(field.as_str(), format!("`{field}` is required"));
            error.code = "missing_required_parameter".to_owned();
            return Err(error);
        }
    };
    match ROLES.iter().find(|known| *known == role) {
        Some(role) => Ok(role),
        None => Err(ApiError::invalid(
            field.as_str(),
            format!(
                "`{field}` must be one of {}; it is `{role}`",
                ROLES.join(", ")
            ),
        )),
    }
}

/// Text, or the texts of parts joined by line ends.
fn take_content(path: &str, content: Option<Value>) -> Result<Option<String>, ApiError> {
    let path = format!("{path}.content");
    let parts = match content {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => return Ok(Some(text)),
        Some(Value::Array(parts)) => parts,
        Some(other) => return Err(wrong_type(&path, "a string or an array of parts", &other)),
    };
    let mut texts = Vec::with_capacity(parts.len());
    for (index, part) in parts.into_iter().enumerate() {
        let path = format!("{path}[{index}]");
        let Value::Object(mut part) = part else {
            return Err(wrong_type(&path, "an object", &part));
        };
        let kind = match part.get("type") {
            Some(Value::String(kind)) => kind.clone(),
            _ => {
                return Err(ApiError::invalid(
                    format!("{path}.type"),
                    format!("`{path}.type` is required and must be a string"),
                ));
            }
        };
        let field = match kind.as_str() {
            "text" => "text",
            "refusal" => "refusal",
            _ => {
                return Err(ApiError::unsupported(
                    format!("{path}.type"),
                    format!("`{path}` has the type `{kind}`; this server's models read only text"),
                ));
            }
        };
        match part.shift_remove(field) {
            Some(Value::String(text)) => texts.push(text),
            Some(other) => return Err(wrong_type(&format!("{path}.{field}"), "a string", &other)),
            None => {
                return Err(ApiError::invalid(
                    format!("{path}.{field}"),
                    format!("`{path}.{field}` is required"),
                ));
            }
        }
    }
    Ok(Some(texts.join("\n")))
}

/// The calls that an assistant made, those of the old `function_call` among them.
fn take_calls(
    path: &str,
    role: &str,
    message: &mut Map<String, Value>,
) -> Result<Option<Vec<Value>>, ApiError> {
    let calls = message
        .shift_remove("tool_calls")
        .filter(|value| !value.is_null());
    let legacy = message
        .shift_remove("function_call")
        .filter(|value| !value.is_null());
    if calls.is_none() && legacy.is_none() {
        return Ok(None);
    }
    if role != "assistant" {
        return Err(ApiError::invalid(
            format!("{path}.tool_calls"),
            format!("`{path}.tool_calls` may stand only in a message of role `assistant`"),
        ));
    }
    if let Some(function) = legacy {
        let call = json!({"id": LEGACY_CALL_ID, "type": "function", "function": function});
        return Ok(Some(vec![check_call(
            &format!("{path}.function_call"),
            call,
        )?]));
    }
    let path = format!("{path}.tool_calls");
    match calls {
        Some(Value::Array(calls)) if calls.is_empty() => Ok(None),
        Some(Value::Array(calls)) => calls
            .into_iter()
            .enumerate()
            .map(|(index, call)| check_call(&format!("{path}[{index}]"), call))
            .collect::<Result<_, _>>()
            .map(Some),
        Some(other) => Err(wrong_type(&path, "an array", &other)),
        None => Ok(None),
    }
}

fn check_call(path: &str, call: Value) -> Result<Value, ApiError> {
    let function = call.get("function");
    let Some(Value::Object(function)) = function else {
        return Err(ApiError::invalid(
            format!("{path}.function"),
            format!("`{path}.function` is required and must be an object"),
        ));
    };
    for field in ["name", "arguments"] {
        if !function.get(field).is_some_and(Value::is_string) {
            let found = function.get(field).map_or("absent", kind_of);
            let field = format!("{path}.function.{field}");
            return Err(ApiError::invalid(
                field.as_str(),
                format!("`{field}` must be a string; it is {found}"),
            ));
        }
    }
    Ok(call)
}

fn take_text(
    path: &str,
    name: &str,
    message: &mut Map<String, Value>,
) -> Result<Option<String>, ApiError> {
    match message.shift_remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong_type(&format!("{path}.{name}"), "a string", &other)),
    }
}
