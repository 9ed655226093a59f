//! Root-mean-square normalisation.

/// Lanes of the running sum: fixed, so that the order of additions is.
const LANES: usize = 8;

/// Normalise each row of `x` (rows of `weight.len()` values) into `out`.
pub fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    let width = weight.len();
    assert!(width > 0 && x.len().is_multiple_of(width) && x.len() == out.len());
    for (row, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        let scale = inverse_root_mean_square(row, epsilon);
        for ((out, value), weight) in out.iter_mut().zip(row).zip(weight) {
            *out = value * scale * weight;
        }
    }
}

/// Normalise each row of `x` where it stands.
pub fn rms_norm_in_place(x: &mut [f32], weight: &[f32], epsilon: f32) {
    let width = weight.len();
    assert!(width > 0 && x.len().is_multiple_of(width));
    for row in x.chunks_exact_mut(width) {
        let scale = inverse_root_mean_square(row, epsilon);
        for (value, weight) in row.iter_mut().zip(weight) {
            *value = *value * scale * weight;
        }
    }
}

fn inverse_root_mean_square(row: &[f32], epsilon: f32) -> f32 {
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
    1.0 / (total / row.len() as f32 + epsilon).sqrt()
}
