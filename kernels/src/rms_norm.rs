//! Root-mean-square normalisation.

/// Lanes of the running sum: fixed, so that the order of additions is.
const LANES: usize = 8;

/// A root-mean-square norm (arXiv 1910.07467).
#[derive(Debug, Clone, Copy)]
pub struct RmsNorm<'a> {
    /// A factor for each value of a row.
    pub weight: &'a [f32],
    /// Added to the mean square.
    pub epsilon: f32,
}

impl RmsNorm<'_> {
    /// Inverse root mean square of a row.
    pub(crate) fn scale(self, row: &[f32]) -> f32 {
        let mut sums = [0.0f32; LANES];
        let chunks = row.chunks_exact(LANES);
        let tail = chunks.remainder();
        for chunk in chunks {
            for (sum, value) in sums.iter_mut().zip(chunk) {
                *sum += value * value;
            }
        }
        let mut total: f32 = sums.iter().sum();
        for value in tail {
            total += value * value;
        }
        1.0 / (total / row.len() as f32 + self.epsilon).sqrt()
    }
}

/// Normalise each row of `x` (of as many values as there are weights) into `out`.
pub fn rms_norm(x: &[f32], norm: RmsNorm<'_>, out: &mut [f32]) {
    let width = norm.weight.len();
    assert!(width > 0 && x.len().is_multiple_of(width) && x.len() == out.len());
    for (row, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        let scale = norm.scale(row);
        for ((out, value), weight) in out.iter_mut().zip(row).zip(norm.weight) {
            *out = value * scale * weight;
        }
    }
}

/// Normalise each row of `x` where it stands.
pub fn rms_norm_in_place(x: &mut [f32], norm: RmsNorm<'_>) {
    let width = norm.weight.len();
    assert!(width > 0 && x.len().is_multiple_of(width));
    for row in x.chunks_exact_mut(width) {
        let scale = norm.scale(row);
        for (value, weight) in row.iter_mut().zip(norm.weight) {
            *value = *value * scale * weight;
        }
    }
}
