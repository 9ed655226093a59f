//! Tools of a request: functions of the caller's, and tools of the server's, which are written as those of an MCP
//! server with the label `mortise`.

use mortise_http::Problem;
use mortise_service::{
    JsonObject, KeyOrder, RequestFields, ToolChoice, ToolDeclaration, ToolDeclarations, ToolName,
    limits,
};
use serde_json::{Map, Value};

use super::file_search::{self, Wanted};
use super::items::text;
use crate::collections::FILE_SEARCH;
use crate::fields::{FieldPath, FieldReader, TextOrTexts, wrong_type};
use crate::limits::MAX_TOOL_ENTRIES;

/// Label of the server's own tools.
pub(super) const SERVER_LABEL: &str = "mortise";

/// Write the declarations and the choice to the request.
pub(super) fn write(
    tools: Option<&Vec<Value>>,
    choice: Option<&Value>,
    server_tools: TextOrTexts,
    reader: &mut FieldReader,
    request: &mut RequestFields,
) -> Result<Option<Wanted>, Problem> {
    let list = FieldPath::from("tools");
    let count = tools.map_or(0, Vec::len);
    if count > MAX_TOOL_ENTRIES {
        let problem = format!("`tools` has {count} entries; the limit is {MAX_TOOL_ENTRIES}");
        return Err(Problem::invalid("tools", problem));
    }
    let mut search = None;
    let mut declarations: Vec<ToolDeclaration> = Vec::new();
    request.server_tools = server_tools.0;
    for (at, tool) in tools.into_iter().flatten().enumerate() {
        let path = list.index(at);
        let Value::Object(tool) = tool else {
            return Err(wrong_type(&path, "an object", tool));
        };
        match text(&path, tool, "type")? {
            "function" => {
                let declared = declaration(&path, tool, reader)?;
                let name = &declared.name;
                if declarations.iter().any(|earlier| earlier.name == *name) {
                    return Err(Problem::invalid(
                        path.to_string(),
                        format!("`{path}` declares `{name}`, which an earlier entry declares too"),
                    ));
                }
                declarations.push(declared);
            }
            "mcp" => servers(&path, tool, request)?,
            FILE_SEARCH if search.is_some() => {
                let problem = format!("`{path}` is a second `file_search`; give its ids to one");
                return Err(Problem::invalid(path.to_string(), problem));
            }
            FILE_SEARCH => search = Some(file_search::wanted(&path, tool)?),
            other => {
                let other: String = other.chars().take(64).collect();
                let why = format!(
                    "tools of type `{other}` are unknown here; use `function`, `file_search`, or `mcp` \
                     with the `server_label` `{SERVER_LABEL}` for tools of this server"
                );
                reader.unsupported(&path.key("type"), &why)?;
            }
        }
    }
    if declarations.len() > limits::MAX_TOOLS {
        let (count, limit) = (declarations.len(), limits::MAX_TOOLS);
        return Err(Problem::invalid(
            "tools",
            format!("`tools` declares {count} functions; the limit is {limit}"),
        ));
    }
    let tools = ToolDeclarations::new(declarations);
    request.tools = tools.map_err(|error| Problem::invalid("tools", error.to_string()))?;
    if let Some(choice) = choice {
        request.tool_choice = Some(tool_choice(choice, request, &mut search)?);
    }
    Ok(search)
}

fn declaration(
    path: &FieldPath,
    tool: &Map<String, Value>,
    reader: &mut FieldReader,
) -> Result<ToolDeclaration, Problem> {
    const KNOWN: [&str; 5] = ["type", "name", "description", "parameters", "strict"];
    for (field, value) in tool {
        if !KNOWN.contains(&field.as_str()) && !value.is_null() {
            reader.unsupported(&path.key(field), "functions have no such field here")?;
        }
    }
    let description = match tool.get("description") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(other) => return Err(wrong_type(&path.key("description"), "a string", other)),
    };
    let strict = match tool.get("strict") {
        None | Some(Value::Null) => None,
        Some(Value::Bool(strict)) => Some(*strict),
        Some(other) => return Err(wrong_type(&path.key("strict"), "a boolean", other)),
    };
    let inner = path.key("parameters");
    let parameters = match tool.get("parameters") {
        None | Some(Value::Null) => None,
        Some(Value::Object(schema)) => {
            Some(JsonObject::new(schema.clone()).map_err(|error| {
                Problem::invalid(inner.to_string(), format!("`{inner}`: {error}"))
            })?)
        }
        Some(other) => return Err(wrong_type(&inner, "an object", other)),
    };
    Ok(ToolDeclaration {
        name: tool_name(&path.key("name"), text(path, tool, "name")?)?,
        description,
        parameters,
        strict,
        order: KeyOrder::default(),
    })
}

fn tool_name(path: &FieldPath, name: &str) -> Result<ToolName, Problem> {
    let name = ToolName::new(name);
    name.map_err(|error| Problem::invalid(path.to_string(), format!("`{path}` {error}")))
}

