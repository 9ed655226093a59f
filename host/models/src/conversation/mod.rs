//! Conversations in the service's own types. Dialects translate wire JSON into them and report
//! errors under the wire's paths; the service relies on the invariants that the constructors hold.

mod content;
mod json_object;
mod key_order;
mod message;
mod template_arguments;
pub mod template_json;
#[cfg(test)]
mod tests;
mod tool;

pub use content::{Audio, ContentPart, Detail, Image, ImageSource, Modality, PartOrigin};
pub use json_object::is_too_deep;
pub use json_object::{JsonObject, TooDeep};
pub use key_order::KeyOrder;
pub use message::{Conversation, ConversationError, Message, Role};
pub use template_arguments::{TemplateArgumentError, TemplateArguments};
pub use tool::{BadToolName, ToolCall, ToolDeclaration, ToolDeclarations, ToolName, ToolsError};
