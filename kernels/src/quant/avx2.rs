//! Dot products and rounding with AVX2. Sums over a group are integers and so exact; groups are
//! added up in two accumulators by turns, whatever the number of rows, so that a row's result does
//! not depend on the rows beside it.
#![allow(unsafe_code, reason = "vector loads through pointers")]

use std::arch::x86_64::{
    __m128i, __m256, __m256i, _mm_add_ps, _mm_add_ss, _mm_cvtph_ps, _mm_cvtsi32_si128,
    _mm_cvtss_f32, _mm_loadu_si128, _mm_max_ps, _mm_max_ss, _mm_movehdup_ps, _mm_movehl_ps,
    _mm_set1_ps, _mm_srli_epi16, _mm256_abs_epi8, _mm256_add_ps, _mm256_and_ps, _mm256_and_si256,
    _mm256_castps256_ps128, _mm256_castsi128_si256, _mm256_castsi256_ps, _mm256_cmpeq_epi8,
    _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps, _mm256_cvtepu8_epi32, _mm256_cvtps_epi32,
    _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_inserti128_si256, _mm256_loadu_ps,
    _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_max_ps, _mm256_mul_ps,
    _mm256_or_si256, _mm256_packs_epi16, _mm256_packs_epi32, _mm256_permutevar8x32_epi32,
    _mm256_set_m128, _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_epi64x,
    _mm256_set1_ps, _mm256_setr_epi32, _mm256_setr_epi64x, _mm256_setzero_ps, _mm256_shuffle_epi8,
    _mm256_sign_epi8, _mm256_srl_epi16, _mm256_storeu_ps, _mm256_storeu_si256, _mm256_sub_epi8,
    _mm256_sub_ps,
};

use super::layout::{FP4_DOUBLED, IQ4_STEPS, half_power, iq4_xs_scale};
use super::{BlockType, GROUP, QuantisedRow};

/// The scales and minima of the halves of a block's groups, as many as it has.
struct Parameters {
    scales: [f32; 16],
    mins: [f32; 16],
}

/// How vectors read a block format. Pointers are to one whole block; the processor has AVX2, FMA and
/// F16C. The functions are inlined into code compiled for these.
trait Format {
    const KIND: BlockType;
    /// Whether groups have a minimum.
    const MINS: bool = false;
    /// Whether the halves of a group have scales of their own.
    const HALVES: bool = false;

    /// # Safety
    /// See the trait.
    unsafe fn parameters(block: *const u8) -> Parameters;

    /// The integers of a group.
    ///
    /// # Safety
    /// See the trait; `group` is below the number of groups.
    unsafe fn quants(block: *const u8, group: usize) -> __m256i;
}

/// # Safety
/// The processor has AVX2, FMA and F16C; `weights` is whole blocks; every row has as many groups.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn dot_rows<const R: usize>(
    kind: BlockType,
    x: [QuantisedRow<'_>; R],
    weights: &[u8],
) -> [f32; R] {
    // SAFETY: what each function asks for is what the caller promises.
    unsafe {
        match kind {
            BlockType::Q4_0 => short::<Q4_0, R>(x, weights),
            BlockType::Q4_1 => short::<Q4_1, R>(x, weights),
            BlockType::Q5_0 => short::<Q5_0, R>(x, weights),
            BlockType::Q5_1 => short::<Q5_1, R>(x, weights),
            BlockType::Q8_0 => short::<Q8_0, R>(x, weights),
            BlockType::Iq4Nl => short::<Iq4Nl, R>(x, weights),
            BlockType::Mxfp4 => short::<Mxfp4, R>(x, weights),
            BlockType::Q2K => long::<Q2K, R>(x, weights),
            BlockType::Q3K => long::<Q3K, R>(x, weights),
            BlockType::Q4K => long::<Q4K, R>(x, weights),
            BlockType::Q5K => long::<Q5K, R>(x, weights),
            BlockType::Q6K => long::<Q6K, R>(x, weights),
            BlockType::Iq4Xs => long::<Iq4Xs, R>(x, weights),
        }
    }
}

/// Blocks of one group.
///
/// # Safety
/// As [`dot_rows`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn short<F: Format, const R: usize>(x: [QuantisedRow<'_>; R], weights: &[u8]) -> [f32; R] {
    let blocks = weights.len() / F::KIND.bytes();
    let mut sums = [[_mm256_setzero_ps(); 2]; R];
    let mut mins = [0.0_f32; R];
    // SAFETY: `at` stays below the number of blocks, which is that of groups of every row.
    unsafe {
        let step = |sums: &mut [[__m256; 2]; R], mins: &mut [f32; R], at: usize, turn: usize| {
            let block = weights.as_ptr().add(at * F::KIND.bytes());
            let parameters = F::parameters(block);
            add_group::<F, R>(sums, &x, &parameters, (block, 0, at), turn);
            if F::MINS {
                for r in 0..R {
                    let halves = x[r].sums.as_ptr().add(2 * at);
                    mins[r] += parameters.mins[0] * (*halves + *halves.add(1));
                }
            }
        };
        let mut at = 0;
        while at + 1 < blocks {
            step(&mut sums, &mut mins, at, 0);
            step(&mut sums, &mut mins, at + 1, 1);
            at += 2;
        }
        if at < blocks {
            step(&mut sums, &mut mins, at, 0);
        }
    }
    let mut out = [0.0; R];
    for r in 0..R {
        out[r] = sum_of_lanes(_mm256_add_ps(sums[r][0], sums[r][1])) - mins[r];
    }
    out
}