/// Tools of this server that the request opts in to.
fn servers(
    path: &FieldPath,
    tool: &Map<String, Value>,
    request: &mut RequestFields,
) -> Result<(), Problem> {
    let unsupported = |field: &str, why: &str| {
        let path = path.key(field);
        let problem = format!("`{path}` is not supported: {why}");
        Err(Problem::unsupported(path.to_string(), problem))
    };
    if text(path, tool, "server_label")? != SERVER_LABEL {
        return unsupported(
            "server_label",
            "this server calls no other; `mortise` stands for its own tools",
        );
    }
    const KNOWN: [&str; 4] = ["type", "server_label", "allowed_tools", "require_approval"];
    let given = tool.iter().filter(|(_, value)| !value.is_null());
    let mut names = given.map(|(name, _)| name.as_str());
    if let Some(field) = names.find(|name| !KNOWN.contains(name)) {
        return unsupported(
            field,
            "the server's own tools need no address and no rights",
        );
    }
    match tool.get("require_approval") {
        None | Some(Value::Null) => {}
        Some(Value::String(word)) if word == "never" => {}
        Some(_) => {
            return unsupported(
                "require_approval",
                "the server's own tools run at once: `never`",
            );
        }
    }
    let inner = path.key("allowed_tools");
    let allowed = match tool.get("allowed_tools") {
        Some(Value::Array(names)) => names,
        Some(Value::Object(filter)) => match filter.get("tool_names") {
            Some(Value::Array(names)) => names,
            _ => return Err(crate::fields::missing(&inner.key("tool_names"))),
        },
        Some(other) if !other.is_null() => {
            return Err(wrong_type(&inner, "an array of names", other));
        }
        _ => return Err(crate::fields::missing(&inner)),
    };
    for (at, name) in allowed.iter().enumerate() {
        let path = inner.index(at);
        let Value::String(name) = name else {
            return Err(wrong_type(&path, "a string", name));
        };
        request
            .server_tools
            .push(tool_name(&path, name)?.to_string());
    }
    Ok(())
}

fn tool_choice(
    choice: &Value,
    request: &mut RequestFields,
    search: &mut Option<Wanted>,
) -> Result<ToolChoice, Problem> {
    let path = FieldPath::from("tool_choice");
    let none_declared =
        request.tools.is_empty() && request.server_tools.is_empty() && search.is_none();
    let object = match choice {
        Value::String(word) => {
            return match word.as_str() {
                "none" => Ok(ToolChoice::None),
                "auto" => Ok(ToolChoice::Auto),
                "required" if none_declared => Err(Problem::invalid(
                    "tool_choice",
                    "`tool_choice` asks for a tool call and no tools are declared",
                )),
                "required" => Ok(ToolChoice::Required),
                _ => Err(Problem::invalid(
                    "tool_choice",
                    "`tool_choice` must be `none`, `auto`, `required` or an object",
                )),
            };
        }
        Value::Object(object) => object,
        other => return Err(wrong_type(&path, "a string or an object", other)),
    };
    match text(&path, object, "type")? {
        "function" => named(&path, text(&path, object, "name")?, request),
        "mcp" => named(&path, text(&path, object, "name")?, request),
        FILE_SEARCH => searches(&path, search.is_some()),
        "allowed_tools" => allowed(&path, object, request, search),
        _ => Err(Problem::unsupported(
            "tool_choice.type",
            "`tool_choice.type` must be `function`, `file_search`, `mcp` or `allowed_tools`",
        )),
    }
}

/// A choice among some of the tools; the others are left out.
fn allowed(
    path: &FieldPath,
    object: &Map<String, Value>,
    request: &mut RequestFields,
    search: &mut Option<Wanted>,
) -> Result<ToolChoice, Problem> {
    let inner = path.key("tools");
    let tools = match object.get("tools") {
        Some(Value::Array(tools)) => tools,
        _ => return Err(crate::fields::missing(&inner)),
    };
    let (mut names, mut searching) = (Vec::with_capacity(tools.len()), false);
    for (at, tool) in tools.iter().enumerate() {
        let path = inner.index(at);
        if tool["type"] == FILE_SEARCH {
            searches(&path, search.is_some())?;
            searching = true;
            continue;
        }
        let name = tool["name"].as_str();
        let name = name.ok_or_else(|| crate::fields::missing(&path.key("name")))?;
        named(&path, name, request)?;
        names.push(name);
    }
    search.take_if(|_| !searching);
    request
        .server_tools
        .retain(|tool| names.contains(&tool.as_str()));
    request.tools.retain(&names);
    match object.get("mode").and_then(Value::as_str) {
        Some("auto") | None => Ok(ToolChoice::Auto),
        Some("required") => Ok(ToolChoice::Required),
        Some(_) => Err(Problem::invalid(
            "tool_choice.mode",
            "`tool_choice.mode` must be `auto` or `required`",
        )),
    }
}

/// The choice of the search, which must be declared.
fn searches(path: &FieldPath, declared: bool) -> Result<ToolChoice, Problem> {
    match declared {
        true => Ok(ToolChoice::Named(FILE_SEARCH.to_owned())),
        false => {
            let problem = format!("`{path}` names `file_search`, which is not among the tools");
            Err(Problem::invalid(path.to_string(), problem))
        }
    }
}

fn named(path: &FieldPath, name: &str, request: &RequestFields) -> Result<ToolChoice, Problem> {
    let known =
        request.tools.contains(name) || request.server_tools.iter().any(|tool| tool == name);
    if known {
        return Ok(ToolChoice::Named(name.to_owned()));
    }
    let name: String = name.chars().take(64).collect();
    Err(Problem::invalid(
        path.to_string(),
        format!("`{path}` names the tool `{name}`, which is not declared"),
    ))
}
