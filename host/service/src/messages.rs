//! The shapes of messages and tools, which come as OpenAI defines them and go to templates and
//! parsers as they are.

use serde_json::{Map, Value};

use crate::check::{invalid, refuse};
use crate::error::ServiceError;

/// Deepest nesting of arrays and objects.
pub const MAX_JSON_DEPTH: usize = 128;
/// Longest name of a tool.
pub const MAX_TOOL_NAME_BYTES: usize = 64;
/// Most tools of one request.
pub const MAX_TOOLS: usize = 1024;

/// Arguments that a template gets from the server; a caller must not replace them.
const RESERVED_ARGUMENTS: &[&str] = &[
    "messages",
    "tools",
    "chat_template",
    "tokenize",
    "add_generation_prompt",
    "continue_final_message",
    "bos_token",
    "eos_token",
    "strftime_now",
    "raise_exception",
];

pub(crate) fn check_messages(messages: &[Value]) -> Result<(), ServiceError> {
    if messages.is_empty() {
        return Err(invalid(
            "messages",
            "messages is empty; give at least one message",
        ));
    }
    for (at, message) in messages.iter().enumerate() {
        let path = format!("messages[{at}]");
        let Value::Object(fields) = message else {
            return Err(wrong_type(&path, message, "an object"));
        };
        check_depth(&path, message)?;
        check_message(&path, fields)?;
    }
    Ok(())
}

fn check_message(path: &str, fields: &Map<String, Value>) -> Result<(), ServiceError> {
    let role = match fields.get("role") {
        Some(Value::String(role)) => role.as_str(),
        Some(other) => return Err(wrong_type(&format!("{path}.role"), other, "text")),
        None => return Err(missing(&format!("{path}.role"))),
    };
    optional_text(path, fields, "name")?;
    match role {
        "system" | "developer" | "user" => check_content(path, fields.get("content"), role),
        "assistant" => check_assistant(path, fields),
        "tool" => {
            required_text(path, fields, "tool_call_id")?;
            check_content(path, fields.get("content"), role)
        }
        "function" => {
            required_text(path, fields, "name")?;
            match fields.get("content") {
                Some(Value::Null) => Ok(()),
                content => check_content(path, content, role),
            }
        }
        other => Err(invalid(
            format!("{path}.role"),
            format!(
                "the role `{other}` is unknown; known are system, developer, user, assistant, tool and function"
            ),
        )),
    }
}

fn check_assistant(path: &str, fields: &Map<String, Value>) -> Result<(), ServiceError> {
    let given = |key: &str| fields.get(key).filter(|value| !value.is_null());
    optional_text(path, fields, "refusal")?;
    if let Some(calls) = given("tool_calls") {
        check_tool_calls(&format!("{path}.tool_calls"), calls)?;
    }
    if let Some(call) = given("function_call") {
        check_called_function(&format!("{path}.function_call"), Some(call))?;
    }
    match given("content") {
        Some(content) => check_content(path, Some(content), "assistant"),
        // An assistant may have said nothing but a call, or have been asked to go on from nothing.
        None => Ok(()),
    }
}

fn check_content(path: &str, content: Option<&Value>, role: &str) -> Result<(), ServiceError> {
    let path = format!("{path}.content");
    match content {
        Some(Value::String(_)) => Ok(()),
        Some(Value::Array(parts)) => {
            for (at, part) in parts.iter().enumerate() {
                check_part(&format!("{path}[{at}]"), part, role)?;
            }
            Ok(())
        }
        Some(other) => Err(wrong_type(&path, other, "text or a list of parts")),
        None => Err(missing(&path)),
    }
}

fn check_part(path: &str, part: &Value, role: &str) -> Result<(), ServiceError> {
    let Value::Object(fields) = part else {
        return Err(wrong_type(path, part, "an object"));
    };
    required_text(path, fields, "type")?;
    match fields
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default()
    {
        "text" => required_text(path, fields, "text"),
        "refusal" if role == "assistant" => required_text(path, fields, "refusal"),
        other => Err(refuse(
            format!("{path}.type"),
            "unsupported_content_type",
            format!(
                "the content type `{other}` is not supported in a message of role `{role}`; use `text`"
            ),
        )),
    }
}

fn check_tool_calls(path: &str, calls: &Value) -> Result<(), ServiceError> {
    let Value::Array(calls) = calls else {
        return Err(wrong_type(path, calls, "a list"));
    };
    for (at, call) in calls.iter().enumerate() {
        let path = format!("{path}[{at}]");
        let Value::Object(fields) = call else {
            return Err(wrong_type(&path, call, "an object"));
        };
        required_text(&path, fields, "id")?;
        only_functions(&path, fields)?;
        check_called_function(&format!("{path}.function"), fields.get("function"))?;
    }
    Ok(())
}

fn check_called_function(path: &str, function: Option<&Value>) -> Result<(), ServiceError> {
    match function {
        Some(Value::Object(function)) => {
            required_text(path, function, "name")?;
            required_text(path, function, "arguments")
        }
        Some(other) => Err(wrong_type(path, other, "an object")),
        None => Err(missing(path)),
    }
}

