//! Tool declarations and `tool_choice`.

use mortise_http::Problem;
use mortise_service::{
    JsonObject, KeyOrder, RequestFields, ToolChoice, ToolDeclaration, ToolDeclarations, ToolName,
    ToolsError,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::blocks::CacheControl;
use crate::fields::{FieldPath, FieldReader, TextOrTexts, missing, words};

/// All fields about tools.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct AnthropicToolFields {
    tools: Option<Vec<Tool>>,
    tool_choice: Option<Choice>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
#[allow(
    dead_code,
    reason = "hints about caching and streaming change nothing here"
)]
struct Tool {
    #[serde(rename = "type")]
    kind: Option<String>,
    name: Option<String>,
    description: Option<String>,
    input_schema: Option<Map<String, Value>>,
    strict: Option<bool>,
    cache_control: Option<CacheControl>,
    /// Arguments are always streamed as they are generated.
    eager_input_streaming: Option<bool>,
    defer_loading: Option<bool>,
    allowed_callers: Option<TextOrTexts>,
    input_examples: Option<Vec<Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct Choice {
    #[serde(rename = "type")]
    kind: ChoiceKind,
    name: Option<String>,
    disable_parallel_tool_use: Option<bool>,
}

words! {
    /// Type of a tool choice.
    ChoiceKind {
        Auto = "auto",
        Any = "any",
        Tool = "tool",
        None = "none",
    }
}

impl AnthropicToolFields {
    /// Write everything about tools.
    pub(super) fn write(
        self,
        reader: &mut FieldReader,
        request: &mut RequestFields,
    ) -> Result<(), Problem> {
        request.tools = declared(self.tools.unwrap_or_default(), reader)?;
        let Some(choice) = self.tool_choice else {
            return Ok(());
        };
        let path = FieldPath::from("tool_choice");
        request.parallel_tool_calls = choice.disable_parallel_tool_use.map(|disabled| !disabled);
        request.tool_choice = Some(match choice.kind {
            ChoiceKind::Auto => ToolChoice::Auto,
            ChoiceKind::None => ToolChoice::None,
            ChoiceKind::Any if request.tools.is_empty() => {
                let text = "`tool_choice` asks for a tool call and no tools are declared";
                return Err(Problem::invalid("tool_choice", text));
            }
            ChoiceKind::Any => ToolChoice::Required,
            ChoiceKind::Tool => {
                let path = path.key("name");
                let name = choice.name.ok_or_else(|| missing(&path))?;
                if !request.tools.contains(&name) {
                    let text = format!("`{path}` names the tool `{name}`, which is not declared");
                    return Err(Problem::invalid(path.to_string(), text));
                }
                ToolChoice::Named(name)
            }
        });
        Ok(())
    }
}

fn declared(tools: Vec<Tool>, reader: &mut FieldReader) -> Result<ToolDeclarations, Problem> {
    let list = FieldPath::from("tools");
    let mut declarations = Vec::with_capacity(tools.len());
    let mut places = Vec::with_capacity(tools.len());
    for (at, tool) in tools.into_iter().enumerate() {
        let path = list.index(at);
        if let Some(kind) = tool.kind.as_deref().filter(|kind| *kind != "custom") {
            let why = format!(
                "`{kind}` is a tool of Anthropic's, which this server does not have; declare a tool \
                 with `name` and `input_schema`"
            );
            reader.unsupported(&path.key("type"), &why)?;
            continue;
        }
        check_options(&path, &tool, reader)?;
        declarations.push(declaration(&path, tool)?);
        places.push(path);
    }
    ToolDeclarations::new(declarations).map_err(|error| match error {
        ToolsError::Duplicate { index, name } => {
            let path = places.get(index).unwrap_or(&list);
            Problem::invalid(
                path.to_string(),
                format!("`{path}` declares `{name}`, which an earlier entry declares too"),
            )
        }
        error @ ToolsError::TooMany { .. } => Problem::invalid("tools", error.to_string()),
    })
}

/// Options of a tool that some values of are honoured.
fn check_options(path: &FieldPath, tool: &Tool, reader: &mut FieldReader) -> Result<(), Problem> {
    if tool.defer_loading.unwrap_or(false) {
        let why = "this server has no tool search: every tool is shown to the model";
        reader.unsupported(&path.key("defer_loading"), why)?;
    }
    let callers = tool.allowed_callers.iter().flat_map(|callers| &callers.0);
    if callers.into_iter().any(|caller| caller != "direct") {
        let why = "this server runs no code that could call tools; only `direct` is known";
        reader.unsupported(&path.key("allowed_callers"), why)?;
    }
    Ok(())
}

fn declaration(path: &FieldPath, tool: Tool) -> Result<ToolDeclaration, Problem> {
    let inner = path.key("name");
    let name = tool.name.ok_or_else(|| missing(&inner))?;
    let name = ToolName::new(name)
        .map_err(|error| Problem::invalid(inner.to_string(), format!("`{inner}` {error}")))?;
    let inner = path.key("input_schema");
    let mut schema = tool.input_schema.ok_or_else(|| missing(&inner))?;
    // Templates show the schema, so that examples in it reach the model.
    if let Some(examples) = tool.input_examples.filter(|examples| !examples.is_empty()) {
        schema.entry("examples").or_insert(Value::Array(examples));
    }
    let parameters = JsonObject::new(schema)
        .map_err(|error| Problem::invalid(inner.to_string(), format!("`{inner}`: {error}")))?;
    Ok(ToolDeclaration {
        name,
        description: tool.description,
        parameters: Some(parameters),
        strict: tool.strict,
        order: KeyOrder::default(),
    })
}
