//! Matrices of a model, with whatever numbers they are stored as.

use mortise_kernels::linear::{Matrix, RowOrder, linear_stack};

use crate::weights::Numbers;

/// Matrices of the same inputs that are multiplied as one, with an optional bias.
#[derive(Debug)]
pub(crate) struct Linear {
    pub(crate) parts: Vec<Part>,
    pub(crate) bias: Option<Vec<f32>>,
    pub(crate) outputs: usize,
    pub(crate) inputs: usize,
}

/// One matrix as it is in the file.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) numbers: Numbers,
    pub(crate) outputs: usize,
    pub(crate) order: RowOrder,
}

impl Linear {
    /// Multiply rows of activations.
    pub(crate) fn apply(&self, x: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; x.len() / self.inputs * self.outputs];
        let stack: Vec<Matrix<'_>> = self
            .parts
            .iter()
            .map(|part| Matrix {
                weights: part.numbers.weights(),
                outputs: part.outputs,
                inputs: self.inputs,
                order: part.order,
            })
            .collect();
        linear_stack(x, &stack, self.bias.as_deref(), &mut out);
        out
    }

    /// Copy rows of a single matrix in f32: the embedding of tokens.
    pub(crate) fn gather(&self, rows: &[u32]) -> Vec<f32> {
        let mut out = vec![0.0; rows.len() * self.inputs];
        let weights = self.parts[0].numbers.weights();
        for (&row, out) in rows.iter().zip(out.chunks_exact_mut(self.inputs)) {
            weights.row(row as usize, self.inputs, out);
        }
        out
    }
}
