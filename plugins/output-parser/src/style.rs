//! Which formats a model writes, and what a request allows.

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Bytes of a tool's name.
const MAX_TOOL_NAME_BYTES: usize = 256;

/// Why a request or the settings were refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct SetupError(pub String);

/// A control token of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlToken {
    /// Token id.
    pub id: u32,
    /// Its text.
    pub text: String,
    /// Left out of generated text.
    pub special: bool,
}

/// What the model's files say.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// `model_type` or GGUF architecture.
    pub architecture: String,
    /// The Jinja source of the chat template.
    pub chat_template: String,
    /// Every control token.
    pub control_tokens: Vec<ControlToken>,
}

impl Model {
    /// The control token with this text.
    pub fn control_token(&self, text: &str) -> Option<&ControlToken> {
        self.control_tokens.iter().find(|token| token.text == text)
    }
}

/// How tool calls are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `<tool_call>\n{"name": …, "arguments": …}\n</tool_call>`
    Hermes,
    /// `{"name": …, "parameters": …}`
    Llama3Json,
}

impl Format {
    /// What opens a call, or may.
    pub fn opening(self) -> &'static str {
        match self {
            Self::Hermes => "<tool_call>",
            Self::Llama3Json => "<|python_tag|>",
        }
    }

    /// What closes a call.
    pub fn closing(self) -> Option<&'static str> {
        match self {
            Self::Hermes => Some("</tool_call>"),
            Self::Llama3Json => None,
        }
    }

    /// The key of the arguments.
    pub fn arguments_key(self) -> &'static str {
        match self {
            Self::Hermes => "arguments",
            Self::Llama3Json => "parameters",
        }
    }
}

/// The formats of one model.
#[derive(Debug, Clone)]
pub struct Style {
    /// How tool calls are written.
    pub format: Format,
    /// Answers may begin with a block of reasoning.
    pub reasons: bool,
    /// The model that writes them.
    pub model: Model,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    format: FormatSetting,
    reasoning: ReasoningSetting,
}

#[derive(Debug, Default, Deserialize)]
enum FormatSetting {
    #[default]
    #[serde(rename = "auto")]
    Auto,
    #[serde(rename = "hermes")]
    Hermes,
    #[serde(rename = "llama3-json")]
    Llama3Json,
}

#[derive(Debug, Default, Deserialize)]
enum ReasoningSetting {
    #[default]
    #[serde(rename = "auto")]
    Auto,
    #[serde(rename = "think")]
    Think,
    #[serde(rename = "none")]
    None,
}

impl Style {
    /// Read the settings; what they leave open is decided by the model's files.
    pub fn new(settings: &str, model: Model) -> Result<Self, SetupError> {
        let settings: Settings = serde_json::from_str(settings)
            .map_err(|error| SetupError(format!("settings of the output parser: {error}")))?;
        let format = match settings.format {
            FormatSetting::Auto => detect_format(&model),
            FormatSetting::Hermes => Format::Hermes,
            FormatSetting::Llama3Json => Format::Llama3Json,
        };
        let reasons = match settings.reasoning {
            ReasoningSetting::Auto => mentions(&model, "<think>") || mentions(&model, "</think>"),
            ReasoningSetting::Think => true,
            ReasoningSetting::None => false,
        };
        Ok(Self {
            format,
            reasons,
            model,
        })
    }

    /// Whether the format is written with tokens that are left out of generated text by default.
    pub fn keep_special_tokens(&self) -> bool {
        let calls = [Some(self.format.opening()), self.format.closing()];
        let reasoning = self.reasons.then_some(["<think>", "</think>"]);
        calls
            .into_iter()
            .flatten()
            .chain(reasoning.into_iter().flatten())
            .filter_map(|text| self.model.control_token(text))
            .any(|token| token.special)
    }
}

fn mentions(model: &Model, text: &str) -> bool {
    model.chat_template.contains(text) || model.control_token(text).is_some()
}

