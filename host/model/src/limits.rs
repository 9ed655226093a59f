//! Upper bounds of what model files may ask for. A size from a file passes one of them before it
//! decides about memory or a loop; tensors are then compared with their shapes in the file.

/// Bytes of a configuration file.
pub(crate) const CONFIG_BYTES_MAX: u64 = 4 << 20;
/// Bytes of a tokenizer's file; a vocabulary of 256 000 tokens has about 20 MB.
pub const TOKENIZER_BYTES_MAX: u64 = 128 << 20;
/// Entries of a list in a configuration file.
pub(crate) const LIST_MAX: usize = 1 << 12;
/// End-of-sequence tokens in one field.
pub(crate) const EOS_TOKENS_MAX: usize = 256;
/// Steps of an embedding model in `modules.json`.
pub(crate) const MODULES_MAX: usize = 16;

/// Instructions for texts of one model, in `config_sentence_transformers.json` or a configuration.
pub const PROMPTS_MAX: usize = 64;
/// Bytes of one of them, and of its name.
pub const PROMPT_BYTES_MAX: usize = 1 << 13;

/// Tokens of a vocabulary.
pub(crate) const VOCABULARY_MAX: usize = 1 << 22;
/// Tokens of a context: positions are exact in f32 up to here.
pub(crate) const CONTEXT_MAX: usize = 1 << 24;
/// Tokens of a sliding window.
pub(crate) const WINDOW_MAX: usize = 1 << 24;
/// Hidden size of a decoder.
pub(crate) const HIDDEN_MAX: usize = 1 << 16;
/// Intermediate size of a feed-forward layer or an expert.
pub(crate) const INTERMEDIATE_MAX: usize = 1 << 20;
/// Layers of a decoder.
pub(crate) const LAYERS_MAX: usize = 1 << 10;
/// Attention heads of a decoder.
pub(crate) const HEADS_MAX: usize = 1 << 10;
/// Dimensions of a head.
pub(crate) const HEAD_DIM_MAX: usize = 1 << 10;
/// Rank of the compressed queries, keys and values of latent attention.
pub(crate) const RANK_MAX: usize = 1 << 14;
/// Experts of a layer.
pub(crate) const EXPERTS_MAX: usize = 1 << 12;
/// Number of a layer in rules such as "a window in all but every nth".
pub(crate) const LAYER_RULE_MAX: usize = 1 << 20;
/// Rows and columns that share an FP8 scale.
pub(crate) const SCALE_BLOCK_MAX: usize = 1 << 16;

/// Rank of an adapter's matrices.
pub(crate) const ADAPTER_RANK_MAX: usize = 512;
/// Bytes of an adapter's matrices in memory.
pub(crate) const ADAPTER_BYTES_MAX: u64 = 4 << 30;
/// Factor of what an adapter adds, of either sign.
pub const ADAPTER_SCALE_MAX: u16 = 100;
/// Alpha of an adapter.
pub(crate) const ADAPTER_ALPHA_MAX: u32 = 1_000_000;
/// Bytes of a pattern of modules in an adapter's settings.
pub(crate) const ADAPTER_PATTERN_BYTES_MAX: usize = 1 << 12;

/// Hidden size, and with it heads, of an encoder.
pub(crate) const ENCODER_HIDDEN_MAX: usize = 1 << 14;
/// Intermediate size of an encoder.
pub(crate) const ENCODER_INTERMEDIATE_MAX: usize = 1 << 16;
/// Layers of an encoder.
pub(crate) const ENCODER_LAYERS_MAX: usize = 1 << 8;
/// Context of an encoder.
pub(crate) const ENCODER_CONTEXT_MAX: usize = 1 << 17;
/// Segment types of an encoder.
pub(crate) const ENCODER_SEGMENTS_MAX: usize = 1 << 10;

/// Bytes of a safetensors index.
pub const INDEX_BYTES_MAX: u64 = 64 << 20;
/// Files of a safetensors model.
pub(crate) const SHARDS_MAX: usize = 1 << 10;
/// Dimensions of a safetensors tensor.
pub(crate) const DIMENSIONS_MAX: usize = 8;
