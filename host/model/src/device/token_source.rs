//! Tokens of a batch that the device sampled in the step before.

use mortise_cuda::Slice;

/// Says that a token of a batch is one that the device chose, whatever stands in the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenSource {
    /// Row of the batch.
    pub row: usize,
    /// Number of the choice, of those made last.
    pub choice: usize,
}

/// Tokens of a batch that the device chose.
pub(super) struct Taken<'a> {
    pub(super) chosen: Slice<'a, u32>,
    /// For some rows, which choice.
    pub(super) sources: &'a [TokenSource],
}
