//! Products of queries with keys, their softmax, and products of weights with values, with AVX2 and fused
//! multiply-adds.
#![allow(unsafe_code, reason = "vector loads through pointers")]
#![allow(
    clippy::needless_range_loop,
    reason = "the same place of several arrays of registers"
)]

use std::arch::x86_64::{
    __m256, _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_max_ps, _mm_max_ss, _mm_movehdup_ps,
    _mm_movehl_ps, _mm_set_ss, _mm256_add_epi32, _mm256_add_ps, _mm256_and_ps, _mm256_andnot_si256,
    _mm256_blendv_ps, _mm256_castps_si256, _mm256_castps256_ps128, _mm256_castsi256_ps,
    _mm256_cmpgt_epi32, _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_loadu_ps,
    _mm256_max_ps, _mm256_min_ps, _mm256_mul_ps, _mm256_set1_epi32, _mm256_set1_ps,
    _mm256_setr_epi32, _mm256_setzero_ps, _mm256_slli_epi32, _mm256_storeu_ps, _mm256_sub_epi32,
    _mm256_sub_ps,
};

use crate::kv_page::BLOCK_TOKENS;

/// Numbers of a register.
pub(super) const LANES: usize = 8;
/// Registers that the slots of a block fill.
const SLOTS: usize = BLOCK_TOKENS / LANES;

/// Scaled products of queries with the keys of all slots of a block. Even and odd dimensions are
/// summed apart, which keeps more additions in flight.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) fn scores<const N: usize>(
    queries: [&[f32]; N],
    keys: &[f32],
    scale: f32,
) -> [[f32; BLOCK_TOKENS]; N] {
    let dim = keys.len() / BLOCK_TOKENS;
    assert!(queries.iter().all(|query| query.len() == dim));
    let mut even = [[_mm256_setzero_ps(); SLOTS]; N];
    let mut odd = even;
    let mut out = [[0.0; BLOCK_TOKENS]; N];
    // SAFETY: `dimension` stays below that of the queries and of the keys, which have a block's slots
    // for each; a row of `out` holds a block's slots.
    unsafe {
        let add = |sums: &mut [[__m256; SLOTS]; N], dimension: usize| {
            let keys = keys.as_ptr().add(dimension * BLOCK_TOKENS);
            let keys = [_mm256_loadu_ps(keys), _mm256_loadu_ps(keys.add(LANES))];
            for n in 0..N {
                let query = _mm256_set1_ps(*queries[n].as_ptr().add(dimension));
                for slots in 0..SLOTS {
                    sums[n][slots] = _mm256_fmadd_ps(query, keys[slots], sums[n][slots]);
                }
            }
        };
        let mut dimension = 0;
        while dimension + 1 < dim {
            add(&mut even, dimension);
            add(&mut odd, dimension + 1);
            dimension += 2;
        }
        if dimension < dim {
            add(&mut even, dimension);
        }
        for n in 0..N {
            for slots in 0..SLOTS {
                let sum = _mm256_add_ps(even[n][slots], odd[n][slots]);
                let scaled = _mm256_mul_ps(sum, _mm256_set1_ps(scale));
                _mm256_storeu_ps(out[n].as_mut_ptr().add(slots * LANES), scaled);
            }
        }
    }
    out
}

/// Make weights of the scores of a block, relative to the highest of them and of `highest`: that, and the
/// sum of the weights. Slots outside of those that are seen have weight 0.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) fn weigh(
    scores: &mut [f32; BLOCK_TOKENS],
    (skipped, filled): (usize, usize),
    highest: f32,
) -> (f32, f32) {
    const { assert!(SLOTS == 2) };
    // SAFETY: a block's scores are two registers.
    let (first, second) = unsafe {
        let scores = scores.as_ptr();
        (_mm256_loadu_ps(scores), _mm256_loadu_ps(scores.add(LANES)))
    };
    let all = skipped == 0 && filled == BLOCK_TOKENS;
    let seen = |first_slot: i32| {
        let slots = _mm256_add_epi32(
            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
            _mm256_set1_epi32(first_slot),
        );
        let before = _mm256_cmpgt_epi32(_mm256_set1_epi32(skipped as i32), slots);
        let within = _mm256_cmpgt_epi32(_mm256_set1_epi32(filled as i32), slots);
        _mm256_castsi256_ps(_mm256_andnot_si256(before, within))
    };
    let seen = [seen(0), seen(LANES as i32)];
    let lowest = _mm256_set1_ps(f32::NEG_INFINITY);
    let [first, second] = if all {
        [first, second]
    } else {
        [
            _mm256_blendv_ps(lowest, first, seen[0]),
            _mm256_blendv_ps(lowest, second, seen[1]),
        ]
    };
    let most = _mm256_max_ps(first, second);
    let four = _mm_max_ps(
        _mm256_castps256_ps128(most),
        _mm256_extractf128_ps::<1>(most),
    );
    let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    let one = _mm_max_ss(two, _mm_movehdup_ps(two));
    let highest = _mm_cvtss_f32(_mm_max_ss(one, _mm_set_ss(highest)));
    let base = _mm256_set1_ps(highest);
    let mut weights = [
        exp(_mm256_sub_ps(first, base)),
        exp(_mm256_sub_ps(second, base)),
    ];
    if !all {
        weights = [
            _mm256_and_ps(weights[0], seen[0]),
            _mm256_and_ps(weights[1], seen[1]),
        ];
    }
    // SAFETY: as above.
    unsafe {
        let scores = scores.as_mut_ptr();
        _mm256_storeu_ps(scores, weights[0]);
        _mm256_storeu_ps(scores.add(LANES), weights[1]);
    }
    let sum = _mm256_add_ps(weights[0], weights[1]);
    let four = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps::<1>(sum));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    let total = _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
    (highest, total)
}

