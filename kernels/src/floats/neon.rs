//! Sixteen numbers in four registers of NEON.
#![allow(unsafe_code, reason = "vector loads through pointers")]

use std::arch::aarch64::{
    float32x4_t, vaddq_f32, vandq_u32, vdupq_n_f32, vdupq_n_u32, vfmaq_f32, vld1_u16, vld1q_f32,
    vld1q_u32, vreinterpretq_f32_u32, vshlq_n_u32, vst1q_f32,
};

use half::{bf16, f16};

use super::tile::{self, Operands, Sixteen, Weight, by_size};
use super::{FloatType, PANEL_ROWS};

/// Four rows of a panel in each.
#[derive(Clone, Copy)]
struct Neon([float32x4_t; 4]);

impl Sixteen for Neon {
    #[inline(always)]
    unsafe fn zeros() -> Self {
        // SAFETY: the caller promises NEON, here and below.
        unsafe { Self([vdupq_n_f32(0.0); 4]) }
    }

    #[inline(always)]
    unsafe fn add_products(self, x: f32, weights: Self) -> Self {
        // SAFETY: as above.
        unsafe {
            let x = vdupq_n_f32(x);
            let [a, b, c, d] = self.0;
            Self([
                vfmaq_f32(a, x, weights.0[0]),
                vfmaq_f32(b, x, weights.0[1]),
                vfmaq_f32(c, x, weights.0[2]),
                vfmaq_f32(d, x, weights.0[3]),
            ])
        }
    }

    #[inline(always)]
    unsafe fn add_to(self, sums: &mut [f32; PANEL_ROWS]) {
        let (fours, _) = sums.as_chunks_mut::<4>();
        for (sums, numbers) in fours.iter_mut().zip(self.0) {
            // SAFETY: as above.
            unsafe {
                vst1q_f32(
                    sums.as_mut_ptr(),
                    vaddq_f32(vld1q_f32(sums.as_ptr()), numbers),
                );
            }
        }
    }
}

impl Weight<Neon> for f32 {
    #[inline(always)]
    unsafe fn load(from: *const Self) -> Neon {
        // SAFETY: the caller promises sixteen numbers and NEON, here and below.
        unsafe {
            let four = |at: usize| vld1q_f32(from.add(at));
            Neon([four(0), four(4), four(8), four(12)])
        }
    }
}

impl Weight<Neon> for f16 {
    #[inline(always)]
    unsafe fn load(from: *const Self) -> Neon {
        // SAFETY: as above.
        unsafe {
            let four = |at: usize| crate::neon::widen_halves(vld1_u16(from.add(at).cast()));
            Neon([four(0), four(4), four(8), four(12)])
        }
    }
}

impl Weight<Neon> for bf16 {
    #[inline(always)]
    unsafe fn load(from: *const Self) -> Neon {
        // SAFETY: as above; two numbers are a word.
        unsafe {
            let words = [vld1q_u32(from.cast()), vld1q_u32(from.add(8).cast())];
            let upper = vdupq_n_u32(0xffff_0000);
            Neon([
                vreinterpretq_f32_u32(vshlq_n_u32::<16>(words[0])),
                vreinterpretq_f32_u32(vshlq_n_u32::<16>(words[1])),
                vreinterpretq_f32_u32(vandq_u32(words[0], upper)),
                vreinterpretq_f32_u32(vandq_u32(words[1], upper)),
            ])
        }
    }
}

/// The products of the rows of a tile with its panels.
///
/// # Safety
/// The processor has NEON, and the operands are those of so many rows and panels, a size that there is.
pub(super) unsafe fn tile(kind: FloatType, size: (usize, usize), operands: Operands) {
    // SAFETY: as the caller promises.
    unsafe { by_size!(kind, size, neon(operands)) }
}

/// # Safety
/// As [`tile::tile`].
#[target_feature(enable = "neon")]
unsafe fn neon<W: Weight<Neon>, const R: usize, const P: usize>(operands: Operands) {
    // SAFETY: as the caller promises.
    unsafe { tile::tile::<Neon, W, R, P>(operands) }
}