fn detect_format(model: &Model) -> Format {
    let template = &model.chat_template;
    let hermes = template.contains("<tool_call>");
    let llama = template.contains("<|python_tag|>")
        || (template.contains("ipython") && template.contains("\"parameters\""));
    if hermes {
        Format::Hermes
    } else if llama
        || (model.architecture.starts_with("llama")
            && model.control_token("<tool_call>").is_none()
            && model.control_token("<|python_tag|>").is_some())
    {
        Format::Llama3Json
    } else {
        Format::Hermes
    }
}

/// Which tools the model may, must or must not call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolChoice {
    /// None.
    None,
    /// The model decides.
    Auto,
    /// At least one call.
    Required,
    /// A call of this tool.
    Named(String),
}

/// A declared tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// JSON Schema of its arguments, an object's.
    pub parameters: Value,
}

/// What a request allows.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// Tools that may be called: none if calls are not allowed, one if it is named.
    pub tools: Vec<Tool>,
    /// A call must be made.
    pub forced: bool,
    /// One answer may hold several calls.
    pub parallel: bool,
    /// The prompt ended inside a reasoning block.
    pub opens_reasoning: bool,
}

impl Setup {
    /// Check `output-parser.setup`.
    pub fn new(
        tools: &str,
        choice: &ToolChoice,
        parallel: bool,
        opens_reasoning: bool,
    ) -> Result<Self, SetupError> {
        let mut tools = read_tools(tools)?;
        match choice {
            ToolChoice::None => tools.clear(),
            ToolChoice::Auto => {}
            ToolChoice::Required if tools.is_empty() => {
                return Err(SetupError(
                    "`tool_choice` is `required`, but `tools` is empty".to_owned(),
                ));
            }
            ToolChoice::Required => {}
            ToolChoice::Named(name) => {
                tools.retain(|tool| tool.name == *name);
                if tools.is_empty() {
                    return Err(SetupError(format!(
                        "`tool_choice` names the tool `{name}`, which `tools` does not declare"
                    )));
                }
            }
        }
        Ok(Self {
            tools,
            forced: matches!(choice, ToolChoice::Required | ToolChoice::Named(_)),
            parallel,
            opens_reasoning,
        })
    }
}

fn read_tools(text: &str) -> Result<Vec<Tool>, SetupError> {
    let declarations: Vec<Value> = serde_json::from_str(text)
        .map_err(|error| SetupError(format!("`tools` must be a JSON array: {error}")))?;
    let mut tools: Vec<Tool> = Vec::with_capacity(declarations.len());
    for (index, declaration) in declarations.into_iter().enumerate() {
        let tool = read_tool(declaration)
            .map_err(|problem| SetupError(format!("`tools[{index}].function{problem}")))?;
        if tools.iter().any(|earlier| earlier.name == tool.name) {
            return Err(SetupError(format!(
                "`tools[{index}].function.name` is `{}`, which an earlier tool has; names must \
                 differ",
                tool.name
            )));
        }
        tools.push(tool);
    }
    Ok(tools)
}

fn read_tool(mut declaration: Value) -> Result<Tool, String> {
    let Some(Value::Object(function)) = declaration.get_mut("function") else {
        return Err("` must be an object".to_owned());
    };
    let name = match function.get("name") {
        Some(Value::String(name))
            if (1..=MAX_TOOL_NAME_BYTES).contains(&name.len())
                && !name.contains(|c: char| c.is_control()) =>
        {
            name.clone()
        }
        _ => {
            return Err(format!(
                ".name` must be a string of 1 to {MAX_TOOL_NAME_BYTES} bytes"
            ));
        }
    };
    let parameters = match function.remove("parameters") {
        None | Some(Value::Null) => json!({
            "type": "object",
            "properties": {},
            "additionalProperties": false,
        }),
        Some(Value::Object(mut schema)) => {
            if !schema.contains_key("type") {
                let mut typed = Map::from_iter([("type".to_owned(), json!("object"))]);
                typed.append(&mut schema);
                schema = typed;
            }
            Value::Object(schema)
        }
        Some(_) => return Err(".parameters` must be a JSON Schema object".to_owned()),
    };
    Ok(Tool { name, parameters })
}
