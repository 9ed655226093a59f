//! Events of an answer: one type from the choice to the dialect.

use mortise_models::{Delta, FinishReason, TokenLogprob, Usage};

use crate::error::ServiceError;

/// Something happened in an answer. `Completed` or `Failed` comes last.
#[derive(Debug)]
pub enum Event {
    /// Tokens of a prompt, in order, if their log-probabilities were requested. All come before the first text of the
    /// choice; other choices of the prompt get none.
    Prompt {
        /// Number of the first choice that answers the prompt.
        choice: u32,
        /// Some of the tokens, behind those of earlier events.
        tokens: Vec<PromptToken>,
    },
    /// A choice grew.
    Delta {
        /// Number of the choice, from 0, over all prompts of the request.
        choice: u32,
        /// Increment.
        delta: Delta,
        /// Log-probabilities of the tokens that the text came from, if they were requested.
        logprobs: Vec<TokenLogprob>,
        /// Ids of the tokens since the last event of the choice that had some, if they were requested.
        tokens: Vec<u32>,
    },
    /// The server has run a call of one of its own tools, or refused to.
    ServerToolCall {
        /// Number of the choice.
        choice: u32,
        /// Call and result.
        call: ServerToolCall,
    },
    /// A choice is complete.
    Finished {
        /// Number of the choice.
        choice: u32,
        /// Reason.
        reason: FinishReason,
        /// Stop string of the caller that ended it, where one did and this server matched it.
        stop: Option<String>,
        /// Ids of the tokens that no delta had, if they were requested.
        tokens: Vec<u32>,
    },
    /// All choices are complete.
    Completed {
        /// Tokens that the answer took.
        usage: Usage,
    },
    /// The answer ends here, incomplete.
    Failed(ServiceError),
}

impl Event {
    /// The event with another choice number.
    pub(crate) fn renumbered(self, choice: u32) -> Self {
        match self {
            Self::Prompt { tokens, .. } => Self::Prompt { choice, tokens },
            Self::Delta {
                delta,
                logprobs,
                tokens,
                ..
            } => Self::Delta {
                choice,
                delta,
                logprobs,
                tokens,
            },
            Self::ServerToolCall { call, .. } => Self::ServerToolCall { choice, call },
            Self::Finished {
                reason,
                stop,
                tokens,
                ..
            } => Self::Finished {
                choice,
                reason,
                stop,
                tokens,
            },
            event @ (Self::Completed { .. } | Self::Failed(_)) => event,
        }
    }
}

/// Token of a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptToken {
    /// Token id.
    pub id: u32,
    /// The token as it is shown by itself.
    pub token: String,
    /// Text that it adds to the prompt: empty for a control token, and where a character is not whole yet.
    pub text: String,
    /// Log-probabilities; `None` for the first token.
    pub scores: Option<PromptScores>,
}

/// Log-probabilities of a token of a prompt, behind the tokens before it.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptScores {
    /// Log-probability of the token.
    pub logprob: f32,
    /// One more than the number of tokens that are likelier.
    pub rank: u32,
    /// Likeliest tokens, highest first: id, the token as it is shown, and its log-probability.
    pub top: Vec<(u32, String, f32)>,
}

/// Call of a tool that the server runs itself, and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerToolCall {
    /// Index among such calls of the choice, from 0.
    pub index: u32,
    /// Unique id of the call.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Arguments as the model wrote them; JSON text, if the model knows its format.
    pub arguments: String,
    /// Outcome of the call.
    pub outcome: ToolOutcome,
    /// Result, or the reason why there is none.
    pub text: String,
}

/// Outcome of a call of a tool that the server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolOutcome {
    /// The tool gave a result.
    Answered,
    /// The tool, or the schema of its arguments, refused; the model was told why.
    Refused,
    /// The tool failed or timed out; the model was told so.
    Failed,
    /// A limit of the request was reached before the call.
    NotRun,
}

impl ToolOutcome {
    /// Name of the outcome, fit for a label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::NotRun => "not_run",
        }
    }
}
