//! Formats that a model writes.

use mortise_plugin_sdk::formats::{Described, Format, Sign, Spec, Writing};
use mortise_plugin_sdk::output_parser::Marks;
use mortise_plugin_sdk::{ControlToken, Model};
use serde::Deserialize;

use crate::derive;
use crate::response::{self, Reader};

/// Marks of reasoning that models of every family may have.
const THINK: (&str, &str) = ("<think>", "</think>");

/// The formats of one model.
#[derive(Debug, Clone)]
pub struct Style {
    /// Format of tool calls.
    pub format: Format,
    /// Reason for which that format was chosen.
    pub reason: Reason,
    /// Answers may begin with a block of reasoning.
    pub reasons: bool,
    /// Marks around reasoning.
    pub thought: (&'static str, &'static str),
    /// The model that writes them.
    pub model: Model,
    /// Reader of the response template in the model's files.
    pub response: Option<&'static Reader>,
    /// Reason for which that template is not followed.
    pub refused: Option<String>,
}

/// Reason for which a format was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The operator's settings name the format.
    Settings,
    /// The model's files describe the format in a response template.
    Response,
    /// The model's files have a sign of the format.
    Files(Sign),
    /// The model's chat template writes the format, and no list has it.
    Derived,
    /// No file tells of a format, and most models can write this one if they are shown it.
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

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
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
            response: None,
            refused: None,
        }
    }

    /// Formats as [`Self::new`] finds them; where the settings leave both the format and reasoning open, by the
    /// response template of the model's files, which tells better than marks.
    pub fn of_files(settings: &Settings, model: Model, template: Option<&str>) -> Self {
        let style = Self::new(settings, model);
        let open = matches!(settings.format, FormatSetting::Auto)
            && settings.reasoning == ReasoningSetting::Auto;
        match template.filter(|_| open) {
            Some(template) => style.with_response(template),
            None => style,
        }
    }

    fn with_response(mut self, template: &str) -> Self {
        let prompts = self.model.chat_template.as_deref().unwrap_or_default();
        let tokens = self.model.control_tokens.iter();
        let tokens = tokens.filter(|token| token.special && prompts.contains(&token.text));
        let reader = match Reader::new(template, tokens.map(|token| token.text.clone())) {
            Ok(reader) => &*Box::leak(Box::new(reader)),
            Err(problem) => {
                self.refused = Some(problem);
                return self;
            }
        };
        let kept = |(open, close): (String, String)| (derive::kept(&open), derive::kept(&close));
        let writing = self.format.spec().writing;
        let agrees = writing != Writing::Free && derive::agree(&self.model, self.format, reader);
        let opens = Some(reader.calls()).filter(|mark| !mark.is_empty());
        let opens: Vec<&'static str> = opens.iter().map(|mark| derive::kept(mark)).collect();
        let (thought, opens) = (kept(reader.reasoning()), opens.leak());
        self.format = Format::Described(derive::leaked(Described {
            spec: Spec {
                name: response::NAME,
                about: "as a file of the model describes its answers",
                signs: &[],
                architectures: &[],
                reasoning: thought,
                opens,
                answer: kept(reader.content()),
                framed: true,
                writing: if agrees { writing } else { Writing::Free },
            },
            call: derive::NO_JSON,
        }));
        self.reasons = !thought.1.is_empty();
        self.thought = if self.reasons { thought } else { THINK };
        self.reason = Reason::Response;
        self.response = Some(reader);
        self
    }

    /// The model's control token with this text.
    pub fn control_token(&self, text: &str) -> Option<&ControlToken> {
        control_token(&self.model, text)
    }

    /// Whether the format is written with tokens that are left out of generated text by default.
    pub fn keep_special_tokens(&self) -> bool {
        let reasoning = self.reasons.then_some([self.thought.0, self.thought.1]);
        if let Some(reader) = self.response {
            let mut tokens = self.model.control_tokens.iter();
            return tokens.any(|token| {
                token.special && !token.text.is_empty() && reader.mentions(&token.text)
            });
        }
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

    /// Texts around a block of reasoning. A model that nobody knows to reason opens no block itself.
    pub fn reasoning(&self) -> Option<Marks> {
        let (open, close) = self.thought;
        (!close.is_empty()).then(|| Marks {
            open: if self.reasons { open } else { "" }.to_owned(),
            close: close.to_owned(),
        })
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
