//! Products of queries with keys and of weights with values, with NEON.
#![allow(unsafe_code, reason = "vector loads through pointers")]
#![allow(
    clippy::needless_range_loop,
    reason = "the same place of several arrays of registers"
)]

use std::arch::aarch64::{
    float32x4_t, vaddq_f32, vdupq_n_f32, vfmaq_n_f32, vld1q_f32, vmulq_n_f32, vst1q_f32,
};

use crate::kv_page::BLOCK_TOKENS;

/// Numbers of a register.
pub(super) const LANES: usize = 4;
/// Registers that the slots of a block fill.
const SLOTS: usize = BLOCK_TOKENS / LANES;

/// Scaled products of queries with the keys of all slots of a block. Even and odd dimensions are
/// summed apart, which keeps more additions in flight.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn scores<const N: usize>(
    queries: [&[f32]; N],
    keys: &[f32],
    scale: f32,
) -> [[f32; BLOCK_TOKENS]; N] {
    let (dimensions, rest) = keys.as_chunks::<BLOCK_TOKENS>();
    assert!(rest.is_empty());
    assert!(queries.iter().all(|query| query.len() == dimensions.len()));
    let mut sums = [[[vdupq_n_f32(0.0); SLOTS]; N]; 2];
    let add = |sums: &mut [[float32x4_t; SLOTS]; N], dimension: usize| {
        let keys = &dimensions[dimension];
        for slots in 0..SLOTS {
            // SAFETY: a block has four slots for each register.
            let keys = unsafe { vld1q_f32(keys.as_ptr().add(slots * LANES)) };
            for n in 0..N {
                sums[n][slots] = vfmaq_n_f32(sums[n][slots], keys, queries[n][dimension]);
            }
        }
    };
    let [even, odd] = &mut sums;
    for dimension in (0..dimensions.len() - dimensions.len() % 2).step_by(2) {
        add(even, dimension);
        add(odd, dimension + 1);
    }
    if !dimensions.len().is_multiple_of(2) {
        add(even, dimensions.len() - 1);
    }
    let mut out = [[0.0; BLOCK_TOKENS]; N];
    for n in 0..N {
        for slots in 0..SLOTS {
            let scaled = vmulq_n_f32(vaddq_f32(even[n][slots], odd[n][slots]), scale);
            // SAFETY: a block has four slots for each register.
            unsafe {
                vst1q_f32(out[n].as_mut_ptr().add(slots * LANES), scaled);
            }
        }
    }
    out
}

/// Add columns `first..first + REGISTERS * 4` of the value rows of slots, `dim` numbers each and each
/// times its weight, to the sums of queries.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn add_columns<const N: usize, const REGISTERS: usize>(
    sums: &mut [f32],
    queries: [usize; N],
    weights: [&[f32]; N],
    values: &[f32],
    (first, dim): (usize, usize),
) {
    let slots = values.len() / dim;
    let weights = weights.map(|weights| &weights[..slots]);
    let mut parts = [[vdupq_n_f32(0.0); REGISTERS]; N];
    for n in 0..N {
        let sums = &sums[queries[n] * dim..][..dim][first..][..REGISTERS * LANES];
        for register in 0..REGISTERS {
            // SAFETY: `sums` has four numbers for each register.
            parts[n][register] = unsafe { vld1q_f32(sums.as_ptr().add(register * LANES)) };
        }
    }
    for (slot, row) in values.chunks_exact(dim).enumerate() {
        let row = &row[first..][..REGISTERS * LANES];
        for register in 0..REGISTERS {
            // SAFETY: `row` has four numbers for each register.
            let value = unsafe { vld1q_f32(row.as_ptr().add(register * LANES)) };
            for n in 0..N {
                parts[n][register] = vfmaq_n_f32(parts[n][register], value, weights[n][slot]);
            }
        }
    }
    for n in 0..N {
        let sums = &mut sums[queries[n] * dim..][..dim][first..][..REGISTERS * LANES];
        for register in 0..REGISTERS {
            // SAFETY: `sums` has four numbers for each register.
            unsafe {
                vst1q_f32(sums.as_mut_ptr().add(register * LANES), parts[n][register]);
            }
        }
    }
}
