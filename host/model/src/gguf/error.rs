//! Errors of GGUF files.

/// Reason why a GGUF file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// The first four bytes are others.
    #[error("it does not begin with `GGUF`")]
    Magic,
    /// A version that is not read.
    #[error("it has version {found}; versions 2 and 3 are read{hint}")]
    Version {
        /// The version.
        found: u32,
        /// Likely cause.
        hint: &'static str,
    },
    /// The file ends within its header.
    #[error("it ends within {what}")]
    Truncated {
        /// Part that could not be read.
        what: String,
    },
    /// A number that announces more than is read.
    #[error("it announces {found} {what}; at most {limit} are read")]
    Limit {
        /// Kind of things that are counted.
        what: &'static str,
        /// Number found.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// Bytes that should be text.
    #[error("{what} is not UTF-8")]
    Text {
        /// Part of the file.
        what: String,
    },
    /// An entry of the metadata that makes no sense or is not supported.
    #[error("`{key}` {problem}")]
    Entry {
        /// Its key.
        key: String,
        /// Problem, as the rest of a sentence.
        problem: String,
    },
    /// A tensor that makes no sense.
    #[error("tensor `{tensor}` {problem}")]
    Tensor {
        /// Its name.
        tensor: String,
        /// Problem, as the rest of a sentence.
        problem: String,
    },
}
