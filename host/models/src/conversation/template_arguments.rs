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
];

/// Further arguments of a chat template: bounded JSON, and none that the server sets itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TemplateArguments(JsonObject);

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
            (Ok(arguments), _) => Ok(Self(arguments)),
            (Err(error), name) => Err(TemplateArgumentError {
                name: name.unwrap_or_default(),
                problem: error.to_string(),
            }),
        }
    }

    /// The arguments in their order.
    pub fn members(&self) -> &Map<String, Value> {
        self.0.members()
    }
}
