//! Layer normalisation: mean and variance of a row to 0 and 1, then a weight and a bias.

/// Normalise each row of `x` (rows of `weight.len()` values) where it stands.
pub fn layer_norm_in_place(x: &mut [f32], weight: &[f32], bias: &[f32], epsilon: f32) {
    let width = weight.len();
    assert!(width > 0 && bias.len() == width && x.len().is_multiple_of(width));
    for row in x.chunks_exact_mut(width) {
        // In double precision: a variance is a small difference of large sums otherwise.
        let mean = row.iter().map(|value| f64::from(*value)).sum::<f64>() / width as f64;
        let square = |value: &f32| (f64::from(*value) - mean).powi(2);
        let variance = row.iter().map(square).sum::<f64>() / width as f64;
        let scale = 1.0 / (variance + f64::from(epsilon)).sqrt();
        for ((value, weight), bias) in row.iter_mut().zip(weight).zip(bias) {
            *value = ((f64::from(*value) - mean) * scale) as f32 * weight + bias;
        }
    }
}
