//! Models: the catalogue of names, what configuration and files say of a model, and the runtimes that
//! generate or embed.
//!
//! No HTTP and no plugins.

mod catalogue;
mod config;
mod device_choice;
mod download;
mod embedding_runtime;
mod files;
mod local;
mod local_embedder;
mod output;
mod placement;
mod script;
mod scripted;
mod start;
mod token_runtime;
mod weights;

pub use catalogue::{Catalogue, CatalogueError, NameMatching, Named, UnknownModel};
pub use config::{DEMO_MODEL, EngineSettings, ModelConfig, Quantize};
pub use device_choice::DeviceChoice;
pub use download::download;
pub use embedding_runtime::{EmbedError, EmbeddingFuture, EmbeddingRuntime};
pub use files::{EmbeddedFiles, FetchModel, ModelFiles, ModelSource};
pub use mortise_model::GenerationConfig;
pub use output::{Delta, FinishReason, TokenLogprob, Usage};
pub use placement::{Placed, Placement, start_engine};
pub use script::{Script, ScriptLine};
pub use scripted::{DecodeTokens, EncodeText, ScriptCodec, Scripted};
pub use start::{ModelRuntime, start_runtime};
pub use token_runtime::TokenRuntime;
pub use weights::LoadedWeights;
