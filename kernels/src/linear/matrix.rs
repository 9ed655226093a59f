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