/// Blocks of eight groups.
///
/// # Safety
/// As [`dot_rows`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn long<F: Format, const R: usize>(x: [QuantisedRow<'_>; R], weights: &[u8]) -> [f32; R] {
    let mut sums = [[_mm256_setzero_ps(); 2]; R];
    let mut mins = [_mm256_setzero_ps(); R];
    for at in 0..weights.len() / F::KIND.bytes() {
        // SAFETY: block `at` is whole, and groups `8 * at..` and `8 * at + 8` of every row exist.
        unsafe {
            let block = weights.as_ptr().add(at * F::KIND.bytes());
            let parameters = F::parameters(block);
            macro_rules! groups {
                ($($group:literal)*) => {
                    $(add_group::<F, R>(
                        &mut sums, &x, &parameters, (block, $group, 8 * at + $group), $group % 2,
                    );)*
                };
            }
            groups!(0 1 2 3 4 5 6 7);
            if F::MINS {
                for part in 0..2 {
                    let min = _mm256_loadu_ps(parameters.mins.as_ptr().add(8 * part));
                    for r in 0..R {
                        let halves = _mm256_loadu_ps(x[r].sums.as_ptr().add(16 * at + 8 * part));
                        mins[r] = _mm256_fmadd_ps(min, halves, mins[r]);
                    }
                }
            }
        }
    }
    let mut out = [0.0; R];
    for r in 0..R {
        let sum = _mm256_add_ps(sums[r][0], sums[r][1]);
        out[r] = sum_of_lanes(_mm256_sub_ps(sum, mins[r]));
    }
    out
}

/// Add the products of a group, which is number `group` of its block and `at` of the row.
///
/// # Safety
/// As [`Format::quants`], and every row has a group `at`.
#[inline(always)]
unsafe fn add_group<F: Format, const R: usize>(
    sums: &mut [[__m256; 2]; R],
    x: &[QuantisedRow<'_>; R],
    parameters: &Parameters,
    (block, group, at): (*const u8, usize, usize),
    turn: usize,
) {
    // SAFETY: promised by the caller.
    unsafe {
        let weights = F::quants(block, group);
        let sizes = _mm256_abs_epi8(weights);
        let scale = if F::HALVES {
            let half = |half: usize| _mm_set1_ps(parameters.scales[2 * group + half]);
            _mm256_set_m128(half(1), half(0))
        } else {
            _mm256_set1_ps(parameters.scales[2 * group])
        };
        for r in 0..R {
            let quants = _mm256_loadu_si256(x[r].quants.as_ptr().add(at * GROUP).cast());
            // Signs move to the activations, since one factor must be unsigned. A pair's sum is at most
            // 2 * 128 * 127, which fits sixteen bits.
            let pairs = _mm256_maddubs_epi16(sizes, _mm256_sign_epi8(quants, weights));
            let fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
            let step = _mm256_mul_ps(scale, _mm256_set1_ps(*x[r].scales.as_ptr().add(at)));
            sums[r][turn] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(fours), step, sums[r][turn]);
        }
    }
}

/// # Safety
/// The processor has AVX2, FMA and F16C; both slices hold a group.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn round_group(x: &[f32], quants: &mut [i8]) -> f32 {
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
        _mm256_storeu_si256(quants.as_mut_ptr().cast(), ordered);
        largest / 127.0
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

/// The half-precision number at a byte.
#[inline(always)]
unsafe fn half_at(block: *const u8, at: usize) -> f32 {
    // SAFETY: the caller promises two bytes there, and F16C.
    unsafe {
        let bits = i32::from(block.add(at).cast::<u16>().read_unaligned());
        _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)))
    }
}

#[inline(always)]
unsafe fn load_16(from: *const u8) -> __m128i {
    // SAFETY: the caller promises sixteen bytes there.
    unsafe { _mm_loadu_si128(from.cast()) }
}

#[inline(always)]
unsafe fn load_32(from: *const u8) -> __m256i {
    // SAFETY: the caller promises 32 bytes there, and AVX.
    unsafe { _mm256_loadu_si256(from.cast()) }
}

