//! Matrices of a model, with whatever numbers they are stored as.

use mortise_kernels::linear::{Matrix, Weights, linear};

use crate::weights::Numbers;

/// A matrix with an optional bias.
#[derive(Debug)]
pub(crate) struct Linear {
    numbers: Numbers,
    bias: Option<Vec<f32>>,
    outputs: usize,
    inputs: usize,
}

impl Linear {
    /// `outputs * inputs` numbers, one row an output, and perhaps a bias.
    pub(crate) fn new(
        numbers: Numbers,
        bias: Option<Vec<f32>>,
        outputs: usize,
        inputs: usize,
    ) -> Self {
        Self {
            numbers,
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
    pub(crate) fn append(self, more: Self) -> Self {
        let bias = match (self.bias, more.bias) {
            (None, None) => None,
            (bias, more_bias) => {
                let mut bias = bias.unwrap_or_else(|| vec![0.0; self.outputs]);
                bias.extend(more_bias.unwrap_or_else(|| vec![0.0; more.outputs]));
                Some(bias)
            }
        };
        Self {
            numbers: self.numbers.append(more.numbers),
            bias,
            outputs: self.outputs + more.outputs,
            inputs: self.inputs,
        }
    }

    /// Multiply rows of activations.
    pub(crate) fn apply(&self, x: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; x.len() / self.inputs * self.outputs];
        linear(x, self.matrix(), self.bias.as_deref(), &mut out);
        out
    }

    fn matrix(&self) -> Matrix<'_> {
        let weights = match &self.numbers {
            Numbers::F32(numbers) => Weights::F32(numbers),
            Numbers::Bf16(numbers) => Weights::Bf16(numbers),
        };
        Matrix {
            weights,
            outputs: self.outputs,
            inputs: self.inputs,
        }
    }

    /// Copy rows of the matrix: the embedding of tokens.
    pub(crate) fn gather(&self, rows: &[u32]) -> Vec<f32> {
        let mut out = Vec::with_capacity(rows.len() * self.inputs);
        for &row in rows {
            let start = row as usize * self.inputs;
            match &self.numbers {
                Numbers::F32(numbers) => out.extend_from_slice(&numbers[start..][..self.inputs]),
                Numbers::Bf16(numbers) => {
                    out.extend(
                        numbers[start..][..self.inputs]
                            .iter()
                            .map(|number| number.to_f32()),
                    );
                }
            }
        }
        out
    }
}
