//! Tool declarations and `tool_choice`, the older `functions` and `function_call`, and the server's
//! tools that a request opts in to (`server_tools`, a field of our own).

use mortise_http::Problem;
use mortise_service::{
    JsonObject, KeyOrder, RequestFields, ToolChoice, ToolDeclaration, ToolDeclarations, ToolName,
    ToolsError, limits,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::fields::{FieldPath, FieldReader, TextOrTexts, WordOr, missing, words};

/// All fields about tools.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
pub(crate) struct ChatToolFields {
    tools: Option<Vec<Tool>>,
    functions: Option<Vec<Function>>,
    server_tools: Option<TextOrTexts>,
    parallel_tool_calls: Option<bool>,
    tool_choice: Option<WordOr<ChoiceObject>>,
    function_call: Option<WordOr<FunctionName>>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct Tool {
    #[serde(rename = "type")]
    kind: String,
    function: Option<Function>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct Function {
    name: String,
    description: Option<String>,
    strict: Option<bool>,
    parameters: Option<Map<String, Value>>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(expecting = "an object")]
struct ChoiceObject {
    #[serde(rename = "type")]
    kind: ChoiceKind,
    function: Option<FunctionName>,
    allowed_tools: Option<AllowedTools>,
}

words! {
    /// Type of an object in `tool_choice`.
    ChoiceKind {
        Function = "function",
        AllowedTools = "allowed_tools",
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(expecting = "an object")]
struct FunctionName {
    name: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(expecting = "an object")]
struct AllowedTools {
    mode: AllowedMode,
    tools: Vec<AllowedTool>,
}

words! {
    /// Whether one of the allowed tools must be called.
    AllowedMode {
        Auto = "auto",
        Required = "required",
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(expecting = "an object")]
#[allow(dead_code, reason = "functions are the only type of tools")]
struct AllowedTool {
    #[serde(rename = "type")]
    kind: Option<String>,
    function: FunctionName,
}

impl ChatToolFields {
    /// Write everything about tools. Returns whether the answer must use the older `function_call`
    /// shape.
    pub(crate) fn write(
        self,
        reader: &mut FieldReader,
        request: &mut RequestFields,
    ) -> Result<bool, Problem> {
        let legacy = match (self.tools, self.functions) {
            (Some(tools), functions) => {
                if functions.is_some() {
                    let why = "`tools` stands beside it and replaces it";
                    reader.unsupported(&FieldPath::from("functions"), why)?;
                }
                request.tools = declared(tools, reader)?;
                false
            }
            (None, Some(functions)) => {
                request.tools = declared_functions(functions, reader)?;
                true
            }
            (None, None) => false,
        };
        request.server_tools = server_tools(self.server_tools.unwrap_or_default())?;
        request.parallel_tool_calls = self.parallel_tool_calls;
        if let Some(choice) = self.tool_choice {
            request.tool_choice = Some(tool_choice(choice, request)?);
        }
        let older = legacy || (self.function_call.is_some() && request.tool_choice.is_none());
        if let Some(call) = self.function_call {
            write_function_call(call, legacy, reader, request)?;
        }
        if legacy {
            // The older shape has room for one call only.
            request.parallel_tool_calls = Some(false);
        }
        let field = match older {
            true => "function_call",
            false => "tool_choice",
        };
        check_choice(request, field)?;
        Ok(legacy)
    }
}

fn declared(tools: Vec<Tool>, reader: &mut FieldReader) -> Result<ToolDeclarations, Problem> {
    let list = FieldPath::from("tools");
    check_count(&list, tools.len())?;
    let mut places = Vec::with_capacity(tools.len());
    let mut declarations = Vec::with_capacity(tools.len());
    for (index, tool) in tools.into_iter().enumerate() {
        let path = list.index(index);
        if tool.kind != "function" {
            let kind = tool.kind;
            let why = format!("tools of type `{kind}` are unknown here; use `function`");
            reader.unsupported(&path.key("type"), &why)?;
            reader.left_out(&path);
            continue;
        }
        let inner = path.key("function");
        let function = tool.function.ok_or_else(|| missing(&inner))?;
        let order = KeyOrder::new(reader.keys_at(&path), reader.keys_at(&inner));
        declarations.push(declaration(&inner, function, order)?);
        places.push(path);
    }
    together(&list, &places, declarations)
}

fn declared_functions(
    functions: Vec<Function>,
    reader: &FieldReader,
) -> Result<ToolDeclarations, Problem> {
    let list = FieldPath::from("functions");
    check_count(&list, functions.len())?;
    let mut places = Vec::with_capacity(functions.len());
    let mut declarations = Vec::with_capacity(functions.len());
    for (index, function) in functions.into_iter().enumerate() {
        let path = list.index(index);
        let order = KeyOrder::new(Vec::new(), reader.keys_at(&path));
        declarations.push(declaration(&path, function, order)?);
        places.push(path);
    }
    together(&list, &places, declarations)
}

fn check_count(list: &FieldPath, count: usize) -> Result<(), Problem> {
    if count <= limits::MAX_TOOLS {
        return Ok(());
    }
    let limit = limits::MAX_TOOLS;
    Err(Problem::invalid(
        list.to_string(),
        format!("`{list}` declares {count} tools; the limit is {limit}"),
    ))
}

fn declaration(
    path: &FieldPath,
    function: Function,
    order: KeyOrder,
) -> Result<ToolDeclaration, Problem> {
    let parameters = function.parameters.map(JsonObject::new).transpose();
    Ok(ToolDeclaration {
        name: tool_name(&path.key("name"), function.name)?,
        description: function.description,
        parameters: parameters.map_err(|error| {
            let path = path.key("parameters");
            Problem::invalid(path.to_string(), format!("`{path}`: {error}"))
        })?,
        strict: function.strict,
        order,
    })
}

/// The declarations of the entries at `places`.
fn together(
    list: &FieldPath,
    places: &[FieldPath],
    declarations: Vec<ToolDeclaration>,
) -> Result<ToolDeclarations, Problem> {
    ToolDeclarations::new(declarations).map_err(|error| match error {
        ToolsError::Duplicate { index, name } => {
            let path = places.get(index).unwrap_or(list);
            Problem::invalid(
                path.to_string(),
                format!("`{path}` declares `{name}`, which an earlier entry declares too"),
            )
        }
        error @ ToolsError::TooMany { .. } => Problem::invalid(list.to_string(), error.to_string()),
    })
}

fn tool_name(path: &FieldPath, name: String) -> Result<ToolName, Problem> {
    let name = ToolName::new(name);
    name.map_err(|error| Problem::invalid(path.to_string(), format!("`{path}` {error}")))
}

/// Names of the server's tools. Which of them exist, the service knows.
fn server_tools(TextOrTexts(names): TextOrTexts) -> Result<Vec<String>, Problem> {
    let list = FieldPath::from("server_tools");
    for (index, name) in names.iter().enumerate() {
        tool_name(&list.index(index), name.clone())?;
    }
    Ok(names)
}

fn tool_choice(
    choice: WordOr<ChoiceObject>,
    request: &mut RequestFields,
) -> Result<ToolChoice, Problem> {
    let path = FieldPath::from("tool_choice");
    match choice {
        WordOr::Word(word) => match word.as_str() {
            "none" => Ok(ToolChoice::None),
            "auto" => Ok(ToolChoice::Auto),
            "required" => Ok(ToolChoice::Required),
            other => Err(Problem::invalid(
                path.to_string(),
                format!(
                    "`tool_choice` must be `none`, `auto`, `required` or an object; it is `{other}`"
                ),
            )),
        },
        WordOr::Object(object) => match object.kind {
            ChoiceKind::Function => {
                let function = object.function;
                let function = function.ok_or_else(|| missing(&path.key("function")))?;
                Ok(ToolChoice::Named(function.name))
            }
            ChoiceKind::AllowedTools => {
                let path = path.key("allowed_tools");
                let allowed = object.allowed_tools.ok_or_else(|| missing(&path))?;
                narrowed(&path, allowed, request)
            }
        },
    }
}

/// Narrow the declared tools to the allowed ones.
fn narrowed(
    path: &FieldPath,
    allowed: AllowedTools,
    request: &mut RequestFields,
) -> Result<ToolChoice, Problem> {
    let mut names = Vec::with_capacity(allowed.tools.len());
    for (index, tool) in allowed.tools.iter().enumerate() {
        let name = tool.function.name.as_str();
        if !is_declared(request, name) {
            return Err(undeclared(&path.key("tools").index(index), name));
        }
        names.push(name);
    }
    request
        .server_tools
        .retain(|tool| names.contains(&tool.as_str()));
    request.tools.retain(&names);
    Ok(match allowed.mode {
        AllowedMode::Auto => ToolChoice::Auto,
        AllowedMode::Required => ToolChoice::Required,
    })
}

fn write_function_call(
    call: WordOr<FunctionName>,
    legacy: bool,
    reader: &mut FieldReader,
    request: &mut RequestFields,
) -> Result<(), Problem> {
    let path = FieldPath::from("function_call");
    if !legacy && !request.tools.is_empty() {
        return reader.unsupported(&path, "`tools` is in use; give `tool_choice`");
    }
    request.tool_choice = Some(match call {
        WordOr::Word(word) if word == "none" => ToolChoice::None,
        WordOr::Word(word) if word == "auto" => ToolChoice::Auto,
        WordOr::Word(word) => {
            return Err(Problem::invalid(
                path.to_string(),
                format!("`function_call` must be `none`, `auto` or an object; it is `{word}`"),
            ));
        }
        WordOr::Object(function) => ToolChoice::Named(function.name),
    });
    Ok(())
}

/// A choice may name only what was declared.
fn check_choice(request: &RequestFields, param: &str) -> Result<(), Problem> {
    match &request.tool_choice {
        Some(ToolChoice::Required)
            if request.tools.is_empty() && request.server_tools.is_empty() =>
        {
            Err(Problem::invalid(
                param,
                format!("`{param}` asks for a tool call and no tools are declared"),
            ))
        }
        Some(ToolChoice::Named(name)) if !is_declared(request, name) => {
            Err(undeclared(&FieldPath::from(param), name))
        }
        _ => Ok(()),
    }
}

fn is_declared(request: &RequestFields, name: &str) -> bool {
    request.tools.contains(name) || request.server_tools.iter().any(|tool| tool == name)
}

fn undeclared(path: &FieldPath, name: &str) -> Problem {
    Problem::invalid(
        path.to_string(),
        format!("`{path}` names the tool `{name}`, which is not declared"),
    )
}
