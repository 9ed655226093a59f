//! Root-mean-square norms (arXiv 1910.07467) of a model.

use mortise_kernels::rms_norm::{RmsNorm, rms_norm, rms_norm_in_place};

/// A norm with its weights.
#[derive(Debug)]
pub(crate) struct Norm {
    pub(crate) weight: Vec<f32>,
    /// Added to the mean square.
    pub(crate) epsilon: f32,
}

impl Norm {
    /// As stages take it.
    pub(crate) fn op(&self) -> RmsNorm<'_> {
        RmsNorm {
            weight: &self.weight,
            epsilon: self.epsilon,
        }
    }

    /// Normalise rows.
    pub(crate) fn apply(&self, x: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; x.len()];
        rms_norm(x, self.op(), &mut out);
        out
    }

    /// Normalise rows where they stand.
    pub(crate) fn apply_in_place(&self, x: &mut [f32]) {
        rms_norm_in_place(x, self.op());
    }
}