/// [`crate::exp::exp`] of eight numbers, with fused multiply-adds.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn exp(x: __m256) -> __m256 {
    let all = |number: f32| _mm256_set1_ps(number);
    // Where a comparison has a NaN, the result is the second operand, so that NaN stays.
    let clamped = _mm256_max_ps(all(-87.0), _mm256_min_ps(all(88.0), x));
    // Adding 1.5 * 2^23 rounds to an integer in the low bits of the mantissa.
    let round = all(12_582_912.0);
    let shifted = _mm256_fmadd_ps(clamped, all(std::f32::consts::LOG2_E), round);
    let power = _mm256_sub_ps(shifted, round);
    let rest = _mm256_fnmadd_ps(power, all(0.693_359_4), clamped);
    let rest = _mm256_fnmadd_ps(power, all(-2.121_944_4e-4), rest);
    let mut series = all(1.987_569_1e-4);
    for coefficient in [
        1.398_199_9e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        1.666_666_5e-1,
        5e-1,
    ] {
        series = _mm256_fmadd_ps(series, rest, all(coefficient));
    }
    let square = _mm256_mul_ps(rest, rest);
    let value = _mm256_fmadd_ps(series, square, _mm256_add_ps(rest, all(1.0)));
    let exponent = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_castps_si256(round));
    let biased = _mm256_add_epi32(exponent, _mm256_set1_epi32(127));
    let scale = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased));
    _mm256_mul_ps(value, scale)
}

/// Add columns `first..first + REGISTERS * 8` of the value rows of slots, `dim` numbers each and each
/// times its weight, to the sums of queries.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) fn add_columns<const N: usize, const REGISTERS: usize>(
    sums: &mut [f32],
    queries: [usize; N],
    weights: [&[f32]; N],
    values: &[f32],
    (first, dim): (usize, usize),
) {
    let slots = values.len() / dim;
    assert!(first + REGISTERS * LANES <= dim);
    assert!(queries.iter().all(|query| (query + 1) * dim <= sums.len()));
    assert!(weights.iter().all(|weights| weights.len() >= slots));
    let mut parts = [[_mm256_setzero_ps(); REGISTERS]; N];
    // SAFETY: the columns lie within each row of values and of sums, and there is a weight for each
    // slot, all checked above.
    unsafe {
        let place = |n: usize| queries[n] * dim + first;
        for n in 0..N {
            for register in 0..REGISTERS {
                let at = place(n) + register * LANES;
                parts[n][register] = _mm256_loadu_ps(sums.as_ptr().add(at));
            }
        }
        for slot in 0..slots {
            let row = values.as_ptr().add(slot * dim + first);
            let mut value = [_mm256_setzero_ps(); REGISTERS];
            for register in 0..REGISTERS {
                value[register] = _mm256_loadu_ps(row.add(register * LANES));
            }
            for n in 0..N {
                let weight = _mm256_set1_ps(*weights[n].as_ptr().add(slot));
                for register in 0..REGISTERS {
                    let sum = parts[n][register];
                    parts[n][register] = _mm256_fmadd_ps(weight, value[register], sum);
                }
            }
        }
        for n in 0..N {
            for register in 0..REGISTERS {
                let at = place(n) + register * LANES;
                _mm256_storeu_ps(sums.as_mut_ptr().add(at), parts[n][register]);
            }
        }
    }
}
