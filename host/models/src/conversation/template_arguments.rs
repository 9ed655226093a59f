//! Further arguments that a caller gives to the chat template.

use serde_json::{Map, Value};

use super::json_object::JsonObject;

/// Arguments that the server sets; a caller must not replace them.
const RESERVED: &[&str] = &[
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
    "__thinking",
];

/// Further arguments of a chat template: bounded JSON, and none that the server sets itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TemplateArguments {
    members: JsonObject,
    thinking: Option<bool>,
}

/// An argument that a caller must not give.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct TemplateArgumentError {
    /// Name of the argument.
    pub name: String,
    /// The problem.
    pub problem: String,
}

impl TemplateArguments {
    /// These arguments.
    ///
    /// # Errors
    /// When the server sets one of them itself, or one is nested too deeply.
    pub fn new(arguments: Map<String, Value>) -> Result<Self, TemplateArgumentError> {
        let reserved = arguments
            .keys()
            .find(|name| RESERVED.contains(&name.as_str()));
        if let Some(name) = reserved {
            return Err(TemplateArgumentError {
                name: name.clone(),
                problem: format!(
                    "the template argument `{name}` is set by the server; leave it out"
                ),
            });
        }
        let deep = arguments
            .iter()
            .find(|(_, value)| super::is_too_deep(value, 2))
            .map(|(name, _)| name.clone());
        match (JsonObject::new(arguments), deep) {
            (Ok(members), _) => Ok(Self {
                members,
                thinking: None,
            }),
            (Err(error), name) => Err(TemplateArgumentError {
                name: name.unwrap_or_default(),
                problem: error.to_string(),
            }),
        }
    }

    /// Arguments merged: these, and of others those whose names are not among them.
    pub fn over(&self, others: &Self) -> Self {
        let (own, others) = (self.members(), others.members());
        let further = others.iter().filter(|(name, _)| !own.contains_key(*name));
        let members = own.iter().chain(further);
        let members: Map<String, Value> = members
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        // Nothing of either is nested too deeply, so nothing of both is.
        Self {
            members: JsonObject::new(members).unwrap_or_default(),
            thinking: self.thinking,
        }
    }

    /// The arguments in their order.
    pub fn members(&self) -> &Map<String, Value> {
        self.members.members()
    }

    /// With what the request itself says of thinking, in no template's words.
    #[must_use]
    pub fn thinking(mut self, asked: Option<bool>) -> Self {
        self.thinking = asked;
        self
    }

    /// Whether the request asks for thinking, or for none.
    pub fn asks_to_think(&self) -> Option<bool> {
        self.thinking
    }
}
