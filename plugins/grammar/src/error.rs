//! Errors of compiling and following a grammar.

/// Longest message of llguidance that is passed on, in bytes.
const MAX_ERROR_BYTES: usize = 600;

/// Reason for which a grammar was not compiled, or a matcher stopped.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
pub enum GrammarError {
    /// The grammar is wrong or too large.
    #[error("{0}")]
    Invalid(String),
    /// Following the grammar further takes more than a budget of llguidance.
    #[error("{0}")]
    TooComplex(String),
    /// A call did not fit the state, or llguidance broke down.
    #[error("{0}")]
    Internal(String),
}

/// Start of an error message of llguidance, without the dump of its state.
pub(crate) fn excerpt(error: &str) -> String {
    let error = error.split("\n<").next().unwrap_or_default().trim();
    let end = (0..=MAX_ERROR_BYTES.min(error.len()))
        .rev()
        .find(|&end| error.is_char_boundary(end))
        .unwrap_or(0);
    error[..end].to_owned()
}
