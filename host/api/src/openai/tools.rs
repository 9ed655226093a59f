//! Tool declarations and `tool_choice`, with the older `functions` and `function_call`, and the names of
//! tools that the server runs (`server_tools`, a field of our own).

use mortise_http::Problem as ApiError;
use mortise_service::{RequestFields, ToolChoice};
use serde_json::{Value, json};

use super::fields::{Fields, wrong_type};

/// Most tools in one request.
const MAX_TOOLS: usize = 128;
/// Longest name of a tool or a schema.
const MAX_NAME_CHARS: usize = 64;

/// Take everything about tools. Says whether the answer must use the older `function_call` shape.
pub(crate) fn take(fields: &mut Fields, request: &mut RequestFields) -> Result<bool, ApiError> {
    let declared = fields.array("tools")?;
    let functions = fields.array("functions")?;
    let legacy = match (declared, functions) {
        (Some(tools), functions) => {
            if functions.is_some() {
                fields.unsupported("functions", "`tools` stands beside it and replaces it")?;
            }
            request.tools = check_tools(fields, "tools", tools)?;
            false
        }
        (None, Some(functions)) => {
            let tools = functions
                .into_iter()
                .map(|function| json!({"type": "function", "function": function}))
                .collect();
            request.tools = check_tools(fields, "functions", tools)?;
            true
        }
        (None, None) => false,
    };
    request.server_tools = take_server_tools(fields)?;
    request.parallel_tool_calls = fields.boolean("parallel_tool_calls")?;
    take_choice(fields, request)?;
    take_function_call(fields, request, legacy)?;
    if legacy {
        // The older shape has room for one call only.
        request.parallel_tool_calls = Some(false);
    }
    check_choice(request, legacy)?;
    Ok(legacy)
}

/// Which of the server's tools the answer may use. Whether there are such tools, the service knows.
fn take_server_tools(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    let names = fields.strings("server_tools")?;
    for (index, name) in names.iter().enumerate() {
        check_name(&format!("server_tools[{index}]"), name)?;
    }
    Ok(names)
}

fn check_tools(fields: &mut Fields, list: &str, tools: Vec<Value>) -> Result<Vec<Value>, ApiError> {
    if tools.len() > MAX_TOOLS {
        return Err(ApiError::invalid(
            list,
            format!(
                "`{list}` declares {} tools; the limit is {MAX_TOOLS}",
                tools.len()
            ),
        ));
    }
    let mut checked: Vec<Value> = Vec::with_capacity(tools.len());
    for (index, tool) in tools.into_iter().enumerate() {
        let path = format!("{list}[{index}]");
        let Some((name, tool)) = check_tool(fields, &path, tool)? else {
            continue;
        };
        if checked.iter().any(|other| tool_name(other) == Some(&name)) {
            return Err(ApiError::invalid(
                path.as_str(),
                format!("`{path}` declares `{name}`, which an earlier entry declares too"),
            ));
        }
        checked.push(tool);
    }
    Ok(checked)
}

/// Check one declaration. `None` if it is of a kind that is left out of account.
fn check_tool(
    fields: &mut Fields,
    path: &str,
    tool: Value,
) -> Result<Option<(String, Value)>, ApiError> {
    let original = tool.clone();
    let mut outer = fields.child(path, tool)?;
    match outer.string("type")?.as_deref() {
        Some("function") => {}
        Some(other) => {
            let why = format!("tools of type `{other}` are unknown here; use `function`");
            outer.unsupported("type", &why)?;
            fields.also_ignored(vec![path.to_owned()]);
            return Ok(None);
        }
        None => return Err(outer.missing("type")),
    }
    let Some(mut function) = outer.nested("function")? else {
        return Err(outer.missing("function"));
    };
    let name = function.required_string("name")?;
    check_name(&function.path_of("name"), &name)?;
    function.string("description")?;
    function.boolean("strict")?;
    function.nested("parameters")?;
    let mut ignored = function.finish(&["name", "description", "strict", "parameters"])?;
    ignored.extend(outer.finish(&["type", "function"])?);
    fields.also_ignored(ignored);
    Ok(Some((name, original)))
}

/// Names go into prompts, grammars and logs, so they are held to OpenAI's alphabet.
pub(super) fn check_name(path: &str, name: &str) -> Result<(), ApiError> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !name.is_empty() && name.len() <= MAX_NAME_CHARS && name.chars().all(good) {
        return Ok(());
    }
    Err(ApiError::invalid(
        path,
        format!(
            "`{path}` must be 1 to {MAX_NAME_CHARS} letters, digits, `_` or `-`; it is {name:?}"
        ),
    ))
}