/// Bits `shift..` of every byte, as many as `mask` keeps.
#[inline(always)]
unsafe fn field(bytes: __m256i, shift: usize, mask: i8) -> __m256i {
    // SAFETY: the caller promises AVX2.
    unsafe {
        let shifted = _mm256_srl_epi16(bytes, _mm_cvtsi32_si128(shift as i32));
        _mm256_and_si256(shifted, _mm256_set1_epi8(mask))
    }
}

/// Sixteen bytes as 32 nibbles, the low ones first.
#[inline(always)]
unsafe fn nibbles(from: *const u8) -> __m256i {
    // SAFETY: the caller promises sixteen bytes there, and AVX2.
    unsafe {
        let bytes = load_16(from);
        let high = _mm_srli_epi16::<4>(bytes);
        let both = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(bytes), high);
        _mm256_and_si256(both, _mm256_set1_epi8(15))
    }
}

/// The value 16 in byte `k` where bit `k` of four bytes is set.
#[inline(always)]
unsafe fn sixteens(from: *const u8) -> __m256i {
    // SAFETY: the caller promises four bytes there, and AVX2.
    unsafe {
        let bits = _mm256_set1_epi32(from.cast::<i32>().read_unaligned());
        let spread = _mm256_setr_epi64x(
            0,
            0x0101_0101_0101_0101,
            0x0202_0202_0202_0202,
            0x0303_0303_0303_0303,
        );
        let one_each = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
        let own = _mm256_and_si256(_mm256_shuffle_epi8(bits, spread), one_each);
        let set = _mm256_cmpeq_epi8(own, one_each);
        _mm256_and_si256(set, _mm256_set1_epi8(16))
    }
}

/// The values that nibbles stand for.
#[inline(always)]
unsafe fn look_up(table: &[i8; 16], nibbles: __m256i) -> __m256i {
    // SAFETY: the table has sixteen bytes; the caller promises AVX2.
    unsafe {
        let table = load_16(table.as_ptr().cast());
        let both = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(table), table);
        _mm256_shuffle_epi8(both, nibbles)
    }
}

/// Parameters of a format whose blocks are one group.
#[inline(always)]
fn single(scale: f32, min: f32) -> Parameters {
    Parameters {
        scales: [scale; 16],
        mins: [min; 16],
    }
}

/// Six-bit scales and minima of `Q4_K` and `Q5_K`.
#[inline(always)]
unsafe fn six_bit_parameters(block: *const u8) -> Parameters {
    // SAFETY: the caller promises a block, whose bytes 4..16 hold them, and AVX2.
    unsafe {
        let word = |at: usize| block.add(4 + 4 * at).cast::<u32>().read_unaligned();
        let (first, second, third) = (word(0), word(1), word(2));
        let (low, high) = (0x0f0f_0f0f, 0x0303_0303);
        let spread = |words: [u32; 2]| u64::from(words[0]) | u64::from(words[1]) << 32;
        let scales = spread([first & 0x3f3f_3f3f, third & low | (first >> 6 & high) << 4]);
        let mins = spread([
            second & 0x3f3f_3f3f,
            third >> 4 & low | (second >> 6 & high) << 4,
        ]);
        let widen = |bytes: u64, unit: f32| {
            let mut out = [0.0; 16];
            // Each number stands for both halves of its group.
            for part in 0..2 {
                let four = (bytes >> (32 * part)) as u32;
                let twice = _mm256_setr_epi32(
                    (four & 255) as i32,
                    (four & 255) as i32,
                    (four >> 8 & 255) as i32,
                    (four >> 8 & 255) as i32,
                    (four >> 16 & 255) as i32,
                    (four >> 16 & 255) as i32,
                    (four >> 24) as i32,
                    (four >> 24) as i32,
                );
                let numbers = _mm256_mul_ps(_mm256_cvtepi32_ps(twice), _mm256_set1_ps(unit));
                _mm256_storeu_ps(out.as_mut_ptr().add(8 * part), numbers);
            }
            out
        };
        Parameters {
            scales: widen(scales, half_at(block, 0)),
            mins: widen(mins, half_at(block, 2)),
        }
    }
}

/// Sixteen integers times a unit.
#[inline(always)]
unsafe fn sixteen(wide: [__m256i; 2], unit: f32) -> [f32; 16] {
    let mut out = [0.0; 16];
    // SAFETY: sixteen numbers are written; the caller promises AVX2.
    unsafe {
        for (part, wide) in wide.into_iter().enumerate() {
            let numbers = _mm256_mul_ps(_mm256_cvtepi32_ps(wide), _mm256_set1_ps(unit));
            _mm256_storeu_ps(out.as_mut_ptr().add(8 * part), numbers);
        }
    }
    out
}

mod formats;
use formats::{Iq4Nl, Iq4Xs, Mxfp4, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
