//! Matrices of weights, whatever numbers they are stored as.

use half::{bf16, f16};

use crate::quant::PackedMatrix;

/// Weights as they are stored.
#[derive(Debug, Clone, Copy)]
pub enum Weights<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// Half precision, widened as it is read.
    F16(&'a [f16]),
    /// Brain float, widened as it is read.
    Bf16(&'a [bf16]),
    /// Quantised; products are with activations rounded to eight bits. In the order of the outputs.
    Packed(&'a PackedMatrix),
}

impl Weights<'_> {
    /// Whether these are the weights of so many rows of `inputs` each.
    pub(super) fn fill(&self, outputs: usize, inputs: usize) -> bool {
        let length = match self {
            Self::F32(values) => values.len(),
            Self::F16(values) => values.len(),
            Self::Bf16(values) => values.len(),
            Self::Packed(matrix) => {
                return (matrix.outputs(), matrix.inputs()) == (outputs, inputs);
            }
        };
        inputs.checked_mul(outputs) == Some(length)
    }

    pub(super) fn is_packed(&self) -> bool {
        matches!(self, Self::Packed(_))
    }

    /// One row of a matrix of `inputs` columns, in f32.
    pub fn row(&self, row: usize, inputs: usize, out: &mut [f32]) {
        let range = row * inputs..(row + 1) * inputs;
        match self {
            Self::F32(values) => out.copy_from_slice(&values[range]),
            Self::F16(values) => widen_into(&values[range], out, |value| value.to_f32()),
            Self::Bf16(values) => widen_into(&values[range], out, |value| value.to_f32()),
            Self::Packed(matrix) => matrix.row(row, out),
        }
    }
}

fn widen_into<W: Copy>(from: &[W], to: &mut [f32], widen: impl Fn(W) -> f32) {
    assert_eq!(from.len(), to.len());
    for (to, from) in to.iter_mut().zip(from) {
        *to = widen(*from);
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

/// A weight matrix, one row an output.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a> {
    /// `outputs * inputs` numbers.
    pub weights: Weights<'a>,
    /// Rows of the matrix.
    pub outputs: usize,
    /// Columns of the matrix.
    pub inputs: usize,
    /// Which row gives which output.
    pub order: RowOrder,
}
