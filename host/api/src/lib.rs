//! The dialects in which clients speak to the server: one folder each, with its routes, its wire shapes and
//! its own way of writing an error. What they share lies beside them.
//!
//! No dialect knows another, and the service knows none.

pub mod ollama;
pub mod openai;

mod answering;
mod call;
mod fields;
mod limits;
mod problem;
mod receive;
mod start;
mod state;
mod stream;
mod unsupported;

pub use state::ApiState;
pub use unsupported::Unsupported;
