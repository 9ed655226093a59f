//! Dot products with NEON: the eight lanes of a sum are two registers.
#![allow(unsafe_code, reason = "vector loads through pointers")]

use std::arch::aarch64::{
    float32x4_t, vadd_f32, vaddq_f32, vdupq_n_f32, vfmaq_f32, vget_high_f32, vget_low_f32,
    vld1_u16, vld1q_f32, vpadds_f32, vreinterpretq_f32_u32, vshll_n_u16,
};

use half::{bf16, f16};

use super::{LANES, Weight};

/// What holds four numbers.
pub(super) type Register = float32x4_t;

/// Numbers of a register.
const FOUR: usize = 4;

impl Weight for f32 {
    #[inline(always)]
    unsafe fn load(from: *const Self) -> Register {
        // SAFETY: the caller promises four readable numbers and NEON.
        unsafe { vld1q_f32(from) }
    }
}

impl Weight for bf16 {
    #[inline(always)]
    unsafe fn load(from: *const Self) -> Register {
        // SAFETY: the caller promises four readable numbers and NEON.
        unsafe { vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(from.cast()))) }
    }
}

impl Weight for f16 {
    #[inline(always)]
    unsafe fn load(from: *const Self) -> Register {
        // SAFETY: the caller promises four readable numbers and NEON.
        unsafe { crate::neon::widen_halves(vld1_u16(from.cast())) }
    }
}

/// The sum of eight lanes, by halves.
#[target_feature(enable = "neon")]
fn sum_of_lanes(lanes: [Register; 2]) -> f32 {
    let four = vaddq_f32(lanes[0], lanes[1]);
    vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)))
}

/// # Safety
/// The processor has NEON, and all slices have the same length.
#[target_feature(enable = "neon")]
pub(super) unsafe fn dot_tile<W: Weight, const R: usize, const C: usize>(
    x: [&[f32]; R],
    weights: [&[W]; C],
) -> [[f32; C]; R] {
    let length = x[0].len();
    let whole = length - length % LANES;
    let mut sums = [[[vdupq_n_f32(0.0); LANES / FOUR]; C]; R];
    for k in (0..whole).step_by(LANES) {
        for half in 0..LANES / FOUR {
            let k = k + half * FOUR;
            let mut loaded = [vdupq_n_f32(0.0); C];
            // SAFETY: `k + 4 <= length`, the length of every slice.
            unsafe {
                for c in 0..C {
                    loaded[c] = W::load(weights[c].as_ptr().add(k));
                }
                for r in 0..R {
                    let activations = vld1q_f32(x[r].as_ptr().add(k));
                    for c in 0..C {
                        sums[r][c][half] = vfmaq_f32(sums[r][c][half], activations, loaded[c]);
                    }
                }
            }
        }
    }
    let mut out = [[0.0; C]; R];
    for r in 0..R {
        for c in 0..C {
            let mut total = sum_of_lanes(sums[r][c]);
            for k in whole..length {
                let weight: f32 = weights[c][k].into();
                total += x[r][k] * weight;
            }
            out[r][c] = total;
        }
    }
    out
}
