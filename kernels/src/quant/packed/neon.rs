//! Products with panels on 64-bit ARM. The sum over a group is exact in integers, whatever instructions
//! make it, and groups are added in their order with fused multiply-adds, as everywhere.
//!
//! A register of codes is two of this processor's: the first half has rows 0 to 3 of the panel, the
//! second rows 4 to 7.
#![allow(unsafe_code, reason = "vector loads through pointers")]
#![allow(
    clippy::needless_range_loop,
    reason = "the same place of several arrays of registers"
)]

use std::arch::aarch64::{
    float32x4_t, int8x16_t, int32x4_t, uint16x8_t, vandq_u8, vandq_u16, vbslq_u32, vcltq_u32,
    vcombine_s8, vcvtq_f32_s32, vcvtq_f32_u32, vdupq_n_f32, vdupq_n_s8, vdupq_n_s16, vdupq_n_s32,
    vdupq_n_u8, vdupq_n_u16, vdupq_n_u32, vfmaq_f32, vfmsq_n_f32, vget_high_s16, vget_high_u16,
    vget_low_s8, vget_low_s16, vget_low_u16, vld1_s8, vld1_u8, vld1q_dup_s32, vld1q_s8, vld1q_u8,
    vld1q_u16, vmlal_high_s8, vmlal_s8, vmovl_s8, vmovl_s16, vmovl_u8, vmovl_u16, vmulq_f32,
    vmulq_n_f32, vnegq_f32, vorrq_u8, vpadalq_s16, vpaddq_s32, vqtbl1q_s8, vreinterpretq_f32_u32,
    vreinterpretq_s8_s32, vreinterpretq_s8_u8, vreinterpretq_s32_s8, vreinterpretq_s32_u32,
    vshlq_n_u32, vshlq_u8, vshlq_u32, vshrq_n_u16, vst1q_f32, vsubq_u32, vuzp1q_s32, vuzp2q_s32,
    vzip1q_s32, vzip2q_s32,
};

use super::super::{BlockType, QuantisedGroup};
use super::shape::{Codes, Format, PANEL_ROWS, Parameters, REGISTERS, Shape, with_format};
use crate::isa::Isa;
use crate::neon::{dot_fours, multiply_eights, widen_halves};

/// A number for each row of a panel.
type Eight = [float32x4_t; 2];

/// Products of the rows of a tile, 1, 2 or 4, with the rows of a panel.
///
/// # Safety
/// The processor has what `isa` names, which is not [`Isa::Portable`]. The panel has `blocks` blocks of
/// the format; `x` points at as many groups of each row as they have; `out` at a place for each row.
pub(super) unsafe fn tile(
    isa: Isa,
    kind: BlockType,
    rows: usize,
    panel: *const u8,
    blocks: usize,
    x: *const QuantisedGroup,
    out: *mut [f32; PANEL_ROWS],
) {
    // SAFETY: as the caller promises.
    with_format!(kind, F => unsafe {
        match (isa, rows) {
            // One row has no second for the products of matrices.
            (Isa::NeonI8mm | Isa::NeonDotprod, 1) => neon_dotprod::<F, 1>(panel, blocks, x, out),
            (Isa::NeonI8mm, 2) => neon_i8mm::<F, 2>(panel, blocks, x, out),
            (Isa::NeonI8mm, _) => neon_i8mm::<F, 4>(panel, blocks, x, out),
            (Isa::NeonDotprod, 2) => neon_dotprod::<F, 2>(panel, blocks, x, out),
            (Isa::NeonDotprod, _) => neon_dotprod::<F, 4>(panel, blocks, x, out),
            (_, 1) => neon::<F, 1>(panel, blocks, x, out),
            (_, 2) => neon::<F, 2>(panel, blocks, x, out),
            (_, _) => neon::<F, 4>(panel, blocks, x, out),
        }
    });
}

