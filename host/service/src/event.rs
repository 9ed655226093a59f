//! What an answer is made of, whatever the dialect.

use crate::error::ServiceError;

/// Something happened in an answer.
#[derive(Debug)]
pub enum AnswerEvent {
    /// A choice grew.
    Delta {
        /// Which choice, from 0.
        choice: u32,
        /// By what.
        delta: Delta,
        /// Tokens that this event's text came from, if log-probabilities were asked for.
        logprobs: Vec<TokenLogprob>,
    },
    /// A choice is complete.
    Finished {
        /// Which choice.
        choice: u32,
        /// Why.
        reason: FinishReason,
    },
    /// All choices are complete. The last event of a good answer.
    Completed {
        /// What it took.
        usage: Usage,
    },
    /// The answer ends here, unfinished.
    Failed(ServiceError),
}

/// By what a choice grew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// Text for the user.
    Content(String),
    /// Text of the reasoning block.
    Reasoning(String),
    /// A tool call began.
    CallBegin {
        /// Which call of the choice, from 0.
        index: u32,
        /// Unique id of the call.
        id: String,
        /// Name of the tool.
        name: String,
    },
    /// More arguments, JSON text to append.
    CallArguments {
        /// Which call.
        index: u32,
        /// JSON text.
        delta: String,
    },
    /// The server has dealt with a call of one of its own tools.
    ServerToolCall(ServerToolCall),
}

/// A call of a tool that the server runs itself, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerToolCall {
    /// Which such call of the choice, from 0.
    pub index: u32,
    /// Unique id of the call.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// What the model gave it; JSON text, if the model knows its format.
    pub arguments: String,
    /// What came of it.
    pub outcome: ToolOutcome,
    /// The result, or why there is none.
    pub text: String,
}

/// What came of a call of a tool that the server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolOutcome {
    /// The tool gave a result.
    Answered,
    /// The tool, or the schema of its arguments, refused; the model was told why.
    Refused,
    /// The tool broke down or took too long; the model was told so.
    Failed,
    /// A limit of the request was reached before the call.
    NotRun,
}

impl ToolOutcome {
    /// A short name, fit for a label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::NotRun => "not_run",
        }
    }
}

/// Log-probability of one token, as OpenAI reports it.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprob {
    /// The token's text, with U+FFFD where its bytes are not UTF-8.
    pub token: String,
    /// The token's bytes.
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// The most likely tokens: text, bytes, log-probability.
    pub top: Vec<(String, Vec<u8>, f32)>,
}

/// Why a choice is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended its answer, or a stop string matched.
    Stop,
    /// A limit was reached: of tokens, or of rounds of tools.
    Length,
    /// The model called tools.
    ToolCalls,
}

/// Tokens that an answer took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt, counted once for all choices; where tools were run, also those of the
    /// prompts that the answer was continued from.
    pub prompt_tokens: u32,
    /// Of those, cached.
    pub cached_tokens: u32,
    /// Tokens generated over all choices.
    pub completion_tokens: u32,
    /// Of those, tokens of reasoning blocks.
    pub reasoning_tokens: u32,
}
