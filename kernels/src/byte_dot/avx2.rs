//! Products of bytes with AVX2.
#![allow(unsafe_code, reason = "vector loads through pointers")]
#![allow(
    clippy::needless_range_loop,
    reason = "the same place of several arrays of registers"
)]

use std::arch::x86_64::{
    __m256i, _MM_HINT_T0, _mm_add_epi32, _mm_cvtsi128_si32, _mm_loadu_si128, _mm_prefetch,
    _mm_shuffle_epi32, _mm256_add_epi32, _mm256_castsi256_si128, _mm256_cvtepi8_epi16,
    _mm256_extracti128_si256, _mm256_madd_epi16, _mm256_setzero_si256,
};

/// Bytes that a register holds once they are widened.
const PART: usize = 16;

/// The products of `R` rows, one behind the other, with the query. As many numbers are fetched from `ahead`, which need not be
/// valid.
///
/// # Safety
/// The processor has AVX2, and `rows` has `R` times as many numbers as `query`.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn together<const R: usize>(
    query: &[i8],
    rows: &[i8],
    ahead: *const i8,
) -> [i32; R] {
    let dimensions = query.len();
    debug_assert!(rows.len() == R * dimensions);
    let parts = dimensions / PART;
    let mut sums = [_mm256_setzero_si256(); R];
    for part in 0..parts {
        let at = part.wrapping_mul(PART);
        // SAFETY: sixteen numbers from `at` on are within the query, and within each row.
        unsafe {
            let query = widened(query.as_ptr().add(at));
            _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(at.wrapping_mul(R)));
            for r in 0..R {
                let row = r.wrapping_mul(dimensions).wrapping_add(at);
                let products = _mm256_madd_epi16(query, widened(rows.as_ptr().add(row)));
                sums[r] = _mm256_add_epi32(sums[r], products);
            }
        }
    }
    let rest = parts * PART;
    let mut found = [0; R];
    for r in 0..R {
        let row = &rows[r * dimensions..][..dimensions];
        found[r] = sum(sums[r]).wrapping_add(super::dot(&query[rest..], &row[rest..]));
    }
    found
}

/// Sixteen bytes as words.
///
/// # Safety
/// `from` points at sixteen of them.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn widened(from: *const i8) -> __m256i {
    // SAFETY: as the caller promises; the load needs no alignment.
    unsafe { _mm256_cvtepi8_epi16(_mm_loadu_si128(from.cast())) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn sum(eights: __m256i) -> i32 {
    let high = _mm256_extracti128_si256::<1>(eights);
    let fours = _mm_add_epi32(_mm256_castsi256_si128(eights), high);
    let twos = _mm_add_epi32(fours, _mm_shuffle_epi32::<0b00_00_11_10>(fours));
    _mm_cvtsi128_si32(_mm_add_epi32(
        twos,
        _mm_shuffle_epi32::<0b00_00_00_01>(twos),
    ))
}
