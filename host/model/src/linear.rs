//! Matrices of a model: how they are loaded and multiplied with, whatever their weights are stored as.

use mortise_kernels::linear::{Matrix, RowOrder, linear_stack};

use crate::checkpoint::Checkpoint;
use crate::error::ModelError;
use crate::names::TensorNames;
use crate::spec::ModelSpec;
use crate::weights::{Numbers, WeightPrecision};

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

/// What a loader needs beside names.
#[derive(Clone, Copy)]
pub(crate) struct Loader<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) spec: &'a ModelSpec,
    pub(crate) names: &'a TensorNames,
    pub(crate) precision: WeightPrecision,
}

impl Loader<'_> {
    /// The weight of a norm.
    pub(crate) fn norm(&self, name: &str, width: usize) -> Result<Vec<f32>, ModelError> {
        self.checkpoint
            .load_vector(&format!("{name}.weight"), width)
    }

    /// Matrices of the same inputs, stacked to one.
    pub(crate) fn stacked(
        &self,
        parts: &[(String, usize)],
        inputs: usize,
        biased: bool,
    ) -> Result<Linear, ModelError> {
        let mut stack = Linear {
            parts: Vec::with_capacity(parts.len()),
            bias: biased.then(Vec::new),
            outputs: 0,
            inputs,
        };
        for (name, outputs) in parts {
            let weight = format!("{name}.weight");
            stack.parts.push(Part {
                numbers: self
                    .checkpoint
                    .load(&weight, &[*outputs, inputs], self.precision)?,
                outputs: *outputs,
                order: self.checkpoint.row_order(&weight, self.spec),
            });
            if let Some(bias) = &mut stack.bias {
                let name = format!("{name}.bias");
                let values = self.checkpoint.load_vector(&name, *outputs)?;
                let order = self.checkpoint.row_order(&name, self.spec);
                let start = bias.len();
                bias.resize(start + outputs, 0.0);
                for (row, value) in values.into_iter().enumerate() {
                    bias[start + order.output(row)] = value;
                }
            }
            stack.outputs += outputs;
        }
        Ok(stack)
    }
}

impl Linear {
    /// Rows of all matrices.
    pub(crate) fn outputs(&self) -> usize {
        self.outputs
    }

    /// Columns of every matrix.
    pub(crate) fn inputs(&self) -> usize {
        self.inputs
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
