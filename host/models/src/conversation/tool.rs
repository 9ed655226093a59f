//! Tool declarations and tool calls.

use std::collections::HashMap;
use std::fmt;

use super::json_object::JsonObject;
use super::key_order::KeyOrder;
use crate::limits::{MAX_TOOL_NAME_BYTES, MAX_TOOLS};

/// Name of a tool: 1 to [`MAX_TOOL_NAME_BYTES`] ASCII letters, digits, `_` or `-`. Names are printed in
/// prompts, grammars and logs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ToolName(String);

/// A text that is no name of a tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be 1 to {MAX_TOOL_NAME_BYTES} letters, digits, `_` or `-`; it is {0:?}")]
pub struct BadToolName(pub String);

impl ToolName {
    /// A tool of this name.
    ///
    /// # Errors
    /// When the text is empty, too long, or has other characters.
    pub fn new(name: impl Into<String>) -> Result<Self, BadToolName> {
        let name = name.into();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let good = (1..=MAX_TOOL_NAME_BYTES).contains(&name.len()) && name.bytes().all(plain);
        match good {
            true => Ok(Self(name)),
            false => Err(BadToolName(name)),
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Declaration of a tool that the model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDeclaration {
    /// Name, by which it is called.
    pub name: ToolName,
    /// Purpose, in words for the model.
    pub description: Option<String>,
    /// JSON Schema of the arguments; any object if absent.
    pub parameters: Option<JsonObject>,
    /// Whether arguments must match the schema exactly.
    pub strict: Option<bool>,
    /// Order in which templates print the keys.
    pub order: KeyOrder,
}

impl ToolDeclaration {
    /// A tool of which only the name is known.
    pub fn new(name: ToolName) -> Self {
        Self {
            name,
            description: None,
            parameters: None,
            strict: None,
            order: KeyOrder::default(),
        }
    }
}

/// Tool declarations of one request: at most [`MAX_TOOLS`], each name once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolDeclarations(Vec<ToolDeclaration>);

/// Declarations that do not go together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolsError {
    /// There are too many.
    #[error("at most {MAX_TOOLS} tools can be declared; these are {count}")]
    TooMany {
        /// Number of declarations.
        count: usize,
    },
    /// Two declarations have one name.
    #[error("the function `{name}` is declared twice; rename one of them")]
    Duplicate {
        /// Index of the second declaration.
        index: usize,
        /// The name.
        name: ToolName,
    },
}

impl ToolDeclarations {
    /// These declarations together.
    ///
    /// # Errors
    /// When there are too many, or two of one name.
    pub fn new(declarations: Vec<ToolDeclaration>) -> Result<Self, ToolsError> {
        if declarations.len() > MAX_TOOLS {
            return Err(ToolsError::TooMany {
                count: declarations.len(),
            });
        }
        let mut seen = HashMap::new();
        for (index, declaration) in declarations.iter().enumerate() {
            if seen.insert(&declaration.name, index).is_some() {
                return Err(ToolsError::Duplicate {
                    index,
                    name: declaration.name.clone(),
                });
            }
        }
        Ok(Self(declarations))
    }

    /// The declarations in order.
    pub fn declarations(&self) -> &[ToolDeclaration] {
        &self.0
    }

    /// Names of the tools in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|declaration| declaration.name.as_str())
    }

    /// Whether no tool is declared.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a tool of this name is declared.
    pub fn contains(&self, name: &str) -> bool {
        self.names().any(|declared| declared == name)
    }

    /// Keep the tools of these names only.
    pub fn retain(&mut self, names: &[&str]) {
        self.0.retain(|tool| names.contains(&tool.name.as_str()));
    }
}

/// A tool call of an earlier turn, as the model wrote it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// Id, which the result names.
    pub id: String,
    /// Name of the tool; models also call tools that nobody declared.
    pub name: String,
    /// Arguments as JSON text; models also write text that is not JSON.
    pub arguments: String,
    /// Order in which templates print the keys.
    pub order: KeyOrder,
}