macro_rules! compiled_for {
    ($name:ident, $features:literal, $dot:ident) => {
        /// # Safety
        /// As [`tile`].
        #[target_feature(enable = $features)]
        unsafe fn $name<F: Format, const R: usize>(
            panel: *const u8,
            blocks: usize,
            x: *const QuantisedGroup,
            out: *mut [f32; PANEL_ROWS],
        ) {
            // SAFETY: as the caller promises.
            unsafe { panel_tile::<F, $dot, R>(panel, blocks, x, out) }
        }
    };
}

compiled_for!(neon, "neon", Widening);
compiled_for!(neon_dotprod, "neon,dotprod", DotProduct);
compiled_for!(neon_i8mm, "neon,dotprod,i8mm", MatrixProduct);

/// Integer products of registers of codes with activations.
trait Dot {
    /// The sums of registers `FIRST..LAST` of a group for the groups of `R` rows at `x`. Both are
    /// multiples of four.
    ///
    /// # Safety
    /// Both pointers are to whole groups; the processor has what the implementation is named for.
    unsafe fn dot<F: Format, const R: usize, const FIRST: usize, const LAST: usize>(
        codes: *const u8,
        x: *const QuantisedGroup,
    ) -> [[int32x4_t; 2]; R];
}

/// # Safety
/// As [`tile`], with `R` rows; inlined into code compiled for the instruction set.
#[inline(always)]
unsafe fn panel_tile<F: Format, D: Dot, const R: usize>(
    panel: *const u8,
    blocks: usize,
    x: *const QuantisedGroup,
    out: *mut [f32; PANEL_ROWS],
) {
    // SAFETY: `block` and `x` advance over the blocks and groups that the caller promises.
    unsafe {
        let mut sums = [[vdupq_n_f32(0.0); 2]; R];
        let (mut block, mut x) = (panel, x);
        for _ in 0..blocks {
            let units = Units::load::<F>(block);
            let mut codes = block.add(const { F::SHAPE.parameter_bytes() });
            for group in 0..const { F::SHAPE.groups() } {
                if const { F::SHAPE.halves() } {
                    let first = D::dot::<F, R, 0, { REGISTERS / 2 }>(codes, x);
                    add_part::<F, R>(&mut sums, first, &units, (block, 2 * group), x);
                    let second = D::dot::<F, R, { REGISTERS / 2 }, REGISTERS>(codes, x);
                    add_part::<F, R>(&mut sums, second, &units, (block, 2 * group + 1), x);
                } else {
                    let products = D::dot::<F, R, 0, REGISTERS>(codes, x);
                    add_part::<F, R>(&mut sums, products, &units, (block, group), x);
                }
                codes = codes.add(const { F::SHAPE.group_bytes() });
                x = x.add(R);
            }
            block = block.add(const { F::SHAPE.block_bytes() });
        }
        for r in 0..R {
            let out = out.add(r).cast::<f32>();
            vst1q_f32(out, sums[r][0]);
            vst1q_f32(out.add(4), sums[r][1]);
        }
    }
}

/// Scale and minimum of a block, by which multiples are multiplied.
struct Units {
    scale: Eight,
    min: Eight,
}

impl Units {
    /// # Safety
    /// `block` is a whole block, and the processor has NEON.
    #[inline(always)]
    unsafe fn load<F: Format>(block: *const u8) -> Self {
        // SAFETY: the caller promises a block.
        unsafe {
            let halves = |at: usize| {
                let eight = vld1q_u16(block.add(at).cast());
                [
                    widen_halves(vget_low_u16(eight)),
                    widen_halves(vget_high_u16(eight)),
                ]
            };
            let scale = match F::SHAPE.parameters {
                Parameters::Power => half_powers(block),
                _ => halves(0),
            };
            let min = match F::SHAPE.parameters {
                // The format adds its minimum, a group takes it off.
                Parameters::HalfMin => {
                    let [low, high] = halves(16);
                    [vnegq_f32(low), vnegq_f32(high)]
                }
                Parameters::GroupMin | Parameters::HalvesMin => halves(16),
                _ => [vdupq_n_f32(0.0); 2],
            };
            Self { scale, min }
        }
    }
}

