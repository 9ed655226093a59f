//! The gate of the feed-forward layer: `silu(gate) * up`.

use crate::exp::exp;

/// For each row of `gate_up` (`width` gates, then `width` ups) write `width` products to `out`.
pub fn silu_mul(gate_up: &[f32], width: usize, out: &mut [f32]) {
    assert!(width > 0 && out.len().is_multiple_of(width) && gate_up.len() == 2 * out.len());
    for (row, out) in gate_up
        .chunks_exact(2 * width)
        .zip(out.chunks_exact_mut(width))
    {
        let (gates, ups) = row.split_at(width);
        for ((out, gate), up) in out.iter_mut().zip(gates).zip(ups) {
            *out = gate / (1.0 + exp(-gate)) * up;
        }
    }
}
