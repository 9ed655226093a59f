//! Models and what runs them: public names to backends.
//!
//! This room does not know HTTP, text or plugins.

mod embedding_runtime;
mod local;
mod names;
mod output;
mod scripted;
mod token_runtime;

pub use embedding_runtime::{EmbedError, EmbeddingFuture, EmbeddingRuntime};
pub use names::{Entry, Ladder, Registry, RegistryError, UnknownModel};
pub use output::{Delta, FinishReason, TokenLogprob, Usage};
pub use scripted::{DecodeTokens, EncodeText, Script, ScriptCodec, ScriptLine, Scripted};
pub use token_runtime::TokenRuntime;
