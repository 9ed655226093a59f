//! Items: what conversations are made of, as callers send them and as they are kept.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mortise_http::{Problem, kind_of, value_bytes};
use serde_json::{Map, Value, json};

use super::file_search;
use crate::fields::{FieldPath, missing, wrong_type};
use crate::ids::Ids;
use crate::limits::MAX_ITEMS;

/// Roles of messages.
const ROLES: [&str; 4] = ["user", "assistant", "system", "developer"];

/// Marks text that this server gave back as `encrypted_content`.
const SEALED_MARK: &str = "mortise-1:";

/// Text as it is handed to callers who keep the conversation themselves. It is opaque, not encrypted.
pub(super) fn sealed(text: &str) -> String {
    format!("{SEALED_MARK}{}", STANDARD.encode(text))
}

/// The text of `encrypted_content`, if this server made it.
pub(super) fn opened(content: &str) -> Option<String> {
    let encoded = content.strip_prefix(SEALED_MARK)?;
    String::from_utf8(STANDARD.decode(encoded).ok()?).ok()
}

/// Kinds of messages of an assistant that works for a while.
const PHASES: [&str; 2] = ["commentary", "final_answer"];

/// The input of a request as items, each with an id.
pub(super) fn of_input(
    path: &FieldPath,
    input: Value,
    ids: &mut Ids,
) -> Result<Vec<Value>, Problem> {
    match input {
        Value::String(text) => {
            let content = json!([{"type": "input_text", "text": text}]);
            Ok(vec![message(ids, "user", content)])
        }
        Value::Array(items) => of_list(path, items, ids),
        other => Err(wrong_type(path, "a string or an array of items", &other)),
    }
}

/// A list of items, each with an id.
pub(super) fn of_list(
    path: &FieldPath,
    items: Vec<Value>,
    ids: &mut Ids,
) -> Result<Vec<Value>, Problem> {
    if items.len() > MAX_ITEMS {
        return Err(Problem::invalid(
            path.to_string(),
            format!(
                "`{path}` holds {} items; the limit is {MAX_ITEMS}",
                items.len()
            ),
        ));
    }
    let items = items.into_iter().enumerate();
    items
        .map(|(at, item)| of_wire(&path.index(at), item, ids))
        .collect()
}

fn message(ids: &mut Ids, role: &str, content: Value) -> Value {
    json!({
        "id": ids.make("msg_"),
        "type": "message",
        "status": "completed",
        "role": role,
        "content": content,
    })
}

/// One item as it is kept: with its type, an id and a status.
fn of_wire(path: &FieldPath, item: Value, ids: &mut Ids) -> Result<Value, Problem> {
    let Value::Object(mut item) = item else {
        return Err(wrong_type(path, "an object", &item));
    };
    item.retain(|_, value| !value.is_null());
    let kind = match item.get("type") {
        Some(Value::String(kind)) => kind.clone(),
        Some(other) => return Err(wrong_type(&path.key("type"), "a string", other)),
        None if item.contains_key("role") => "message".to_owned(),
        None => return Err(missing(&path.key("type"))),
    };
    let prefix = check_kind(path, &kind, &mut item)?;
    item.insert("type".to_owned(), Value::String(kind));
    if item.get("id").is_some() {
        let id = text(path, &item, "id")?;
        check_id(&path.key("id"), id)?;
    } else {
        item.insert("id".to_owned(), Value::String(ids.make(prefix)));
    }
    item.entry("status").or_insert_with(|| json!("completed"));
    // The id comes first, as it does in what this server makes.
    let mut ordered = Map::new();
    for name in ["id", "type", "status"] {
        if let Some(value) = item.shift_remove(name) {
            ordered.insert(name.to_owned(), value);
        }
    }
    ordered.extend(item);
    Ok(Value::Object(ordered))
}

/// A summary must be one that this server made.
fn check_compaction(path: &FieldPath, item: &Map<String, Value>) -> Result<(), Problem> {
    if opened(text(path, item, "encrypted_content")?).is_some() {
        return Ok(());
    }
    let path = path.key("encrypted_content");
    let problem = format!(
        "`{path}` was not made by this server; compact the conversation here, or send its items"
    );
    Err(Problem::invalid(path.to_string(), problem))
}

