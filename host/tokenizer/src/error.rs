//! Errors of loading and encoding, and the guard around library code that may panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Error of loading a tokenizer or of encoding a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenizerError {
    /// A file is not what it should be.
    #[error("{file} is malformed: {reason}")]
    Malformed {
        /// Name of the file.
        file: &'static str,
        /// Description of the fault in the file.
        reason: String,
    },
    /// The file is well-formed and asks for something this server does not do.
    #[error("tokenizer.json: {0} is not supported")]
    Unsupported(String),
    /// The text cannot be encoded.
    #[error("cannot encode the text: {0}")]
    Encode(String),
    /// The text grew beyond reason in a step of the tokenizer.
    #[error(
        "cannot encode the text: the tokenizer's normalizer {step} makes {after} bytes or more of {before}"
    )]
    Growth {
        /// Name of the step in `tokenizer.json`.
        step: String,
        /// Bytes of the text.
        before: usize,
        /// Bytes that it had grown to when it was given up.
        after: usize,
    },
    /// The text has more tokens than can be used; encoding stopped there.
    #[error("the text has at least {at_least} tokens, more than can be used")]
    TooLong {
        /// Tokens that the text has at least.
        at_least: usize,
    },
    /// The request was dropped.
    #[error("the encoding was cancelled")]
    Cancelled,
    /// A text from a caller could only be encoded as a control token.
    #[error(
        "the text contains `{text}`, which this model's tokenizer can only encode as a control token; remove it"
    )]
    ControlToken {
        /// The part of the text.
        text: String,
    },
}

/// Run code of the tokenizers crate, which panics on some malformed files.
pub(crate) fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        format!(
            "the tokenizers library gave up: {}",
            text.unwrap_or("no reason given")
        )
    })
}

/// A step of the library that fails on a text. The log gets the reason, which may tell of the library's
/// insides; the caller of the server does not.
pub(crate) fn failed_on_text(step: &str, reason: &str) -> TokenizerError {
    tracing::error!(step, reason, "the tokenizer failed on a text");
    TokenizerError::Encode(format!("{step} of the tokenizer fails on it"))
}

pub(crate) fn malformed(file: &'static str, reason: impl ToString) -> TokenizerError {
    TokenizerError::Malformed {
        file,
        reason: reason.to_string(),
    }
}
