//! Formats that a model writes.

use mortise_plugin_sdk::formats::{Format, Sign};
use mortise_plugin_sdk::{ControlToken, Model};
use serde::Deserialize;

use crate::derive;

/// Marks of reasoning that models of every family may have.
const THINK: (&str, &str) = ("<think>", "</think>");

/// The formats of one model.
#[derive(Debug, Clone)]
pub struct Style {
    /// Format of tool calls.
    pub format: Format,
    /// Why it is that format.
    pub reason: Reason,
    /// Answers may begin with a block of reasoning.
    pub reasons: bool,
    /// Marks around reasoning.
    pub thought: (&'static str, &'static str),
    /// The model that writes them.
    pub model: Model,
}

/// Why a format was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The operator names it.
    Settings,
    /// The model's files tell of it.
    Files(Sign),
    /// The model's chat template writes it, and nobody has listed it.
    Derived,
    /// Nothing tells of any, and most models can write this one if they are shown it.
    Nothing,
}

/// Settings of the operator.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    format: FormatSetting,
    reasoning: ReasoningSetting,
}

#[derive(Debug, Default, Deserialize)]
#[serde(try_from = "String")]
enum FormatSetting {
    #[default]
    Auto,
    Named(Format),
}

impl TryFrom<String> for FormatSetting {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        match (name.as_str(), Format::named(&name)) {
            ("auto", _) => Ok(Self::Auto),
            (_, Some(format)) => Ok(Self::Named(format)),
            (_, None) => {
                let names: Vec<&str> = Format::all().map(Format::name).collect();
                Err(format!(
                    "`{name}` is no format; the formats are auto, {}",
                    names.join(", ")
                ))
            }
        }
    }
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
        let (format, reason) = match settings.format {
            FormatSetting::Named(format) => (format, Reason::Settings),
            FormatSetting::Auto => match Format::of_model(&model) {
                Some((format, sign)) => (format, Reason::Files(sign)),
                None => match derive::derived(&model) {
                    Some(format) => (format, Reason::Derived),
                    None => (Format::Hermes, Reason::Nothing),
                },
            },
        };
        let own = format.spec().reasoning;
        let has = |marks: (&str, &str)| mentions(&model, marks.0) || mentions(&model, marks.1);
        let thought = if has(own) || !has(THINK) { own } else { THINK };
        let reasons = match settings.reasoning {
            ReasoningSetting::Auto => has(thought) || format.spec().framed,
            ReasoningSetting::Think => true,
            ReasoningSetting::None => false,
        };
        Self {
            format,
            reason,
            reasons,
            thought,
            model,
        }
    }

    /// The model's control token with this text.
    pub fn control_token(&self, text: &str) -> Option<&ControlToken> {
        control_token(&self.model, text)
    }

    /// Whether the format is written with tokens that are left out of generated text by default.
    pub fn keep_special_tokens(&self) -> bool {
        let reasoning = self.reasons.then_some([self.thought.0, self.thought.1]);
        let marks: Vec<&str> = (self.format.spec().marks())
            .chain(reasoning.into_iter().flatten())
            .collect();
        let mut special = self
            .model
            .control_tokens
            .iter()
            .filter(|token| token.special && !token.text.is_empty());
        special.any(|token| marks.iter().any(|mark| mark.contains(&token.text)))
    }

    /// Whether the chat template writes about tools, and nothing tells in which format it wants calls.
    pub fn is_unknown(&self) -> bool {
        let template = self.model.chat_template.as_deref().unwrap_or_default();
        self.reason == Reason::Nothing && template.contains("tool")
    }
}

fn control_token<'a>(model: &'a Model, text: &str) -> Option<&'a ControlToken> {
    model.control_tokens.iter().find(|token| token.text == text)
}

fn mentions(model: &Model, text: &str) -> bool {
    let template = model.chat_template.as_deref().unwrap_or_default();
    template.contains(text) || control_token(model, text).is_some()
}
