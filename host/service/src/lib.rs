//! The life of a request: authorize, render, encode, constrain, submit; then detokenize, stop,
//! parse. No HTTP, no tensors, no wasmtime.

mod error;
mod event;
mod request;

pub use error::ServiceError;
pub use event::{AnswerEvent, Delta, FinishReason, TokenLogprob, Usage};
pub use request::{Prompt, RequestFields};
