//! Weights that lie on disk in another order than that in which they are computed with.

use crate::weights::Numbers;

impl Numbers {
    /// As many numbers as asked for, each from where `source` says. Panics beyond the numbers.
    pub(crate) fn rearranged(&self, length: usize, source: impl Fn(usize) -> usize) -> Self {
        match self {
            Self::F32(numbers) => Self::F32((0..length).map(|i| numbers[source(i)]).collect()),
            Self::Bf16(numbers) => Self::Bf16((0..length).map(|i| numbers[source(i)]).collect()),
        }
    }

    /// A part of the numbers.
    pub(crate) fn part(&self, first: usize, length: usize) -> Self {
        self.rearranged(length, |index| first + index)
    }

    /// The transpose of the part that begins at `first` and has `rows` rows.
    pub(crate) fn transposed(&self, first: usize, rows: usize, columns: usize) -> Self {
        self.rearranged(rows * columns, |index| {
            first + index % rows * columns + index / rows
        })
    }
}
