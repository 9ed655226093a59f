//! Matrices of a model, with whatever numbers they are stored as.

use mortise_kernels::linear::{Matrix, Weights, linear};

use crate::weights::Numbers;

/// A matrix with an optional bias.
#[derive(Debug)]
pub(crate) struct Linear {
    pub(crate) numbers: Numbers,
    pub(crate) bias: Option<Vec<f32>>,
    pub(crate) outputs: usize,
    pub(crate) inputs: usize,
}

impl Linear {
    pub(crate) fn append(self, more: Self) -> Self {
        let bias = match (self.bias, more.bias) {
            (Some(mut bias), Some(more)) => {
                bias.extend(more);
                Some(bias)
            }
            (bias, _) => bias,
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
