//! Models: the catalogue of names, what configuration and files say of a model, and the runtimes that
//! generate or embed.
//!
//! No HTTP and no plugins.

mod adapters;
mod aliases;
mod capability;
mod catalogue;
mod child_config;
mod config;
pub mod conversation;
mod conversation_runtime;
mod device_choice;
mod digest;
mod discovery;
mod download;
mod embedding_runtime;
mod features;
mod files;
pub mod lifecycle;
pub mod limits;
mod local;
mod local_embedder;
mod local_loader;
mod local_reranker;
mod model;
mod model_settings;
mod output;
mod placement;
mod remote_embedding;
mod replicas;
mod rerank_runtime;
mod script;
mod scripted;
mod scripted_conversation;
mod start;
mod text_queue;
mod text_reranker;
mod token_runtime;
mod upstream_config;
mod vector_cache;
mod weights;

pub use adapters::{
    ADAPTER_SEPARATOR, AdapterConfig, AdapterError, AdapterState, AdapterStatus, Adapters,
    check_adapter_name,
};
pub use aliases::{
    Alias, AliasCaller, AliasCounters, AliasError, AliasMeanings, AliasNumbers, AliasRow,
    AliasSums, AliasTable, Canary, Chosen,
};
pub use capability::Capability;
pub use catalogue::{Catalogue, CatalogueError, HasName, NameMatching, UnknownModel};
pub use child_config::{ChildConfig, RestartPolicy};
pub use config::{
    DEMO_MODEL, DefinitionOrigin, EngineSettings, ModelConfig, ModelLifecycle, Quantize, RankConfig,
};
pub use conversation_runtime::{
    ConversationRequest, ConversationRuntime, OutputEvent, OutputFormat, OutputStream,
    RenderedRequest, RequestedSampling, RuntimeEnd, RuntimeError, ToolUse, UnexpectedEnd,
};
pub use device_choice::DeviceChoice;
pub use digest::check_pin;
pub use discovery::{DiscoveryConfig, Scan, Skipped};
pub use download::download;
pub use embedding_runtime::{EmbedError, EmbeddingFuture, EmbeddingRuntime};
pub use features::{Conversations, Features};
pub use files::{EmbeddedFiles, FetchModel, ModelFiles, ModelSource};
pub use local_loader::LocalLoader;
pub use model::{
    EmbeddingBackend, Generator, Listing, Model, RenderedGenerator, TextEmbedder, TokenGenerator,
};
pub use model_settings::{ModelEngine, RequestDefaults};
pub use mortise_engine::TenantLoad;
pub use mortise_model::{Adapter, EmbeddingPrompts, GenerationConfig, PromptError, PromptUse};
pub use output::{Delta, FinishReason, TokenLogprob, Usage};
pub use placement::{PlacedEngine, Placement, start_engine};
pub use remote_embedding::{
    EmbeddingInput, RemoteEmbedder, RemoteEmbeddingFuture, RemoteEmbeddingRequest,
    RemoteEmbeddingRuntime, RemoteEmbeddings,
};
pub use rerank_runtime::{RerankRuntime, ScoreFuture};
pub use script::{Script, ScriptKind, ScriptLine};
pub use scripted::{DecodeTokens, EncodeText, ScriptCodec, Scripted};
pub use scripted_conversation::ScriptedConversation;
pub use text_reranker::{PairForm, TextReranker, USUAL_INSTRUCTION};
pub use token_runtime::{AdapterBase, TokenRuntime};
pub use upstream_config::{
    ApiKey, BadApiKey, BadBaseUrl, BaseUrl, Dispatch, HealthCheck, MaxTokensField, Rendering,
    UpstreamApi, UpstreamConfig, UpstreamTimeouts,
};
pub use vector_cache::{TextKey, VectorCache};
