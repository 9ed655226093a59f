//! From names of tensors to the parts of a model.

use crate::error::ModelError;
use crate::linear::Linear;
use crate::names::TensorNames;
use crate::spec::ModelSpec;
use crate::weights::{Checkpoint, WeightPrecision};

/// What a loader needs beside names.
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
        let mut stack: Option<Linear> = None;
        for (name, outputs) in parts {
            let shape = [*outputs, inputs];
            let weight = format!("{name}.weight");
            let numbers = self.checkpoint.load(&weight, &shape, self.precision)?;
            let bias = if biased {
                Some(
                    self.checkpoint
                        .load_vector(&format!("{name}.bias"), *outputs)?,
                )
            } else {
                None
            };
            let part = Linear {
                numbers,
                bias,
                outputs: *outputs,
                inputs,
            };
            stack = Some(match stack {
                None => part,
                Some(stack) => stack.append(part),
            });
        }
        stack.ok_or_else(|| ModelError::MissingTensor {
            tensor: "(no name given)".to_owned(),
        })
    }
}
