//! The dialects in which clients speak to the server: one folder each, with its routes, its wire shapes and
//! its own way of writing an error. What they share lies beside them.
//!
//! No dialect knows another, and the service knows none.

pub mod anthropic;
pub mod ollama;
pub mod openai;
pub mod rerank;

mod answering;
mod call;
mod embed;
mod fields;
mod ignored;
mod limits;
mod problem;
mod receive;
mod start;
mod state;
mod stream;
mod unsupported;

pub use state::ApiState;
pub use unsupported::Unsupported;