/// `type` must be `function` where it is given.
fn only_functions(path: &str, fields: &Map<String, Value>) -> Result<(), ServiceError> {
    let path = format!("{path}.type");
    match fields.get("type") {
        Some(Value::String(kind)) if kind == "function" => Ok(()),
        Some(Value::String(kind)) => Err(refuse(
            path,
            "unsupported_tool_type",
            format!("the tool type `{kind}` is not supported; use `function`"),
        )),
        Some(other) => Err(wrong_type(&path, other, "text")),
        None => Err(missing(&path)),
    }
}

pub(crate) fn check_tools(tools: &[Value]) -> Result<(), ServiceError> {
    if tools.len() > MAX_TOOLS {
        let count = tools.len();
        return Err(invalid(
            "tools",
            format!("{count} tools; at most {MAX_TOOLS} are allowed"),
        ));
    }
    let mut names = std::collections::HashSet::new();
    for (at, tool) in tools.iter().enumerate() {
        let path = format!("tools[{at}]");
        let Value::Object(fields) = tool else {
            return Err(wrong_type(&path, tool, "an object"));
        };
        check_depth(&path, tool)?;
        only_functions(&path, fields)?;
        let name = check_declaration(&format!("{path}.function"), fields.get("function"))?;
        if !names.insert(name) {
            return Err(invalid(
                format!("{path}.function.name"),
                format!("the function `{name}` is declared twice; rename one of them"),
            ));
        }
    }
    Ok(())
}

/// Check the declaration of one function; its name.
fn check_declaration<'a>(path: &str, function: Option<&'a Value>) -> Result<&'a str, ServiceError> {
    let fields = match function {
        Some(Value::Object(fields)) => fields,
        Some(other) => return Err(wrong_type(path, other, "an object")),
        None => return Err(missing(path)),
    };
    required_text(path, fields, "name")?;
    let name = fields
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if name.is_empty() || name.len() > MAX_TOOL_NAME_BYTES || !name.bytes().all(plain) {
        return Err(invalid(
            format!("{path}.name"),
            format!(
                "a function's name has 1 to {MAX_TOOL_NAME_BYTES} letters, digits, `_` or `-`; this one is not such a name"
            ),
        ));
    }
    optional_text(path, fields, "description")?;
    match fields.get("parameters") {
        None | Some(Value::Null | Value::Object(_)) => {}
        Some(other) => {
            return Err(wrong_type(
                &format!("{path}.parameters"),
                other,
                "an object",
            ));
        }
    }
    match fields.get("strict") {
        None | Some(Value::Null | Value::Bool(_)) => Ok(name),
        Some(other) => Err(wrong_type(
            &format!("{path}.strict"),
            other,
            "true or false",
        )),
    }
}

pub(crate) fn check_template_arguments(arguments: &Map<String, Value>) -> Result<(), ServiceError> {
    for (name, value) in arguments {
        let path = format!("chat_template_kwargs.{name}");
        if RESERVED_ARGUMENTS.contains(&name.as_str()) {
            return Err(invalid(
                path,
                format!("the template argument `{name}` is set by the server; leave it out"),
            ));
        }
        check_depth(&path, value)?;
    }
    Ok(())
}

/// Refuse JSON that is nested too deeply. The walk keeps its own stack, so that depth costs memory
/// that is already spent and not the thread's stack.
pub(crate) fn check_depth(path: &str, value: &Value) -> Result<(), ServiceError> {
    let mut work = vec![(value, 1)];
    while let Some((value, depth)) = work.pop() {
        if depth > MAX_JSON_DEPTH && (value.is_array() || value.is_object()) {
            return Err(invalid(
                path,
                format!("the JSON is nested more than {MAX_JSON_DEPTH} deep"),
            ));
        }
        match value {
            Value::Array(items) => work.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(fields) => work.extend(fields.values().map(|item| (item, depth + 1))),
            _ => {}
        }
    }
    Ok(())
}

fn required_text(path: &str, fields: &Map<String, Value>, key: &str) -> Result<(), ServiceError> {
    match fields.get(key) {
        Some(Value::String(_)) => Ok(()),
        Some(other) => Err(wrong_type(&format!("{path}.{key}"), other, "text")),
        None => Err(missing(&format!("{path}.{key}"))),
    }
}

fn optional_text(path: &str, fields: &Map<String, Value>, key: &str) -> Result<(), ServiceError> {
    match fields.get(key) {
        None | Some(Value::String(_) | Value::Null) => Ok(()),
        Some(other) => Err(wrong_type(&format!("{path}.{key}"), other, "text")),
    }
}

fn missing(path: &str) -> ServiceError {
    refuse(
        path,
        "missing_required_parameter",
        format!("{path} is missing"),
    )
}

fn wrong_type(path: &str, value: &Value, expected: &str) -> ServiceError {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    refuse(
        path,
        "invalid_type",
        format!("{path} is {kind}; it must be {expected}"),
    )
}
