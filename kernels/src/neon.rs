//! Instructions of 64-bit ARM for which the standard library has no stable name.
#![allow(unsafe_code, reason = "instructions by name")]

use std::arch::aarch64::{float32x4_t, int8x16_t, int32x4_t, uint16x4_t};
use std::arch::asm;

/// Widen four numbers of half precision.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn widen_halves(halves: uint16x4_t) -> float32x4_t {
    let wide;
    // SAFETY: an instruction of NEON, which is enabled here. It reads and writes the two registers that
    // are named, and flags of FPSR, which are not said to be preserved.
    unsafe {
        asm!(
            "fcvtl {wide:v}.4s, {halves:v}.4h",
            wide = lateout(vreg) wide,
            halves = in(vreg) halves,
            options(pure, nomem, nostack),
        );
    }
    wide
}

/// To each of four sums add the products of four bytes of `a` with the four bytes of `b` that number
/// `LANE` is, below 4.
#[inline]
#[target_feature(enable = "neon,dotprod")]
pub(crate) fn dot_fours<const LANE: usize>(
    sums: int32x4_t,
    a: int8x16_t,
    b: int8x16_t,
) -> int32x4_t {
    const { assert!(LANE < 4) };
    let mut sums = sums;
    // SAFETY: an instruction of the dot product extension, which is enabled here. It reads and writes
    // the registers that are named and nothing else; there is a lane of that number.
    unsafe {
        asm!(
            "sdot {sums:v}.4s, {a:v}.16b, {b:v}.4b[{lane}]",
            sums = inout(vreg) sums,
            a = in(vreg) a,
            b = in(vreg) b,
            lane = const LANE,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}

/// To the sums `[i, j]` of a matrix of two rows and two columns add the products of the eight bytes of
/// row `i` of `a` with the eight bytes of row `j` of `b`.
#[inline]
#[target_feature(enable = "neon,i8mm")]
pub(crate) fn multiply_eights(sums: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    let mut sums = sums;
    // SAFETY: an instruction of the matrix extension, which is enabled here. It reads and writes the
    // registers that are named and nothing else.
    unsafe {
        asm!(
            "smmla {sums:v}.4s, {a:v}.16b, {b:v}.16b",
            sums = inout(vreg) sums,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}
