//! Dot products with AVX2 and fused multiply-adds.
#![allow(unsafe_code, reason = "vector loads through pointers")]

use std::arch::x86_64::{
    __m128i, __m256, _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_loadu_si128, _mm_movehdup_ps,
    _mm_movehl_ps, _mm256_castps256_ps128, _mm256_castsi256_ps, _mm256_cvtepu16_epi32,
    _mm256_cvtph_ps, _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps,
    _mm256_slli_epi32,
};

use half::{bf16, f16};

use super::{LANES, Weight};

/// What holds eight numbers.
pub(super) type Register = __m256;

impl Weight for f32 {
    #[inline(always)]
    unsafe fn load(from: *const Self) -> Register {
        // SAFETY: the caller promises eight readable numbers and AVX2.
        unsafe { _mm256_loadu_ps(from) }
    }
}

impl Weight for bf16 {
    #[inline(always)]
    unsafe fn load(from: *const Self) -> Register {
        // SAFETY: the caller promises eight readable numbers and AVX2.
        unsafe {
            let halves = _mm_loadu_si128(from.cast::<__m128i>());
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(halves)))
        }
    }
}

impl Weight for f16 {
    #[inline(always)]
    unsafe fn load(from: *const Self) -> Register {
        // SAFETY: the caller promises eight readable numbers and F16C.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast::<__m128i>())) }
    }
}

/// The sum of eight lanes, by halves.
#[target_feature(enable = "avx2,fma,f16c")]
fn sum_of_lanes(lanes: __m256) -> f32 {
    let four = _mm_add_ps(
        _mm256_castps256_ps128(lanes),
        _mm256_extractf128_ps::<1>(lanes),
    );
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
}

/// # Safety
/// The processor has AVX2, FMA and F16C, and all slices have the same length.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn dot_tile<W: Weight, const R: usize, const C: usize>(
    x: [&[f32]; R],
    weights: [&[W]; C],
) -> [[f32; C]; R] {
    let length = x[0].len();
    let whole = length - length % LANES;
    let mut sums = [[_mm256_setzero_ps(); C]; R];
    let mut k = 0;
    while k < whole {
        // SAFETY: `k + 8 <= length`, the length of every slice.
        unsafe {
            let mut loaded = [_mm256_setzero_ps(); C];
            for c in 0..C {
                loaded[c] = W::load(weights[c].as_ptr().add(k));
            }
            for r in 0..R {
                let activations = _mm256_loadu_ps(x[r].as_ptr().add(k));
                for c in 0..C {
                    sums[r][c] = _mm256_fmadd_ps(activations, loaded[c], sums[r][c]);
                }
            }
        }
        k += LANES;
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
