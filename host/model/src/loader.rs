//! Loading of norms, tables and matrices by name.

use crate::checkpoint::Checkpoint;
use crate::error::ModelError;
use crate::linear::{Linear, Table};
use crate::names::{StackNames, TensorNames};
use crate::norm::Norm;
use crate::spec::ModelSpec;
use crate::weights::WeightPrecision;

/// Loads tensors by name, with the shape, names and precision of the model.
#[derive(Clone, Copy)]
pub(crate) struct Loader<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) spec: &'a ModelSpec,
    pub(crate) names: &'a TensorNames,
    pub(crate) precision: WeightPrecision,
}

/// A matrix among those that are stacked to one.
pub(crate) struct StackPart {
    pub(crate) name: String,
    pub(crate) outputs: usize,
    pub(crate) biased: bool,
}

impl Loader<'_> {
    /// The name of a part of a layer.
    pub(crate) fn layer_name(&self, layer: usize, part: &str) -> String {
        format!("{}{layer}.{part}", self.names.layer_prefix)
    }

    /// A norm.
    pub(crate) fn norm(&self, name: &str, width: usize) -> Result<Norm, ModelError> {
        let mut weight = self.vector(&format!("{name}.weight"), width)?;
        let offset = self.spec.architecture.family().norm_offset;
        let offset = self.checkpoint.norm_offset(offset);
        for weight in &mut weight {
            *weight += offset;
        }
        Ok(Norm {
            weight,
            epsilon: self.spec.norm_epsilon,
        })
    }

    /// A vector by its whole name, in f32.
    pub(crate) fn vector(&self, name: &str, length: usize) -> Result<Vec<f32>, ModelError> {
        self.checkpoint.load_vector(name, length)
    }

    /// A matrix that rows are copied from.
    pub(crate) fn table(
        &self,
        name: &str,
        rows: usize,
        inputs: usize,
    ) -> Result<Table, ModelError> {
        let weight = format!("{name}.weight");
        let numbers = self
            .checkpoint
            .load_table(&weight, &[rows, inputs], self.precision)?;
        Ok(Table { numbers, inputs })
    }

    /// A matrix.
    pub(crate) fn matrix(
        &self,
        name: String,
        outputs: usize,
        inputs: usize,
        biased: bool,
    ) -> Result<Linear, ModelError> {
        let weight = format!("{name}.weight");
        let shape = [outputs, inputs];
        let numbers = self.checkpoint.load(&weight, &shape, self.precision)?;
        let order = self.checkpoint.row_order(&weight, self.spec);
        let bias = match biased {
            true => Some(self.bias(&format!("{name}.bias"), outputs)?),
            false => None,
        };
        Linear::ordered(numbers, order, bias, outputs, inputs)
    }

    /// A bias, in the order of the outputs.
    fn bias(&self, name: &str, outputs: usize) -> Result<Vec<f32>, ModelError> {
        let order = self.checkpoint.row_order(name, self.spec);
        let mut bias = vec![0.0; outputs];
        for (row, value) in self.vector(name, outputs)?.into_iter().enumerate() {
            bias[order.output(row)] = value;
        }
        Ok(bias)
    }

    /// Matrices of the same inputs, stacked to one.
    pub(crate) fn stacked(
        &self,
        first: StackPart,
        more: impl IntoIterator<Item = StackPart>,
        inputs: usize,
    ) -> Result<Linear, ModelError> {
        let load = |part: StackPart| self.matrix(part.name, part.outputs, inputs, part.biased);
        more.into_iter()
            .try_fold(load(first)?, |stack, part| Ok(stack.append(load(part)?)))
    }

    /// The matrices of a layer that may be stacked on disk already.
    pub(crate) fn stack<const PARTS: usize>(
        &self,
        names: &StackNames<PARTS>,
        name: impl Fn(&str) -> String,
        outputs: [usize; PARTS],
        inputs: usize,
        biased: bool,
    ) -> Result<Linear, ModelError> {
        let part = |name, outputs| StackPart {
            name,
            outputs,
            biased,
        };
        match names {
            StackNames::Stacked(whole) => {
                let outputs = outputs.iter().sum();
                self.stacked(part(name(whole), outputs), [], inputs)
            }
            StackNames::Apart(names) => {
                let first = part(name(names[0]), outputs[0]);
                let more = names.iter().zip(outputs).skip(1);
                let more = more.map(|(part_name, outputs)| part(name(part_name), outputs));
                self.stacked(first, more, inputs)
            }
        }
    }
}
