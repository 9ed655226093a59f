//! The outcome of sampling one position of a sequence.

use crate::event::{GeneratedToken, SequenceError};

/// The outcome of a row of logits, or of a constraint that needs none.
#[derive(Debug, PartialEq)]
pub(crate) enum RowDecision {
    /// Commit this token.
    Token(GeneratedToken),
    /// The constraint says that the text is complete.
    Complete,
    /// The mask is not ready yet.
    Pending,
    /// The sequence fails.
    Fail(SequenceError),
}
