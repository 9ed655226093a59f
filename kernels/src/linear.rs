//! Products of activations with weights, `x · Wᵀ + bias`, with an epilogue before they are written: added to the
//! residual, multiplied by a gate, or reduced to the highest logit of a row.
//!
//! Each output is one dot product, whose order of additions the kind of the weights says
//! ([`floats`](crate::floats), [`quant`](crate::quant)). Tiles share loads between products but never
//! change that order, so that a row's result does not depend on the batch.

use crate::gate_mul::{Activation, gate_mul};

mod activations;
mod gated;
mod job;
mod matrix;
mod search;
mod sink;

pub use crate::row_order::RowOrder;
pub use activations::{Activations, Forms};
pub use matrix::Matrix;
pub use search::{Highest, LogitScale, RowLogits, Scores, WantedLogits};

use job::Job;
use sink::{Add, Cells, Write};

/// Matrices of the same inputs that are multiplied with as if they were one: the outputs of the first
/// come first in each row.
#[derive(Debug, Clone, Copy)]
pub struct Stack<'a> {
    /// Matrices, at least one.
    pub matrices: &'a [Matrix<'a>],
    /// Bias, a value for each output of all matrices together.
    pub bias: Option<&'a [f32]>,
}

impl Stack<'_> {
    /// Outputs of all matrices together.
    pub fn outputs(&self) -> usize {
        self.matrices.iter().map(|matrix| matrix.outputs()).sum()
    }

    /// The forms of activations that products need.
    pub fn forms(&self) -> Forms {
        let quantised = |matrix: &Matrix<'_>| matrix.is_quantised();
        Forms {
            plain: !self.matrices.iter().all(quantised),
            rounded: self.matrices.iter().any(quantised),
        }
    }

    /// Write the products to rows of `out`.
    pub fn write(&self, x: &Activations<'_>, out: &mut [f32]) {
        let job = Job::new(x, self);
        let cells = Cells::new(out, x.rows(), self.outputs());
        job.run(|| Write(cells));
    }

    /// Add the products, `scale` times, to rows of `out`.
    pub fn add(&self, x: &Activations<'_>, scale: f32, out: &mut [f32]) {
        let job = Job::new(x, self);
        let cells = Cells::new(out, x.rows(), self.outputs());
        job.run(|| Add { cells, scale });
    }

    /// The first half of the outputs as gates of the second: rows of half as many values, in the forms
    /// that the next product needs. Each group goes through its gate, and is rounded, while it is in the
    /// cache.
    pub fn gate(
        &self,
        x: &Activations<'_>,
        activation: Activation,
        forms: Forms,
    ) -> Activations<'static> {
        let width = self.outputs() / 2;
        let job = Job::new(x, self);
        if let Some(gated) = gated::run(&job, activation, forms) {
            return gated;
        }
        let mut both = vec![0.0; x.rows() * self.outputs()];
        self.write(x, &mut both);
        let mut out = vec![0.0; x.rows() * width];
        gate_mul(activation, &both, width, &mut out);
        Activations::new(out, width, forms)
    }

    /// The products as logits, reduced as `wanted` says for each row. Other logits are not written.
    ///
    /// # Panics
    /// If `wanted` and the rows differ in number.
    pub fn scores(
        &self,
        x: &Activations<'_>,
        scale: LogitScale,
        wanted: &[WantedLogits],
    ) -> Scores {
        search::run(&Job::new(x, self), scale, wanted)
    }
}

/// Multiply the rows of `x` (a value for each input) into rows of `out` (one for each output).
pub fn linear(x: &[f32], matrix: Matrix<'_>, bias: Option<&[f32]>, out: &mut [f32]) {
    let stack = Stack {
        matrices: &[matrix],
        bias,
    };
    stack.write(&Activations::new(x, matrix.inputs(), stack.forms()), out);
}

/// Reference implementation in double precision, for tests: weights are widened exactly and
/// activations are not rounded.
pub fn reference(x: &[f32], matrix: Matrix<'_>, bias: Option<&[f32]>, out: &mut [f32]) {
    let (outputs, inputs) = (matrix.outputs(), matrix.inputs());
    let mut weights = vec![0.0; inputs];
    for output in 0..outputs {
        matrix.row(output, &mut weights);
        for (x, out) in x.chunks_exact(inputs).zip(out.chunks_exact_mut(outputs)) {
            let products = x.iter().zip(&weights);
            let sum: f64 = products.map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
            out[output] = (sum + bias.map_or(0.0, |bias| f64::from(bias[output]))) as f32;
        }
    }
}

#[cfg(test)]
mod tests;
