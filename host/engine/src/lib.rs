//! The inference engine: continuous batching with a paged, prefix-sharing KV cache, on a thread of its
//! own.
//!
//! This crate knows tokens, blocks and logits. It does not know text, HTTP, plugins or the time of day.

mod bans;
mod beam_group;
mod beam_params;
mod beam_search;
mod block_pool;
mod cache_shares;
mod cached_prefix;
mod circuit;
mod config;
mod constraint;
mod constraint_state;
mod decision;
mod draft_model;
mod event;
mod fair_queue;
mod forward;
mod handle;
mod load;
mod outbox;
mod pace;
mod panics;
mod prefill_chunk;
mod prompt_lookup;
mod prompt_scores;
mod queue;
mod queue_time;
mod request;
mod sampler;
mod scheduler;
mod sequence;
mod speculator;
mod step_loop;
mod submit_error;
mod tenant_load;
mod waker;
mod warm_up;

pub use beam_params::{BEAMS_MAX, BeamParams, EarlyStopping};
pub use circuit::CircuitState;
pub use config::{EngineConfig, EngineError, FaultPoint, Speculation};
pub use constraint::{Constraint, ConstraintError, MaskStep, blocking_poll};
pub use event::{
    GeneratedToken, PromptLogprobs, ScoredToken, SequenceEnd, SequenceError, SequenceUsage,
    TokenEvent, TokenLogprobs, TokenStream,
};
pub use fair_queue::{FairQueue, Share, VirtualTime};
pub use forward::{DeviceLogits, ForwardPass};
pub use handle::{Engine, EngineHandle};
pub use load::EngineLoad;
pub use mortise_model::KvType;
pub use queue::{Queue, QueueBounds, QueuePlace};
pub use request::{BeamRequest, LogprobParams, SamplingParams, SequenceRequest};
pub use submit_error::SubmitError;
pub use tenant_load::{TenantLoad, sum_tenants};
