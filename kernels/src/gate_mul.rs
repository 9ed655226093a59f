//! The gate of the feed-forward layer: `activation(gate) * up`.

use crate::exp::{exp, tanh};

/// Rows that one task computes.
const ROWS_A_TASK: usize = 8;

/// Activation of a gate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Activation {
    /// `gate * sigmoid(gate)`.
    Silu,
    /// The Gaussian error linear unit, as approximated with a hyperbolic tangent.
    GeluTanh,
    /// `gate * sigmoid(alpha * gate)` of a gate of at most `limit`; ups are clamped to
    /// `[-limit, limit]` and raised by 1.
    ClampedSwish {
        /// Steepness.
        alpha: f32,
        /// Bound.
        limit: f32,
    },
}

/// For each row of `gate_up` (`width` gates, then `width` ups) write `width` products to `out`.
pub fn gate_mul(activation: Activation, gate_up: &[f32], width: usize, out: &mut [f32]) {
    assert!(width > 0 && out.len().is_multiple_of(width) && gate_up.len() == 2 * out.len());
    // An activation costs about as much as sixteen multiply-adds.
    if crate::worth_sharing(16 * out.len()) {
        let piece = ROWS_A_TASK * width;
        crate::pool::for_each_piece(out, piece, |task, out| {
            let gate_up = &gate_up[2 * task * piece..][..2 * out.len()];
            gate_some_rows(activation, gate_up, width, out);
        });
    } else {
        gate_some_rows(activation, gate_up, width, out);
    }
}

/// Gate rows on the calling thread.
pub(crate) fn gate_some_rows(
    activation: Activation,
    gate_up: &[f32],
    width: usize,
    out: &mut [f32],
) {
    #[cfg(target_arch = "x86_64")]
    if crate::has_avx2_fma() {
        // SAFETY: the processor has the features that the function is compiled for.
        #[allow(unsafe_code, reason = "calls a function compiled for checked features")]
        unsafe {
            gate_mul_avx2(activation, gate_up, width, out);
        }
        return;
    }
    rows(activation, gate_up, width, out);
}

/// Gate rows with AVX2, eight values at a time.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn gate_mul_avx2(activation: Activation, gate_up: &[f32], width: usize, out: &mut [f32]) {
    rows(activation, gate_up, width, out);
}

#[inline(always)]
fn rows(activation: Activation, gate_up: &[f32], width: usize, out: &mut [f32]) {
    match activation {
        Activation::Silu => each(gate_up, width, out, |gate, up| silu(gate) * up),
        Activation::GeluTanh => each(gate_up, width, out, |gate, up| gelu_tanh(gate) * up),
        Activation::ClampedSwish { alpha, limit } => {
            each(gate_up, width, out, |gate, up| {
                let gate = if gate > limit { limit } else { gate };
                let up = if up > limit { limit } else { up };
                let up = if up < -limit { -limit } else { up };
                (up + 1.0) * (gate / (1.0 + exp(-alpha * gate)))
            });
        }
    }
}

#[inline(always)]
fn each(gate_up: &[f32], width: usize, out: &mut [f32], product: impl Fn(f32, f32) -> f32) {
    let rows = gate_up.chunks_exact(2 * width);
    for (row, out) in rows.zip(out.chunks_exact_mut(width)) {
        let (gates, ups) = row.split_at(width);
        for ((out, gate), up) in out.iter_mut().zip(gates).zip(ups) {
            *out = product(*gate, *up);
        }
    }
}

#[inline(always)]
fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

#[inline(always)]
fn gelu_tanh(x: f32) -> f32 {
    /// The square root of 2 / pi.
    const FACTOR: f32 = 0.797_884_6;
    const CUBIC: f32 = 0.044_715;
    0.5 * x * (1.0 + tanh(FACTOR * (x + CUBIC * x * x * x)))
}