/// Halves of the powers of two that eight exponents stand for; the two smallest are subnormal.
///
/// # Safety
/// `exponents` points at eight bytes, and the processor has NEON.
#[inline(always)]
unsafe fn half_powers(exponents: *const u8) -> Eight {
    // SAFETY: the caller promises eight bytes.
    unsafe {
        let eight = vmovl_u8(vld1_u8(exponents));
        let power = |exponents| {
            let wide = vmovl_u16(exponents);
            let normal = vshlq_n_u32::<23>(vsubq_u32(wide, vdupq_n_u32(1)));
            let small = vshlq_u32(vdupq_n_u32(0x0020_0000), vreinterpretq_s32_u32(wide));
            let is_small = vcltq_u32(wide, vdupq_n_u32(2));
            vreinterpretq_f32_u32(vbslq_u32(is_small, small, normal))
        };
        [power(vget_low_u16(eight)), power(vget_high_u16(eight))]
    }
}

/// Add the products of a part of a block: a group or half of one.
///
/// # Safety
/// The block is whole, the part one of its parts, and `x` points at its group in each row.
#[inline(always)]
unsafe fn add_part<F: Format, const R: usize>(
    sums: &mut [Eight; R],
    products: [[int32x4_t; 2]; R],
    units: &Units,
    (block, part): (*const u8, usize),
    x: *const QuantisedGroup,
) {
    // SAFETY: as the caller promises.
    unsafe {
        let shape = const { F::SHAPE };
        let multiples = |at: usize| block.add(at + part * PANEL_ROWS);
        let unsigned = |at: usize| vmovl_u8(vld1_u8(multiples(at)));
        let times = |units: Eight, multiples: Eight| {
            [
                vmulq_f32(units[0], multiples[0]),
                vmulq_f32(units[1], multiples[1]),
            ]
        };
        let times_unsigned = |units: Eight, multiples: uint16x8_t| {
            let low = vcvtq_f32_u32(vmovl_u16(vget_low_u16(multiples)));
            let high = vcvtq_f32_u32(vmovl_u16(vget_high_u16(multiples)));
            times(units, [low, high])
        };
        let (scale, min) = match shape.parameters {
            Parameters::Half | Parameters::Power | Parameters::HalfMin => (units.scale, units.min),
            Parameters::Group | Parameters::Halves => {
                let signed = vmovl_s8(vld1_s8(multiples(shape.multiples()).cast()));
                let low = vcvtq_f32_s32(vmovl_s16(vget_low_s16(signed)));
                let high = vcvtq_f32_s32(vmovl_s16(vget_high_s16(signed)));
                (times(units.scale, [low, high]), units.min)
            }
            Parameters::GroupMin => (
                times_unsigned(units.scale, unsigned(shape.multiples())),
                times_unsigned(units.min, unsigned(shape.min_multiples())),
            ),
            Parameters::HalvesMin => {
                let both = unsigned(shape.multiples());
                (
                    times_unsigned(units.scale, vandq_u16(both, vdupq_n_u16(15))),
                    times_unsigned(units.min, vshrq_n_u16::<4>(both)),
                )
            }
        };
        // What is taken off codes is taken off as a minimum is.
        let min = match const { F::SHAPE.offset() } {
            0 => min,
            offset => times(scale, [vdupq_n_f32(offset as f32); 2]),
        };
        for r in 0..R {
            let x = &*x.add(r);
            for half in 0..2 {
                let factor = vmulq_n_f32(scale[half], x.scale);
                let products = vcvtq_f32_s32(products[r][half]);
                sums[r][half] = vfmaq_f32(sums[r][half], products, factor);
                if const { F::SHAPE.takes_off() } {
                    let sum = x.scaled_part(const { F::SHAPE.halves() }, part);
                    sums[r][half] = vfmsq_n_f32(sums[r][half], min[half], sum);
                }
            }
        }
    }
}

