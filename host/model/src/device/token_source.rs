//! Tokens of a batch that the device sampled in the step before.

use mortise_cuda::Slice;

/// Takes the token of a row from a sample on the device instead of from the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenSource {
    /// Row of the batch.
    pub row: usize,
    /// Number of the sample, of those made last.
    pub sample: usize,
}

/// Rows of a batch whose tokens the device sampled.
pub(super) struct Taken<'a> {
    pub(super) sampled: Slice<'a, u32>,
    pub(super) sources: &'a [TokenSource],
}
