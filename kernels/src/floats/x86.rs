//! Sixteen numbers in two registers of AVX2 or one of AVX-512.
#![allow(unsafe_code, reason = "vector loads through pointers")]

use std::arch::x86_64::{
    __m256, __m512, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm256_add_ps, _mm256_and_si256,
    _mm256_castsi256_ps, _mm256_cvtph_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256,
    _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps, _mm256_slli_epi32, _mm256_storeu_ps,
    _mm512_add_ps, _mm512_and_si512, _mm512_broadcast_i64x4, _mm512_castsi512_ps, _mm512_cvtph_ps,
    _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setr_epi32,
    _mm512_setzero_ps, _mm512_sllv_epi32, _mm512_storeu_ps,
};

use half::{bf16, f16};

use super::tile::{self, Operands, Sixteen, Weight, by_size};
use super::{FloatType, PANEL_ROWS};

/// The bits that brain floats and single precision share.
const UPPER: i32 = 0xffff_0000_u32 as i32;

/// The sixteen rows of a panel in two 256-bit registers: rows 0 to 7 and rows 8 to 15.
#[derive(Clone, Copy)]
struct Avx2([__m256; 2]);

impl Sixteen for Avx2 {
    #[inline(always)]
    unsafe fn zeros() -> Self {
        // SAFETY: the caller promises AVX2, FMA and F16C, here and below.
        unsafe { Self([_mm256_setzero_ps(); 2]) }
    }

    #[inline(always)]
    unsafe fn add_products(self, x: f32, weights: Self) -> Self {
        // SAFETY: as above.
        unsafe {
            let x = _mm256_set1_ps(x);
            Self([
                _mm256_fmadd_ps(x, weights.0[0], self.0[0]),
                _mm256_fmadd_ps(x, weights.0[1], self.0[1]),
            ])
        }
    }

    #[inline(always)]
    unsafe fn add_to(self, sums: &mut [f32; PANEL_ROWS]) {
        // SAFETY: as above, and both halves lie within the sums.
        unsafe {
            let [low, high] = [sums.as_mut_ptr(), sums.as_mut_ptr().add(8)];
            _mm256_storeu_ps(low, _mm256_add_ps(_mm256_loadu_ps(low), self.0[0]));
            _mm256_storeu_ps(high, _mm256_add_ps(_mm256_loadu_ps(high), self.0[1]));
        }
    }

    #[inline(always)]
    unsafe fn fetch(from: *const u8) {
        // SAFETY: a hint, which no address makes wrong.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }
}

impl Weight<Avx2> for f32 {
    #[inline(always)]
    unsafe fn load(from: *const Self) -> Avx2 {
        // SAFETY: the caller promises sixteen numbers and AVX2, here and below.
        unsafe { Avx2([_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))]) }
    }
}

impl Weight<Avx2> for f16 {
    #[inline(always)]
    unsafe fn load(from: *const Self) -> Avx2 {
        // SAFETY: as above, with F16C.
        unsafe {
            let eight = |at: usize| _mm256_cvtph_ps(_mm_loadu_si128(from.add(at).cast()));
            Avx2([eight(0), eight(8)])
        }
    }
}

impl Weight<Avx2> for bf16 {
    #[inline(always)]
    unsafe fn load(from: *const Self) -> Avx2 {
        // SAFETY: as above.
        unsafe {
            let words = _mm256_loadu_si256(from.cast());
            Avx2([
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words)),
                _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(UPPER))),
            ])
        }
    }
}

/// The sixteen rows of a panel in one 512-bit register.
#[derive(Clone, Copy)]
struct Avx512(__m512);

impl Sixteen for Avx512 {
    #[inline(always)]
    unsafe fn zeros() -> Self {
        // SAFETY: the caller promises AVX-512, here and below.
        unsafe { Self(_mm512_setzero_ps()) }
    }

    #[inline(always)]
    unsafe fn add_products(self, x: f32, weights: Self) -> Self {
        // SAFETY: as above.
        unsafe { Self(_mm512_fmadd_ps(_mm512_set1_ps(x), weights.0, self.0)) }
    }

    #[inline(always)]
    unsafe fn add_to(self, sums: &mut [f32; PANEL_ROWS]) {
        // SAFETY: as above.
        unsafe {
            let sum = _mm512_add_ps(_mm512_loadu_ps(sums.as_ptr()), self.0);
            _mm512_storeu_ps(sums.as_mut_ptr(), sum);
        }
    }

    #[inline(always)]
    unsafe fn fetch(from: *const u8) {
        // SAFETY: a hint, which no address makes wrong.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }
}

impl Weight<Avx512> for f32 {
    #[inline(always)]
    unsafe fn load(from: *const Self) -> Avx512 {
        // SAFETY: the caller promises sixteen numbers and AVX-512, here and below.
        unsafe { Avx512(_mm512_loadu_ps(from)) }
    }
}

impl Weight<Avx512> for f16 {
    #[inline(always)]
    unsafe fn load(from: *const Self) -> Avx512 {
        // SAFETY: as above.
        unsafe { Avx512(_mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))) }
    }
}

impl Weight<Avx512> for bf16 {
    #[inline(always)]
    unsafe fn load(from: *const Self) -> Avx512 {
        // SAFETY: as above.
        unsafe {
            // The words twice: of the first eight the lower halves, of the others the upper ones.
            let words = _mm512_broadcast_i64x4(_mm256_loadu_si256(from.cast()));
            let shifts = _mm512_setr_epi32(16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0);
            let shifted = _mm512_sllv_epi32(words, shifts);
            Avx512(_mm512_castsi512_ps(_mm512_and_si512(
                shifted,
                _mm512_set1_epi32(UPPER),
            )))
        }
    }
}

/// The products of the rows of a tile with its panels.
///
/// # Safety
/// The processor has AVX2, FMA and F16C, and the operands are those of so many rows and panels, a size
/// that there is.
pub(super) unsafe fn tile_of_avx2(kind: FloatType, size: (usize, usize), operands: Operands) {
    // SAFETY: as the caller promises.
    unsafe { by_size!(kind, size, avx2(operands)) }
}

/// The tile product with 512-bit registers.
///
/// # Safety
/// As for [`tile_of_avx2`], and the processor has AVX-512 F.
pub(super) unsafe fn tile_of_avx512(kind: FloatType, size: (usize, usize), operands: Operands) {
    // SAFETY: as the caller promises.
    unsafe {
        by_size!(
            kind, size, avx512(operands);
            (1, 1) (1, 4) (2, 1) (2, 4) (3, 1) (3, 2) (4, 1) (4, 2) (5, 1) (5, 2) (6, 1) (7, 1)
            (8, 1) (9, 1) (10, 1) (11, 1) (12, 1)
        )
    }
}

/// # Safety
/// As [`tile::tile`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn avx2<W: Weight<Avx2>, const R: usize, const P: usize>(operands: Operands) {
    // SAFETY: as the caller promises.
    unsafe { tile::tile::<Avx2, W, R, P>(operands) }
}

/// # Safety
/// As [`tile::tile`].
#[target_feature(enable = "avx2,fma,f16c,avx512f")]
unsafe fn avx512<W: Weight<Avx512>, const R: usize, const P: usize>(operands: Operands) {
    // SAFETY: as the caller promises.
    unsafe { tile::tile::<Avx512, W, R, P>(operands) }
}