/// One half of register `register` of the codes of a group, a byte each. All codes fit into signed bytes.
///
/// # Safety
/// `codes` points at a whole group, in which the planes lie, and the processor has NEON.
#[inline(always)]
unsafe fn code<F: Format>(codes: *const u8, register: usize, half: usize) -> int8x16_t {
    let shape = const { F::SHAPE };
    // SAFETY: as the caller promises.
    unsafe {
        let plane = |at: usize| vld1q_u8(codes.add(at + half * Shape::REGISTER / 2));
        // So many bits from `from` on to bit `to` on. Shifts are of bytes each.
        let field = |bytes, from: usize, to: u32, bits: u32| {
            let moved = vshlq_u8(bytes, vdupq_n_s8(to as i8 - from as i8));
            vandq_u8(moved, vdupq_n_u8(((1 << bits) - 1) << to))
        };
        if shape.bytes {
            return vreinterpretq_s8_u8(plane(register * Shape::REGISTER));
        }
        let mut code = vdupq_n_u8(0);
        if shape.nibbles {
            let both = plane(register / 2 * Shape::REGISTER);
            code = field(both, register % 2 * 4, 0, 4);
        }
        if shape.pairs {
            let four = plane(shape.pairs_at() + register / 4 * Shape::REGISTER);
            let pair = field(four, register % 4 * 2, shape.pair_bit(), 2);
            code = vorrq_u8(code, pair);
        }
        if shape.singles {
            let all = plane(shape.singles_at());
            code = vorrq_u8(code, field(all, register, shape.single_bit(), 1));
        }
        match shape.table {
            None => vreinterpretq_s8_u8(code),
            Some(table) => vqtbl1q_s8(vld1q_s8(table.as_ptr()), code),
        }
    }
}

/// The activations of row `r` from number `at` on.
///
/// # Safety
/// `x` points at more than `r` groups, and `at` is below the length of one.
#[inline(always)]
unsafe fn activations(x: *const QuantisedGroup, r: usize, at: usize) -> *const i8 {
    // SAFETY: as the caller promises.
    unsafe { (&raw const (*x.add(r)).quants).cast::<i8>().add(at) }
}

/// Bytes to sixteen bits, as many together as those hold, to pairs: what every processor has.
struct Widening;

impl Dot for Widening {
    #[inline(always)]
    unsafe fn dot<F: Format, const R: usize, const FIRST: usize, const LAST: usize>(
        codes: *const u8,
        x: *const QuantisedGroup,
    ) -> [[int32x4_t; 2]; R] {
        let max = match const { F::SHAPE.codes } {
            Codes::Unsigned { max, .. } => max,
            Codes::Signed => -i32::from(i8::MIN),
        };
        let together = (i32::from(i16::MAX) / (127 * max)) as usize;
        // SAFETY: as the caller promises; a register is four activations, and those are of a group.
        unsafe {
            let mut out = [[vdupq_n_s32(0); 2]; R];
            for half in 0..2 {
                // Two sums a row of the panel, for two rows of it and for the other two.
                let mut sums = [[vdupq_n_s32(0); 2]; R];
                let mut register = FIRST;
                while register < LAST {
                    let end = if register + together < LAST {
                        register + together
                    } else {
                        LAST
                    };
                    let mut products = [[vdupq_n_s16(0); 2]; R];
                    for register in register..end {
                        let code = code::<F>(codes, register, half);
                        for r in 0..R {
                            let four = vld1q_dup_s32(activations(x, r, 4 * register).cast());
                            let four = vreinterpretq_s8_s32(four);
                            let [low, high] = &mut products[r];
                            *low = vmlal_s8(*low, vget_low_s8(code), vget_low_s8(four));
                            *high = vmlal_high_s8(*high, code, four);
                        }
                    }
                    for r in 0..R {
                        for pair in 0..2 {
                            sums[r][pair] = vpadalq_s16(sums[r][pair], products[r][pair]);
                        }
                    }
                    register = end;
                }
                for r in 0..R {
                    out[r][half] = vpaddq_s32(sums[r][0], sums[r][1]);
                }
            }
            out
        }
    }
}

