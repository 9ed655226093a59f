//! Errors of model files and of batches.

use std::path::PathBuf;

use mortise_kernels::OutOfMemory;

use crate::gguf::GgufError;

/// Reason why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The folder is not there or is no folder.
    #[error("cannot open model folder `{path}`")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// A file that every model needs is not there.
    #[error("model folder `{folder}` has no file `{file}`")]
    MissingFile {
        /// The folder.
        folder: String,
        /// The file.
        file: String,
    },
    /// A file could not be read.
    #[error("cannot read `{file}` of model folder `{folder}`")]
    Read {
        /// The folder.
        folder: String,
        /// The file.
        file: String,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// A file is larger than a file of its kind can be.
    #[error("`{file}` has {bytes} bytes; at most {limit} are read")]
    FileTooLarge {
        /// The file.
        file: String,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A file is not the JSON it should be.
    #[error("`{file}` is not valid JSON")]
    Json {
        /// The file.
        file: String,
        /// Position and cause.
        #[source]
        source: serde_json::Error,
    },
    /// A field of a configuration file is missing or has a value that makes no sense.
    #[error("`{field}` in `{file}` {problem}")]
    Field {
        /// The file.
        file: String,
        /// The field.
        field: String,
        /// Problem, as the rest of a sentence.
        problem: String,
    },
    /// The architecture is not supported.
    #[error("architecture `{found}` is not supported; supported are {supported}")]
    UnknownArchitecture {
        /// The architecture in `config.json`.
        found: String,
        /// The known ones.
        supported: String,
    },
    /// A file of weights is damaged.
    #[error("weights file `{file}` is damaged: {problem}")]
    WeightsFile {
        /// The file.
        file: String,
        /// Problem.
        problem: String,
    },
    /// A GGUF file is damaged or has what is not read.
    #[error("GGUF file `{file}` cannot be read")]
    Gguf {
        /// The file.
        file: String,
        /// Cause.
        #[source]
        source: GgufError,
    },
    /// A folder holds GGUF files of several models.
    #[error("folder `{folder}` holds several GGUF models; give the path of one of {files}")]
    SeveralModels {
        /// The folder.
        folder: String,
        /// The files.
        files: String,
    },
    /// A GGUF file that is one of several has a name from which those of the others do not follow.
    #[error(
        "GGUF file `{file}` is one of {count}; name it and the others \
         `NAME-00001-of-{count:05}.gguf` and so on, as they were made"
    )]
    PartName {
        /// The file.
        file: String,
        /// Files of the model.
        count: usize,
    },
    /// The weights lack a tensor.
    #[error("tensor `{tensor}` is missing from the weights")]
    MissingTensor {
        /// The tensor.
        tensor: String,
    },
    /// A tensor's shape does not follow from the configuration.
    #[error("tensor `{tensor}` has shape {found:?}; the configuration asks for {expected:?}")]
    Shape {
        /// The tensor.
        tensor: String,
        /// The shape that the configuration asks for.
        expected: Vec<usize>,
        /// The shape in the file.
        found: Vec<usize>,
    },
    /// The token embedding is no matrix with a row for each token.
    #[error(
        "tensor `{tensor}` has shape {found:?}; a token embedding has 1 to {limit} rows of at least \
         one number"
    )]
    Embedding {
        /// The tensor.
        tensor: String,
        /// Its shape.
        found: Vec<usize>,
        /// Most rows.
        limit: usize,
    },
    /// The scales of a matrix of eight bits do not fit it.
    #[error(
        "tensor `{tensor}` has shape {found:?}; expected one scale for the whole matrix of {matrix:?}, \
         for each row, or for each block that `quantization_config` describes"
    )]
    Scales {
        /// The scales.
        tensor: String,
        /// Their shape.
        found: Vec<usize>,
        /// The shape of the matrix.
        matrix: Vec<usize>,
    },
    /// A tensor's numbers are of a kind that is not read.
    #[error("tensor `{tensor}` has type {found}, which is not supported")]
    NumberType {
        /// The tensor.
        tensor: String,
        /// Its type.
        found: String,
    },
    /// An adapter asks for what is not supported, or does not fit its model.
    #[error("the adapter `{adapter}` {problem}")]
    Adapter {
        /// Its folder or file.
        adapter: String,
        /// Problem, as the rest of a sentence.
        problem: String,
    },
    /// An adapter's matrix has a rank that is not read.
    #[error("tensor `{tensor}` has rank {found}; expected 1 to {limit}")]
    AdapterRank {
        /// The tensor.
        tensor: String,
        /// Its rank.
        found: usize,
        /// Highest rank.
        limit: usize,
    },
    /// A tensor has numbers that nothing can be computed with.
    #[error("tensor `{tensor}` has an infinite number or none at place {place}")]
    NotFinite {
        /// The tensor.
        tensor: String,
        /// Place of the first of them.
        place: usize,
    },
    /// There is no memory for the weights.
    #[error("not enough memory for the weights; use a smaller or more strongly quantised model")]
    WeightMemory(#[from] OutOfMemory),
    /// The model computes what the device does not.
    #[error(
        "`{architecture}` models with {feature} do not run on a GPU yet; use --device cpu for this one"
    )]
    NotOnDevice {
        /// The model's architecture.
        architecture: &'static str,
        /// Feature that the device lacks.
        feature: String,
    },
    /// The device refused.
    #[error("the device failed")]
    Device(#[from] mortise_cuda::DeviceError),
    /// A cache of this size cannot be had.
    #[error(
        "cannot allocate a KV cache of {blocks} blocks of {block_bytes} bytes; configure fewer tokens"
    )]
    CacheSize {
        /// Blocks asked for.
        blocks: usize,
        /// Bytes of a block, all layers together.
        block_bytes: usize,
    },
}

/// Reason why a batch was not computed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// A token that the model does not have.
    #[error("token {token} is not below the vocabulary size {vocabulary}")]
    Token {
        /// The token.
        token: u32,
        /// Tokens that the model has.
        vocabulary: usize,
    },
    /// More tokens than the model was made for.
    #[error("a sequence of {tokens} tokens exceeds the context of {context}")]
    Context {
        /// Tokens of the sequence with this batch.
        tokens: usize,
        /// Tokens that the model was made for.
        context: usize,
    },
    /// The block table does not hold the sequence.
    #[error("a sequence of {tokens} tokens has {blocks} blocks")]
    BlockTable {
        /// Tokens of the sequence with this batch.
        tokens: usize,
        /// Blocks of its table.
        blocks: usize,
    },
    /// A block that the cache does not have.
    #[error("block {block} is not below the cache size {blocks}")]
    Block {
        /// The block.
        block: u32,
        /// Blocks of the cache.
        blocks: usize,
    },
    /// A row of logits that the last batch did not compute.
    #[error("logits of row {row} are asked for, and the last batch has {rows} rows of logits")]
    LogitRow {
        /// The row.
        row: usize,
        /// Rows of logits of the last batch.
        rows: usize,
    },
    /// A token from a sample that was not made, or for a row that the batch does not have.
    #[error("row {row} takes its token from sample {sample}: there is no such row or sample")]
    Source {
        /// Row of the batch.
        row: usize,
        /// Number of the sample.
        sample: usize,
    },
    /// An adapter of another model, or one for a device that takes none.
    #[error("the adapter of a sequence cannot be applied to this model")]
    Adapter,
    /// The device refused.
    #[error("the device failed: {0}")]
    Device(#[from] mortise_cuda::DeviceError),
    /// A cache that was made for another model.
    #[error("the KV cache was made for another model")]
    Cache,
}
