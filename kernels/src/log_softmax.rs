//! Logarithms of probabilities.

/// `ln(sum(exp(logits)))`, summed in double precision. Minus infinity where nothing is finite.
pub fn log_sum_exp(logits: &[f32]) -> f32 {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if highest == f32::NEG_INFINITY {
        return highest;
    }
    let sum: f64 = logits
        .iter()
        .map(|logit| f64::from(logit - highest).exp())
        .sum();
    highest + sum.ln() as f32
}

/// Natural logarithms of the softmax of `logits`.
pub fn log_softmax(logits: &[f32], out: &mut [f32]) {
    assert_eq!(logits.len(), out.len());
    let total = log_sum_exp(logits);
    for (out, logit) in out.iter_mut().zip(logits) {
        *out = logit - total;
    }
}