/// Four bytes to a sum in one instruction.
struct DotProduct;

impl DotProduct {
    /// One register, whose activations are number `LANE` of four fours.
    #[inline(always)]
    unsafe fn add<F: Format, const R: usize, const LANE: usize>(
        sums: &mut [[int32x4_t; 2]; R],
        (codes, register): (*const u8, usize),
        x: &[int8x16_t; R],
    ) {
        for half in 0..2 {
            // SAFETY: as the caller of `dot` promises.
            unsafe {
                let code = code::<F>(codes, register + LANE, half);
                for r in 0..R {
                    sums[r][half] = dot_fours::<LANE>(sums[r][half], code, x[r]);
                }
            }
        }
    }
}

impl Dot for DotProduct {
    #[inline(always)]
    unsafe fn dot<F: Format, const R: usize, const FIRST: usize, const LAST: usize>(
        codes: *const u8,
        x: *const QuantisedGroup,
    ) -> [[int32x4_t; 2]; R] {
        // SAFETY: as the caller promises; four registers are sixteen activations, and those are of a
        // group.
        unsafe {
            let mut sums = [[vdupq_n_s32(0); 2]; R];
            for register in (FIRST..LAST).step_by(4) {
                let mut sixteen = [vdupq_n_s8(0); R];
                for r in 0..R {
                    sixteen[r] = vld1q_s8(activations(x, r, 4 * register));
                }
                Self::add::<F, R, 0>(&mut sums, (codes, register), &sixteen);
                Self::add::<F, R, 1>(&mut sums, (codes, register), &sixteen);
                Self::add::<F, R, 2>(&mut sums, (codes, register), &sixteen);
                Self::add::<F, R, 3>(&mut sums, (codes, register), &sixteen);
            }
            sums
        }
    }
}

/// Two rows of the panel times two of the tile, eight bytes to a sum, in one instruction.
struct MatrixProduct;

impl Dot for MatrixProduct {
    #[inline(always)]
    unsafe fn dot<F: Format, const R: usize, const FIRST: usize, const LAST: usize>(
        codes: *const u8,
        x: *const QuantisedGroup,
    ) -> [[int32x4_t; 2]; R] {
        const { assert!(R.is_multiple_of(2)) };
        // SAFETY: as the caller promises; two registers are eight activations, and those are of a
        // group.
        unsafe {
            // Until the end, the place of an even row has the sums of rows 0 and 1 of each half of the
            // panel with it and its neighbour, and the place of the neighbour those of rows 2 and 3.
            let mut sums = [[vdupq_n_s32(0); 2]; R];
            for register in (FIRST..LAST).step_by(2) {
                let mut eight = [vdupq_n_s8(0); R];
                for r in (0..R).step_by(2) {
                    let [first, second] = [r, r + 1].map(|r| activations(x, r, 4 * register));
                    eight[r] = vcombine_s8(vld1_s8(first), vld1_s8(second));
                }
                for half in 0..2 {
                    let first = vreinterpretq_s32_s8(code::<F>(codes, register, half));
                    let second = vreinterpretq_s32_s8(code::<F>(codes, register + 1, half));
                    let pairs = [vzip1q_s32(first, second), vzip2q_s32(first, second)];
                    for r in 0..R {
                        let pair = vreinterpretq_s8_s32(pairs[r % 2]);
                        sums[r][half] = multiply_eights(sums[r][half], pair, eight[r - r % 2]);
                    }
                }
            }
            for r in (0..R).step_by(2) {
                for half in 0..2 {
                    let [first, second] = [sums[r][half], sums[r + 1][half]];
                    sums[r][half] = vuzp1q_s32(first, second);
                    sums[r + 1][half] = vuzp2q_s32(first, second);
                }
            }
            sums
        }
    }
}
