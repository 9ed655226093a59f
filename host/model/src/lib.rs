//! Model folders and the decoder that runs them.
//!
//! A model comes from a [`ModelFolder`]: files in the Hugging Face layout, on disk or in memory, or
//! one GGUF file. Matrices are packed for the kernels; other tensors of a GGUF file stay mapped. All
//! numbers in the files are checked before they size memory or a loop (`limits.rs`): a wrong folder
//! gives a [`ModelError`], never a panic.
//!
//! [`Decoder::forward`] computes a ragged batch against a paged [`KvCache`]. This crate knows no text
//! and no scheduling.

mod attention;
mod batch;
mod checkpoint;
mod decoder;
mod device;
mod embedder;
mod encoder;
mod error;
mod experts;
mod feed_forward;
mod fields;
mod file_bytes;
mod folder;
mod fp8;
mod gated_mlp;
mod generation;
pub mod gguf;
mod input;
mod kv_cache;
mod latent_attention;
mod layers;
mod limits;
mod linear;
mod loader;
mod lora;
mod mxfp4;
mod names;
mod norm;
mod pooling;
mod prompts;
mod rearrange;
mod reranker;
mod rope;
mod shards;
mod spec;
mod stored_tensor;
mod text_step;
mod unique_map;
mod weights;

pub use checkpoint::vocabulary_size;
pub use decoder::{Decoder, EmbedText, Logits, RowsError};
pub use device::{DeviceModel, DeviceSettings, TokenSource};
pub use embedder::{Embedder, EmbedderOptions};
pub use encoder::{Encoder, EncoderFamily, EncoderSpec, EncoderText};
pub use error::{InputError, ModelError};
pub use file_bytes::FileBytes;
pub use folder::ModelFolder;
pub use generation::GenerationConfig;
pub use input::{LogitRows, ModelInput, SequenceInput, SequenceView};
pub use kv_cache::{BLOCK_TOKENS, KvCache, KvType};
pub use limits::{
    ADAPTER_SCALE_MAX, INDEX_BYTES_MAX, PROMPT_BYTES_MAX, PROMPTS_MAX, TOKENIZER_BYTES_MAX,
};
pub use lora::Adapter;
pub use mortise_cuda::sample::{
    Adjustment, LogprobReport, SampleError, SampleParams, SampledToken,
};
pub use pooling::{Pooling, PoolingSpec};
pub use prompts::{EmbeddingPrompts, PromptError, PromptUse};
pub use reranker::{Reranker, RerankerKind};
pub use rope::{RopeScaling, RopeSpec};
pub use spec::{
    Architecture, AttentionSpec, ExpertsSpec, FeedForwardSpec, LatentSpec, LayerSpec, ModelSpec,
    QkNorm, QueryGrowth,
};
pub use weights::WeightPrecision;