/// Check what an item of a type has; returns how ids of such items begin.
fn check_kind(
    path: &FieldPath,
    kind: &str,
    item: &mut Map<String, Value>,
) -> Result<&'static str, Problem> {
    Ok(match kind {
        "message" => {
            check_message(path, item)?;
            "msg_"
        }
        "function_call" => {
            for field in ["call_id", "name", "arguments"] {
                text(path, item, field)?;
            }
            "fc_"
        }
        "function_call_output" => {
            text(path, item, "call_id")?;
            let output = path.key("output");
            match item.get("output") {
                None => return Err(missing(&output)),
                Some(Value::String(_)) => {}
                Some(Value::Array(parts)) => check_parts(&output, parts)?,
                Some(other) => {
                    return Err(wrong_type(&output, "a string or an array of parts", other));
                }
            }
            "fco_"
        }
        "reasoning" => {
            item.entry("summary").or_insert_with(|| json!([]));
            "rs_"
        }
        "mcp_call" => {
            for field in ["name", "arguments"] {
                text(path, item, field)?;
            }
            "mcp_"
        }
        "file_search_call" => {
            file_search::check(path, item)?;
            "fs_"
        }
        "compaction" => {
            check_compaction(path, item)?;
            "cmp_"
        }
        "item_reference" => {
            text(path, item, "id")?;
            "ref_"
        }
        other => {
            let kind = path.key("type");
            return Err(Problem::unsupported(
                kind.to_string(),
                format!(
                    "`{kind}` is `{}`; items here are of type `message`, `function_call`, \
                     `function_call_output`, `reasoning`, `compaction`, `mcp_call`, `file_search_call` and \
                     `item_reference`",
                    other.chars().take(64).collect::<String>()
                ),
            ));
        }
    })
}

/// Bytes of the id of an item.
const ITEM_ID_BYTES_MAX: usize = 128;

fn check_id(path: &FieldPath, id: &str) -> Result<(), Problem> {
    if !id.is_empty()
        && id.len() <= ITEM_ID_BYTES_MAX
        && id.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Ok(());
    }
    Err(Problem::invalid(
        path.to_string(),
        format!("`{path}` must be 1 to {ITEM_ID_BYTES_MAX} printable ASCII characters"),
    ))
}

/// A message has a role, and content as a list of parts.
fn check_message(path: &FieldPath, item: &mut Map<String, Value>) -> Result<(), Problem> {
    let role = text(path, item, "role")?;
    if !ROLES.contains(&role) {
        let path = path.key("role");
        return Err(Problem::invalid(
            path.to_string(),
            format!("`{path}` must be one of `{}`", ROLES.join("`, `")),
        ));
    }
    let assistant = role == "assistant";
    // Clients label messages of any role.
    if let Some(phase) = item.get("phase")
        && !PHASES.iter().any(|known| phase == known)
    {
        let path = path.key("phase");
        let problem = format!("`{path}` must be `commentary` or `final_answer`");
        return Err(Problem::invalid(path.to_string(), problem));
    }
    let content = path.key("content");
    match item.get_mut("content") {
        None => Err(missing(&content)),
        Some(Value::Array(parts)) => check_parts(&content, parts),
        Some(held @ Value::String(_)) => {
            let text = held.take();
            *held = match assistant {
                true => json!([{"type": "output_text", "text": text, "annotations": []}]),
                false => json!([{"type": "input_text", "text": text}]),
            };
            Ok(())
        }
        Some(other) => Err(wrong_type(&content, "a string or an array of parts", other)),
    }
}

/// Parts of a message, or of the output of a function.
fn check_parts(path: &FieldPath, parts: &[Value]) -> Result<(), Problem> {
    for (at, part) in parts.iter().enumerate() {
        let path = path.index(at);
        let Value::Object(part) = part else {
            return Err(wrong_type(&path, "an object", part));
        };
        match text(&path, part, "type")? {
            "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text" => {
                text(&path, part, "text")?;
            }
            "refusal" => {
                text(&path, part, "refusal")?;
            }
            "input_image" | "input_audio" => {}
            other => {
                let other: String = other.chars().take(64).collect();
                let path = path.key("type");
                return Err(Problem::unsupported(
                    path.to_string(),
                    format!(
                        "`{path}` is `{other}`; parts here are of type `input_text`, `output_text`, \
                         `refusal`, `input_image` and `input_audio`"
                    ),
                ));
            }
        }
    }
    Ok(())
}

/// A member that must be a string.
pub(super) fn text<'a>(
    path: &FieldPath,
    item: &'a Map<String, Value>,
    field: &str,
) -> Result<&'a str, Problem> {
    let path = path.key(field);
    match item.get(field) {
        Some(Value::String(text)) => Ok(text),
        None | Some(Value::Null) => Err(missing(&path)),
        Some(other) => Err(wrong_type(&path, "a string", other)),
    }
}

/// Memory of the items of a request, in bytes.
pub(super) fn input_bytes(items: &[Value]) -> usize {
    let items = items.iter();
    items
        .map(|item| size_of::<Value>() + value_bytes(item))
        .sum()
}

/// The id of an item that is kept.
pub(super) fn id_of(item: &Value) -> &str {
    item.get("id").and_then(Value::as_str).unwrap_or_default()
}

/// A value where an item, or an array of them, must be.
pub(super) fn list_of(path: &FieldPath, value: Option<Value>) -> Result<Vec<Value>, Problem> {
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => Ok(items),
        Some(other) => {
            let found = kind_of(&other);
            Err(Problem::invalid(
                path.to_string(),
                format!("`{path}` must be an array of items; it is {found}"),
            ))
        }
    }
}
