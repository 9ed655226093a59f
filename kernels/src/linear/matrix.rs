//! Matrices of weights, whatever numbers they are stored as.

use crate::floats::FloatMatrix;
use crate::quant::PackedMatrix;

/// A matrix of weights that is laid out for products: one row an output, in the order of the outputs.
#[derive(Debug, Clone, Copy)]
pub enum Matrix<'a> {
    /// In floating point; products are with activations in f32.
    Floats(&'a FloatMatrix),
    /// Quantised; products are with activations rounded to eight bits.
    Quantised(&'a PackedMatrix),
}

impl Matrix<'_> {
    /// Rows.
    pub fn outputs(self) -> usize {
        match self {
            Self::Floats(matrix) => matrix.outputs(),
            Self::Quantised(matrix) => matrix.outputs(),
        }
    }

    /// Columns.
    pub fn inputs(self) -> usize {
        match self {
            Self::Floats(matrix) => matrix.inputs(),
            Self::Quantised(matrix) => matrix.inputs(),
        }
    }

    /// One row in f32.
    ///
    /// # Panics
    /// If there is no such row, or `out` does not hold one.
    pub fn row(self, row: usize, out: &mut [f32]) {
        match self {
            Self::Floats(matrix) => matrix.row(row, out),
            Self::Quantised(matrix) => matrix.row(row, out),
        }
    }

    pub(super) fn is_quantised(self) -> bool {
        matches!(self, Self::Quantised(_))
    }
}

/// In which order the rows of a matrix are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RowOrder {
    /// Row `i` gives output `i`.
    #[default]
    Plain,
    /// Within each head of so many rows, row `2 i + h` gives output `i` of half `h`: the order of
    /// rotary pairs side by side, as GGUF stores the queries and keys of Llama models.
    Paired {
        /// Rows of a head; even.
        head: usize,
    },
}

impl RowOrder {
    /// The output that stored row `row` gives.
    pub fn output(self, row: usize) -> usize {
        match self {
            Self::Plain => row,
            Self::Paired { head } => {
                let place = row % head;
                row - place + place % 2 * (head / 2) + place / 2
            }
        }
    }

    /// The stored row that gives output `output`.
    pub fn row(self, output: usize) -> usize {
        match self {
            Self::Plain => output,
            Self::Paired { head } => {
                let place = output % head;
                output - place + place % (head / 2) * 2 + place / (head / 2)
            }
        }
    }

    /// Whether so many rows are whole heads.
    pub(crate) fn fills(self, rows: usize) -> bool {
        match self {
            Self::Plain => true,
            Self::Paired { head } => {
                head > 0 && head.is_multiple_of(2) && rows.is_multiple_of(head)
            }
        }
    }
}
