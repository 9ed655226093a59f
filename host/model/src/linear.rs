//! Matrices of a model, with whatever numbers they are stored as.

use mortise_kernels::linear::{Matrix, RowOrder, linear_stack};

use crate::weights::Numbers;

/// Matrices of the same inputs that are multiplied as one, with an optional bias.
#[derive(Debug)]
pub(crate) struct Linear {
    parts: Vec<Part>,
    bias: Option<Vec<f32>>,
    outputs: usize,
    inputs: usize,
}

/// One matrix as it is in the file.
#[derive(Debug)]
struct Part {
    numbers: Numbers,
    outputs: usize,
    order: RowOrder,
}

impl Linear {
    /// One matrix of `outputs * inputs` numbers, one row an output, and perhaps a bias.
    pub(crate) fn new(
        numbers: Numbers,
        bias: Option<Vec<f32>>,
        outputs: usize,
        inputs: usize,
    ) -> Self {
        Self::ordered(numbers, RowOrder::Plain, bias, outputs, inputs)
    }

    /// One matrix whose rows are in some order; its bias is in that of the outputs.
    pub(crate) fn ordered(
        numbers: Numbers,
        order: RowOrder,
        bias: Option<Vec<f32>>,
        outputs: usize,
        inputs: usize,
    ) -> Self {
        let part = Part {
            numbers,
            outputs,
            order,
        };
        Self {
            parts: vec![part],
            bias,
            outputs,
            inputs,
        }
    }

    /// Values of a row of results.
    pub(crate) fn outputs(&self) -> usize {
        self.outputs
    }

    /// Add the outputs of another matrix of the same inputs.
    pub(crate) fn append(mut self, more: Self) -> Self {
        self.bias = match (self.bias, more.bias) {
            (None, None) => None,
            (bias, more_bias) => {
                let mut bias = bias.unwrap_or_else(|| vec![0.0; self.outputs]);
                bias.extend(more_bias.unwrap_or_else(|| vec![0.0; more.outputs]));
                Some(bias)
            }
        };
        self.parts.extend(more.parts);
        self.outputs += more.outputs;
        self
    }

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
