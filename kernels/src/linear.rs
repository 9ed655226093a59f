//! Products of activations with weights, `x · Wᵀ + bias`, and what becomes of them before they are
//! written: they are added to what is there, go through a gate, or of some rows only the highest is kept.
//!
//! Each output is one dot product. With weights in floating point it is summed in eight lanes over
//! ascending inputs, then the lanes by halves, then the inputs that fill no lane; with packed weights,
//! group by group ([`quant`](crate::quant)). Tiles share loads between products but never change that
//! order, so that a row's result does not depend on the batch.

use crate::gate_mul::{Activation, gate_mul};

mod activations;
#[cfg(target_arch = "x86_64")]
mod avx2;
mod gated;
mod job;
mod matrix;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
mod search;
mod sink;

pub use activations::{Activations, Forms};
pub use matrix::{Matrix, RowOrder, Weights};
pub use search::{Highest, LogitScale, RowLogits, Scores, WantedLogits};

use job::Job;
use sink::{Add, Cells, Write};

#[cfg(target_arch = "x86_64")]
use avx2 as vector;
#[cfg(target_arch = "aarch64")]
use neon as vector;

/// Inputs summed side by side.
const LANES: usize = 8;

/// Matrices of the same inputs that are multiplied with as if they were one: the outputs of the first
/// come first in each row.
#[derive(Debug, Clone, Copy)]
pub struct Stack<'a> {
    /// One at least.
    pub matrices: &'a [Matrix<'a>],
    /// One for each output of the whole.
    pub bias: Option<&'a [f32]>,
}

impl Stack<'_> {
    /// Outputs of the whole.
    pub fn outputs(&self) -> usize {
        self.matrices.iter().map(|matrix| matrix.outputs).sum()
    }

    /// The forms of activations that products need.
    pub fn forms(&self) -> Forms {
        let packed = |matrix: &Matrix<'_>| matrix.weights.is_packed();
        Forms {
            plain: !self.matrices.iter().all(packed),
            rounded: self.matrices.iter().any(packed),
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
    /// that the next product needs. What packed weights give goes through its gate, and is rounded,
    /// while it is in the cache.
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

    /// The products as logits: of each row what is wanted of it. Others are written nowhere.
    ///
    /// # Panics
    /// If there are not as many wishes as rows.
    pub fn scores(
        &self,
        x: &Activations<'_>,
        scale: LogitScale,
        wanted: &[WantedLogits],
    ) -> Scores {
        search::run(&Job::new(x, self), scale, wanted)
    }
}

/// Multiply the rows of `x` (`matrix.inputs` values each) into rows of `out` (`matrix.outputs`).
pub fn linear(x: &[f32], matrix: Matrix<'_>, bias: Option<&[f32]>, out: &mut [f32]) {
    let stack = Stack {
        matrices: &[matrix],
        bias,
    };
    stack.write(&Activations::new(x, matrix.inputs, stack.forms()), out);
}

/// A number that weights are stored as.
trait Weight: Copy + Into<f32> {
    /// Widen as many numbers as a register holds.
    ///
    /// # Safety
    /// `from` points at so many readable numbers and the processor has what the register is of.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[allow(unsafe_code, reason = "vector loads")]
    unsafe fn load(from: *const Self) -> vector::Register;
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
impl<W: Copy + Into<f32>> Weight for W {}

/// The dot products of `R` rows of activations with `C` rows of weights, all of one length.
fn dot_tile<W: Weight, const R: usize, const C: usize>(
    x: [&[f32]; R],
    weights: [&[W]; C],
) -> [[f32; C]; R] {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if crate::has_vectors() {
        let length = x[0].len();
        assert!(x.iter().all(|x| x.len() == length) && weights.iter().all(|w| w.len() == length));
        // SAFETY: the processor has the features and all slices have the same length.
        #[allow(unsafe_code, reason = "calls a function compiled for checked features")]
        return unsafe { vector::dot_tile(x, weights) };
    }
    portable::dot_tile(x, weights)
}

/// The same by definition, in double precision, for tests: weights are widened exactly and
/// activations are not rounded.
pub fn reference(x: &[f32], matrix: Matrix<'_>, bias: Option<&[f32]>, out: &mut [f32]) {
    let inputs = matrix.inputs;
    let mut weights = vec![0.0; inputs];
    for row in 0..matrix.outputs {
        matrix.weights.row(row, inputs, &mut weights);
        let output = matrix.order.output(row);
        for (x, out) in x
            .chunks_exact(inputs)
            .zip(out.chunks_exact_mut(matrix.outputs))
        {
            let products = x.iter().zip(&weights);
            let sum: f64 = products.map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
            out[output] = (sum + bias.map_or(0.0, |bias| f64::from(bias[output]))) as f32;
        }
    }
}

#[cfg(test)]
mod tests;
