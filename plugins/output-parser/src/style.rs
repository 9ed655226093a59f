//! Formats that a model writes.

use mortise_plugin_sdk::{ControlToken, Model, formats};
use serde::Deserialize;

/// Format of tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `<tool_call>\n{"name": …, "arguments": …}\n</tool_call>`
    Hermes,
    /// `{"name": …, "parameters": …}`
    Llama3Json,
}

impl Format {
    /// Mark that opens a call, or may.
    pub fn opening(self) -> &'static str {
        match self {
            Self::Hermes => "<tool_call>",
            Self::Llama3Json => "<|python_tag|>",
        }
    }

    /// Mark that closes a call.
    pub fn closing(self) -> Option<&'static str> {
        match self {
            Self::Hermes => Some("</tool_call>"),
            Self::Llama3Json => None,
        }
    }

    /// The SDK's reader of it.
    pub fn read_as(self) -> formats::Format {
        match self {
            Self::Hermes => formats::Format::Hermes,
            Self::Llama3Json => formats::Format::Llama3Json,
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
    /// Format of tool calls.
    pub format: Format,
    /// Answers may begin with a block of reasoning.
    pub reasons: bool,
    /// The model that writes them.
    pub model: Model,
}

/// Settings of the operator.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
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
    /// Formats by the settings and, where they leave it open, by the model's files.
    pub fn new(settings: &Settings, model: Model) -> Self {
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
        Self {
            format,
            reasons,
            model,
        }
    }

    /// The model's control token with this text.
    pub fn control_token(&self, text: &str) -> Option<&ControlToken> {
        control_token(&self.model, text)
    }

    /// Whether the format is written with tokens that are left out of generated text by default.
    pub fn keep_special_tokens(&self) -> bool {
        let calls = [Some(self.format.opening()), self.format.closing()];
        let reasoning = self.reasons.then_some(["<think>", "</think>"]);
        calls
            .into_iter()
            .flatten()
            .chain(reasoning.into_iter().flatten())
            .filter_map(|text| self.control_token(text))
            .any(|token| token.special)
    }
}

fn control_token<'a>(model: &'a Model, text: &str) -> Option<&'a ControlToken> {
    model.control_tokens.iter().find(|token| token.text == text)
}

fn template(model: &Model) -> &str {
    model.chat_template.as_deref().unwrap_or_default()
}

fn mentions(model: &Model, text: &str) -> bool {
    template(model).contains(text) || control_token(model, text).is_some()
}

fn detect_format(model: &Model) -> Format {
    let template = template(model);
    let hermes = template.contains("<tool_call>");
    let llama = template.contains("<|python_tag|>")
        || (template.contains("ipython") && template.contains("\"parameters\""));
    if hermes {
        Format::Hermes
    } else if llama
        || (model.architecture.starts_with("llama")
            && control_token(model, "<tool_call>").is_none()
            && control_token(model, "<|python_tag|>").is_some())
    {
        Format::Llama3Json
    } else {
        Format::Hermes
    }
}
