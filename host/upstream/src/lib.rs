//! Models that other servers answer for: OpenAI-compatible upstreams behind this server's own policies,
//! limits, tools and usage.
//!
//! A conversation goes to an upstream's chat API and comes back event by event; texts go to its API for embeddings and
//! come back as vectors. What is sent is written here from our own types; nothing of a caller's request is forwarded as it
//! came. Upstreams are not trusted: what they send has bounds, and each defect ends one request with one clear error.

mod affinity;
mod answer;
mod attempt;
mod breaker;
mod chunk;
mod client;
mod discovery;
mod dispatch;
mod embedding;
mod embedding_answer;
mod embedding_body;
mod event_stream;
mod exchange;
mod health;
pub mod limits;
mod members;
mod messages;
mod probe;
mod refusal;
mod repeated;
mod request_body;
mod runtime;
mod spans;
mod unsupported;
mod vectors;

pub use answer::AnswerReader;
pub use client::ClientError;
pub use discovery::{DiscoveryError, discover};
pub use embedding_answer::{EmbeddingAnswer, read_answer};
pub use probe::Probe;
pub use runtime::UpstreamRuntime;
