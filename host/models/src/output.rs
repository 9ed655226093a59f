//! Output of a model, whatever runtime generates it and whatever dialect writes it.

use std::ops::AddAssign;

/// Increment of a choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// Text for the user.
    Content(String),
    /// Text of a reasoning block.
    Reasoning(String),
    /// Start of a tool call.
    CallBegin {
        /// Index of the call in its choice, from 0.
        index: u32,
        /// Unique id of the call.
        id: String,
        /// Name of the tool.
        name: String,
    },
    /// More arguments of a tool call.
    CallArguments {
        /// Index of the call.
        index: u32,
        /// JSON text to append.
        delta: String,
    },
}

/// Log-probability of one token.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprob {
    /// Text of the token, with U+FFFD where its bytes are not UTF-8.
    pub token: String,
    /// Bytes of the token.
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// Most likely tokens: text, bytes, log-probability.
    pub top: Vec<(String, Vec<u8>, f32)>,
}

/// Reason for which a choice is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended its answer, or a stop string matched.
    Stop,
    /// A limit was reached: of tokens, or of rounds of tools.
    Length,
    /// The model called tools.
    ToolCalls,
    /// A filter of the model's server held content back.
    ContentFilter,
}

impl FinishReason {
    /// Name of the reason, fit for a label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
            Self::ContentFilter => "content_filter",
        }
    }
}

/// Tokens that an answer took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt, counted once for all choices; where tools were run, also those of the
    /// prompts that the answer was continued from.
    pub prompt_tokens: u32,
    /// Prompt tokens that were found in the prefix cache.
    pub cached_tokens: u32,
    /// Tokens generated, over all choices.
    pub completion_tokens: u32,
    /// Generated tokens that belong to reasoning blocks.
    pub reasoning_tokens: u32,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        let add = |to: &mut u32, more: u32| *to = to.saturating_add(more);
        add(&mut self.prompt_tokens, other.prompt_tokens);
        add(&mut self.cached_tokens, other.cached_tokens);
        add(&mut self.completion_tokens, other.completion_tokens);
        add(&mut self.reasoning_tokens, other.reasoning_tokens);
    }
}
