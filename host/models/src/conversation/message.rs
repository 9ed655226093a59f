//! Messages, and the conversation that they make.

use std::collections::HashSet;

use super::content::ContentPart;
use super::tool::ToolCall;
use crate::limits::MAX_MESSAGES;

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Author of the message.
    pub role: Role,
    /// Content parts; none where an assistant only called tools.
    pub content: Vec<ContentPart>,
    /// Name of the author, or of the tool.
    pub name: Option<String>,
}

impl Message {
    /// A message of one text.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self {
            role,
            content: vec![ContentPart::Text(text.into())],
            name: None,
        }
    }
}

/// Author of a message, with what only such a message has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// Instructions of the operator.
    System,
    /// Instructions of the application's developer.
    Developer,
    /// The user.
    User,
    /// The model.
    Assistant {
        /// Reasoning of that turn.
        reasoning: Option<String>,
        /// Tools that the model called, in order.
        calls: Vec<ToolCall>,
    },
    /// The result of a tool call.
    Tool {
        /// Id of the call.
        call_id: String,
    },
}

impl Role {
    /// An assistant that neither reasoned nor called tools.
    pub const ASSISTANT: Self = Self::Assistant {
        reasoning: None,
        calls: Vec::new(),
    };
}

/// Messages in an order that makes sense: at least one, and every tool result after the call that it
/// answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation(Vec<Message>);

/// Messages that make no conversation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConversationError {
    /// There is no message.
    #[error("a conversation has at least one message")]
    Empty,
    /// There are too many messages.
    #[error("a conversation has at most {MAX_MESSAGES} messages; this one has {count}")]
    TooMany {
        /// Number of messages.
        count: usize,
    },
    /// A tool result answers no call of an earlier message.
    #[error("no earlier message calls a tool with the id `{call_id}`")]
    UnknownCall {
        /// Index of the result's message.
        message: usize,
        /// Id that the result names.
        call_id: String,
    },
}

impl Conversation {
    /// A conversation of these messages.
    ///
    /// # Errors
    /// When there are none or too many, or a tool result precedes its call.
    pub fn new(messages: Vec<Message>) -> Result<Self, ConversationError> {
        match messages.len() {
            0 => return Err(ConversationError::Empty),
            1..=MAX_MESSAGES => {}
            count => return Err(ConversationError::TooMany { count }),
        }
        let mut called = HashSet::new();
        for (index, message) in messages.iter().enumerate() {
            match &message.role {
                Role::Assistant { calls, .. } => {
                    called.extend(calls.iter().map(|call| call.id.as_str()));
                }
                Role::Tool { call_id } if !called.contains(call_id.as_str()) => {
                    return Err(ConversationError::UnknownCall {
                        message: index,
                        call_id: call_id.clone(),
                    });
                }
                _ => {}
            }
        }
        Ok(Self(messages))
    }

    /// The messages in order; at least one.
    pub fn messages(&self) -> &[Message] {
        &self.0
    }

    /// Whether the last message is the assistant's.
    pub fn ends_with_assistant(&self) -> bool {
        let last = self.0.last().map(|message| &message.role);
        matches!(last, Some(Role::Assistant { .. }))
    }

    /// Append a turn of the model and the results of the server's tools, which answer its calls.
    pub fn append(&mut self, turn: Vec<Message>) {
        self.0.extend(turn);
    }
}