fn take_choice(fields: &mut Fields, request: &mut RequestFields) -> Result<(), ApiError> {
    let choice = match fields.take("tool_choice") {
        None => return Ok(()),
        Some(Value::String(word)) => match word.as_str() {
            "none" => ToolChoice::None,
            "auto" => ToolChoice::Auto,
            "required" => ToolChoice::Required,
            other => {
                return Err(ApiError::invalid(
                    "tool_choice",
                    format!(
                        "`tool_choice` must be `none`, `auto`, `required` or an object; \
                         it is `{other}`"
                    ),
                ));
            }
        },
        Some(Value::Object(object)) => {
            let mut choice = fields.child("tool_choice", Value::Object(object))?;
            let parsed = match choice.choice("type", &["function", "allowed_tools"])? {
                None => return Err(choice.missing("type")),
                Some("function") => named(&mut choice)?,
                Some(_) => allowed(&mut choice, request)?,
            };
            let ignored = choice.finish(&["type", "function", "allowed_tools"])?;
            fields.also_ignored(ignored);
            parsed
        }
        Some(other) => return Err(wrong_type("tool_choice", "a string or an object", &other)),
    };
    request.tool_choice = Some(choice);
    Ok(())
}

fn named(choice: &mut Fields) -> Result<ToolChoice, ApiError> {
    let Some(mut function) = choice.nested("function")? else {
        return Err(choice.missing("function"));
    };
    let name = function.required_string("name")?;
    let ignored = function.finish(&["name"])?;
    choice.also_ignored(ignored);
    Ok(ToolChoice::Named(name))
}

/// `allowed_tools` narrows the declared tools to the named ones.
fn allowed(choice: &mut Fields, request: &mut RequestFields) -> Result<ToolChoice, ApiError> {
    let Some(mut allowed) = choice.nested("allowed_tools")? else {
        return Err(choice.missing("allowed_tools"));
    };
    let mode = match allowed.choice("mode", &["auto", "required"])? {
        None => return Err(allowed.missing("mode")),
        Some("auto") => ToolChoice::Auto,
        Some(_) => ToolChoice::Required,
    };
    let tools = allowed
        .array("tools")?
        .ok_or_else(|| allowed.missing("tools"))?;
    let mut names = Vec::with_capacity(tools.len());
    for (index, tool) in tools.iter().enumerate() {
        let path = allowed.path_of(&format!("tools[{index}]"));
        let name = tool_name(tool).ok_or_else(|| {
            ApiError::invalid(
                path.as_str(),
                format!("`{path}` must be `{{\"type\":\"function\",\"function\":{{\"name\":…}}}}`"),
            )
        })?;
        if !is_declared(request, name) {
            return Err(undeclared(&path, name));
        }
        names.push(name);
    }
    request
        .server_tools
        .retain(|tool| names.contains(&tool.as_str()));
    request
        .tools
        .retain(|tool| tool_name(tool).is_some_and(|name| names.contains(&name)));
    let ignored = allowed.finish(&["mode", "tools"])?;
    choice.also_ignored(ignored);
    Ok(mode)
}

fn take_function_call(
    fields: &mut Fields,
    request: &mut RequestFields,
    legacy: bool,
) -> Result<(), ApiError> {
    let Some(value) = fields.take("function_call") else {
        return Ok(());
    };
    if !legacy && !request.tools.is_empty() {
        return fields.unsupported("function_call", "`tools` is in use; give `tool_choice`");
    }
    request.tool_choice = Some(match value {
        Value::String(word) if word == "none" => ToolChoice::None,
        Value::String(word) if word == "auto" => ToolChoice::Auto,
        Value::Object(object) => {
            let mut call = fields.child("function_call", Value::Object(object))?;
            let name = call.required_string("name")?;
            let ignored = call.finish(&["name"])?;
            fields.also_ignored(ignored);
            ToolChoice::Named(name)
        }
        other => {
            return Err(ApiError::invalid(
                "function_call",
                format!("`function_call` must be `none`, `auto` or an object; it is {other}"),
            ));
        }
    });
    Ok(())
}

/// A choice may name only what was declared.
fn check_choice(request: &RequestFields, legacy: bool) -> Result<(), ApiError> {
    let param = if legacy {
        "function_call"
    } else {
        "tool_choice"
    };
    match &request.tool_choice {
        Some(ToolChoice::Required)
            if request.tools.is_empty() && request.server_tools.is_empty() =>
        {
            Err(ApiError::invalid(
                param,
                format!("`{param}` asks for a tool call and no tools are declared"),
            ))
        }
        Some(ToolChoice::Named(name)) if !is_declared(request, name) => {
            Err(undeclared(param, name))
        }
        _ => Ok(()),
    }
}

fn is_declared(request: &RequestFields, name: &str) -> bool {
    let own = request.tools.iter().filter_map(tool_name);
    let servers = request.server_tools.iter().map(String::as_str);
    own.chain(servers).any(|declared| declared == name)
}

fn undeclared(path: &str, name: &str) -> ApiError {
    ApiError::invalid(
        path,
        format!("`{path}` names the tool `{name}`, which is not declared"),
    )
}

fn tool_name(tool: &Value) -> Option<&str> {
    tool.get("function")?.get("name")?.as_str()
}
