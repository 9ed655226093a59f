//! The dialects in which clients speak to the server: one folder each, with its routes, its wire shapes and
//! its own way of writing an error. What they share lies beside them.
//!
//! No dialect knows another, and the service knows none.

pub mod anthropic;
pub mod batches;
pub mod echo_socket;
pub mod files;
pub mod llm;
pub mod ollama;
pub mod openai;
pub mod rerank;
pub mod responses;
pub mod vector_stores;

mod active;
mod answering;
mod call;
mod cancellations;
mod collections;
mod contents;
mod contract;
mod embed;
mod executions;
mod fields;
mod files_expiry;
mod held;
mod hints;
mod idempotency;
mod ids;
mod ignored;
mod labels;
mod library;
mod library_access;
mod limits;
mod live;
pub mod login;
mod openai_error;
mod owner_turns;
mod paging;
mod problem;
mod receive;
mod retention;
mod socket;
mod start;
mod state;
mod stored;
mod stream;
mod sunset;
mod template_use;
mod unsupported;

pub use collections::{
    Collections, SearchTool, index_of, prepare as prepare_collections, resume as resume_collections,
};
pub use library::{LibraryAccess, ModelLibrary, PullStep};
pub use retention::Retention;
pub use state::ApiState;
pub use unsupported::Unsupported;
pub use vector_stores::{AllCollections, CollectionQuery};
