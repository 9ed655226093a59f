//! From names of tensors to the parts of a model.

use crate::checkpoint::Checkpoint;
use crate::error::ModelError;
use crate::linear::{Linear, Part};
use crate::names::TensorNames;
use crate::spec::ModelSpec;
use crate::weights::WeightPrecision;

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
