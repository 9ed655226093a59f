//! Matrices of a model, with whatever numbers they are stored as.

use mortise_kernels::linear::{Matrix, RowOrder, Weights, linear_stack};
use mortise_kernels::quant::PackedMatrix;

use crate::error::ModelError;
use crate::weights::{Numbers, Stored};

/// Matrices of the same inputs that are multiplied as one, with an optional bias.
#[derive(Debug)]
pub(crate) struct Linear {
    parts: Vec<Part>,
    bias: Option<Vec<f32>>,
    outputs: usize,
    inputs: usize,
}

/// One matrix.
#[derive(Debug)]
struct Part {
    weights: PartWeights,
    outputs: usize,
}

#[derive(Debug)]
enum PartWeights {
    /// As they are in the file, in its order.
    Dense(Numbers, RowOrder),
    /// Quantised, in the order of the outputs.
    Packed(PackedMatrix),
}

impl Part {
    /// Quantised numbers are packed, and their memory in the file's mapping is given back.
    fn new(
        numbers: Numbers,
        order: RowOrder,
        outputs: usize,
        inputs: usize,
    ) -> Result<Self, ModelError> {
        let weights = match numbers.stored() {
            Stored::Dense(_) => PartWeights::Dense(numbers, order),
            Stored::Blocks(kind, blocks) => {
                let packed = PackedMatrix::new(kind, blocks, order, outputs, inputs)?;
                numbers.release();
                PartWeights::Packed(packed)
            }
        };
        Ok(Self { weights, outputs })
    }

    /// The weights as a product takes them, and their order.
    fn weights(&self) -> (Weights<'_>, RowOrder) {
        match &self.weights {
            PartWeights::Packed(packed) => (Weights::Packed(packed), RowOrder::Plain),
            PartWeights::Dense(numbers, order) => match numbers.stored() {
                Stored::Dense(weights) => (weights, *order),
                Stored::Blocks(..) => unreachable!("blocks were packed"),
            },
        }
    }
}

impl Linear {
    /// One matrix of `outputs * inputs` numbers, one row an output, and perhaps a bias.
    pub(crate) fn new(
        numbers: Numbers,
        bias: Option<Vec<f32>>,
        outputs: usize,
        inputs: usize,
    ) -> Result<Self, ModelError> {
        Self::ordered(numbers, RowOrder::Plain, bias, outputs, inputs)
    }

    /// One matrix whose rows are in some order; its bias is in that of the outputs.
    pub(crate) fn ordered(
        numbers: Numbers,
        order: RowOrder,
        bias: Option<Vec<f32>>,
        outputs: usize,
        inputs: usize,
    ) -> Result<Self, ModelError> {
        Ok(Self {
            parts: vec![Part::new(numbers, order, outputs, inputs)?],
            bias,
            outputs,
            inputs,
        })
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
            .map(|part| {
                let (weights, order) = part.weights();
                Matrix {
                    weights,
                    outputs: part.outputs,
                    inputs: self.inputs,
                    order,
                }
            })
            .collect();
        linear_stack(x, &stack, self.bias.as_deref(), &mut out);
        out
    }

    /// Copy rows of a single matrix in f32: the embedding of tokens.
    pub(crate) fn gather(&self, rows: &[u32]) -> Vec<f32> {
        let (weights, _) = self.parts[0].weights();
        gather(rows, self.inputs, |row, out| {
            weights.row(row, self.inputs, out);
        })
    }
}

/// A matrix that rows are copied from and nothing is multiplied with. It stays in its file.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) numbers: Numbers,
    pub(crate) inputs: usize,
}

impl Table {
    /// Copy rows in f32.
    pub(crate) fn gather(&self, rows: &[u32]) -> Vec<f32> {
        gather(rows, self.inputs, |row, out| self.numbers.row(row, out))
    }
}

fn gather(rows: &[u32], inputs: usize, copy: impl Fn(usize, &mut [f32])) -> Vec<f32> {
    let mut out = vec![0.0; rows.len() * inputs];
    for (&row, out) in rows.iter().zip(out.chunks_exact_mut(inputs)) {
        copy(row as usize, out);
    }
    out
}
