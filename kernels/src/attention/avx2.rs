//! Products of queries with keys and of weights with values, with AVX2 and fused multiply-adds.
#![allow(unsafe_code, reason = "vector loads through pointers")]
#![allow(
    clippy::needless_range_loop,
    reason = "the same place of several arrays of registers"
)]

use std::arch::x86_64::{
    __m256, _mm256_add_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_mul_ps, _mm256_set1_ps,
    _mm256_setzero_ps, _mm256_storeu_ps,
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
