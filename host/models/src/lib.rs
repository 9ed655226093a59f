//! Models: the catalogue of names, and the runtimes that generate or embed.
//!
//! No HTTP and no plugins.

mod catalogue;
mod embedding_runtime;
mod local;
mod output;
mod script;
mod scripted;
mod token_runtime;

pub use catalogue::{Catalogue, CatalogueError, NameMatching, Named, UnknownModel};
pub use embedding_runtime::{EmbedError, EmbeddingFuture, EmbeddingRuntime};
pub use output::{Delta, FinishReason, TokenLogprob, Usage};
pub use script::{Script, ScriptLine};
pub use scripted::{DecodeTokens, EncodeText, ScriptCodec, Scripted};
pub use token_runtime::TokenRuntime;
