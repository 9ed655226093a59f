//! Products of bytes with NEON.
#![allow(unsafe_code, reason = "vector loads through pointers")]
#![allow(
    clippy::needless_range_loop,
    reason = "the same place of several arrays of registers"
)]

use std::arch::aarch64::{
    vaddvq_s32, vdupq_n_s32, vget_high_s8, vget_low_s8, vld1q_s8, vmull_s8, vpadalq_s16,
};

/// Bytes of a register.
const PART: usize = 16;

/// The products of `R` rows, one behind the other, with the query.
///
/// # Safety
/// The processor has NEON, and `rows` has `R` times as many numbers as `query`.
#[target_feature(enable = "neon")]
pub(super) unsafe fn together<const R: usize>(
    query: &[i8],
    rows: &[i8],
    _ahead: *const i8,
) -> [i32; R] {
    let dimensions = query.len();
    debug_assert!(rows.len() == R * dimensions);
    let parts = dimensions / PART;
    let mut sums = [vdupq_n_s32(0); R];
    for part in 0..parts {
        let at = part.wrapping_mul(PART);
        // SAFETY: sixteen numbers from `at` on are within the query, and within each row.
        unsafe {
            let query = vld1q_s8(query.as_ptr().add(at));
            for r in 0..R {
                let row = r.wrapping_mul(dimensions).wrapping_add(at);
                let row = vld1q_s8(rows.as_ptr().add(row));
                // A product of two bytes fits 16 bits, a sum of two may not.
                let low = vmull_s8(vget_low_s8(query), vget_low_s8(row));
                let high = vmull_s8(vget_high_s8(query), vget_high_s8(row));
                sums[r] = vpadalq_s16(vpadalq_s16(sums[r], low), high);
            }
        }
    }
    let rest = parts * PART;
    let mut found = [0; R];
    for r in 0..R {
        let row = &rows[r * dimensions..][..dimensions];
        found[r] = vaddvq_s32(sums[r]).wrapping_add(super::dot(&query[rest..], &row[rest..]));
    }
    found
}
