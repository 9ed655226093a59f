//! Rounding of activations with AVX2.
#![allow(unsafe_code, reason = "vector loads through pointers")]

use std::arch::x86_64::{
    _mm_add_epi32, _mm_cvtsi128_si32, _mm_cvtss_f32, _mm_max_ps, _mm_max_ss, _mm_movehdup_ps,
    _mm_movehl_ps, _mm_shuffle_epi32, _mm256_and_ps, _mm256_castps256_ps128, _mm256_castsi256_ps,
    _mm256_castsi256_si128, _mm256_cvtps_epi32, _mm256_extractf128_ps, _mm256_extracti128_si256,
    _mm256_loadu_ps, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_max_ps, _mm256_mul_ps,
    _mm256_packs_epi16, _mm256_packs_epi32, _mm256_permutevar8x32_epi32, _mm256_set1_epi8,
    _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setr_epi32, _mm256_storeu_si256,
};

use super::{GROUP, QuantisedGroup};

/// # Safety
/// The processor has AVX2, FMA and F16C; `x` holds a group.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn round_group(x: &[f32], out: &mut QuantisedGroup) {
    debug_assert!(x.len() == GROUP);
    // SAFETY: 32 values are read and written, the length of a group.
    unsafe {
        let load = |part: usize| _mm256_loadu_ps(x.as_ptr().add(8 * part));
        let parts = [load(0), load(1), load(2), load(3)];
        let positive = _mm256_castsi256_ps(_mm256_set1_epi32(i32::MAX));
        let sizes = parts.map(|part| _mm256_and_ps(part, positive));
        let most = _mm256_max_ps(
            _mm256_max_ps(sizes[0], sizes[1]),
            _mm256_max_ps(sizes[2], sizes[3]),
        );
        let four = _mm_max_ps(
            _mm256_castps256_ps128(most),
            _mm256_extractf128_ps::<1>(most),
        );
        let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
        let largest = _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
        let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        let inverse = _mm256_set1_ps(inverse);
        let rounded = parts.map(|part| _mm256_cvtps_epi32(_mm256_mul_ps(part, inverse)));
        let packed = _mm256_packs_epi16(
            _mm256_packs_epi32(rounded[0], rounded[1]),
            _mm256_packs_epi32(rounded[2], rounded[3]),
        );
        // Packing works in halves of the register; this puts the fours back in order.
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        let ordered = _mm256_permutevar8x32_epi32(packed, order);
        _mm256_storeu_si256(out.quants.as_mut_ptr().cast(), ordered);
        let pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), ordered);
        let fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
        let sum = |fours| {
            let twos = _mm_add_epi32(fours, _mm_shuffle_epi32::<0b00_00_11_10>(fours));
            let one = _mm_add_epi32(twos, _mm_shuffle_epi32::<0b00_00_00_01>(twos));
            _mm_cvtsi128_si32(one)
        };
        out.scale = largest / 127.0;
        out.set_sums(
            sum(_mm256_castsi256_si128(fours)),
            sum(_mm256_extracti128_si256::<1>(fours)),
        );
    }
}
