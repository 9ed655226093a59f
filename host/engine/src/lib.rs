//! Continuous batching: many sequences share each forward pass, on a thread of their own.
//!
//! This room knows tokens, blocks and logits. It does not know text, HTTP, plugins or the time of
//! day.

mod beam_group;
mod beam_search;
mod block_pool;
mod cached_prefix;
mod config;
mod constraint;
mod doorbell;
mod draft;
mod draft_model;
mod drafter;
mod event;
mod forward;
mod guide;
mod handle;
mod load;
mod outbox;
mod prefill_chunk;
mod queue;
mod queue_time;
mod request;
mod sampler;
mod scheduler;
mod sequence;
mod shares;
mod step_loop;

pub use config::{EngineConfig, EngineError, Speculation};
pub use constraint::{Constraint, ConstraintError, MaskStep};
pub use event::{
    FinishReason, GeneratedToken, SequenceError, SequenceUsage, TokenEvent, TokenLogprobs,
    TokenStream,
};
pub use forward::{ForwardPass, RemoteLogits};
pub use handle::{Engine, EngineHandle};
pub use load::EngineLoad;
pub use mortise_model::KvType;
pub use request::{
    BEAMS_MAX, BeamParams, BeamRequest, EarlyStopping, LogprobParams, SamplingParams,
    SequenceRequest,
};
pub use shares::Share;

/// Why a sequence was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The request breaks a rule of [`SequenceRequest`].
    #[error("{0}")]
    Invalid(String),
    /// The prompt does not fit the context.
    #[error("the prompt has {prompt} tokens and the context holds {context}")]
    ContextLength {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens that the context holds, prompt and output together.
        context: usize,
    },
    /// Too many sequences are waiting.
    #[error("the queue holds {limit} sequences and is full")]
    QueueFull {
        /// Configured length of the queue.
        limit: usize,
    },
    /// The sequences that wait have too many tokens.
    #[error("the queue holds prompts of {limit} tokens and is full")]
    QueuedTokens {
        /// Configured bound of the tokens in the queue.
        limit: usize,
    },
    /// One tenant's sequences crowd the queue: what is free is for others.
    #[error(
        "{waiting} of your sequences wait already, and what is left of the queue is for others"
    )]
    TenantQueue {
        /// The tenant's sequences that wait.
        waiting: usize,
    },
    /// The engine is stopping or has stopped.
    #[error("the engine has stopped")]
    Stopped,
}
