//! Products with panels on x86-64. The sum over a group is exact in integers, whatever instructions
//! make it, and groups are added in their order with fused multiply-adds: all instruction sets and all
//! sizes of tiles give the same bits.
#![allow(unsafe_code, reason = "vector loads through pointers")]
#![allow(
    clippy::needless_range_loop,
    reason = "the same place of several arrays of registers"
)]

use std::arch::asm;
use std::arch::x86_64::{
    __m256, __m256i, _MM_HINT_T0, _mm_cvtsi32_si128, _mm_loadl_epi64, _mm_loadu_si128,
    _mm_prefetch, _mm256_abs_epi8, _mm256_add_epi16, _mm256_add_epi32, _mm256_and_si256,
    _mm256_blendv_epi8, _mm256_broadcastsi128_si256, _mm256_castsi256_ps, _mm256_cmpgt_epi32,
    _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps, _mm256_cvtepu8_epi32, _mm256_cvtph_ps,
    _mm256_dpbusd_avx_epi32, _mm256_dpbusd_epi32, _mm256_fmadd_ps, _mm256_fnmadd_ps,
    _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_or_si256,
    _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_sign_epi8, _mm256_sll_epi16,
    _mm256_slli_epi32, _mm256_sllv_epi32, _mm256_srl_epi16, _mm256_srli_epi16, _mm256_storeu_ps,
    _mm256_sub_epi32, _mm256_xor_ps, _mm256_xor_si256,
};

use super::super::{BlockType, QuantisedGroup};
use super::shape::{Codes, Format, PANEL_ROWS, Parameters, REGISTERS, Shape, with_format};
use crate::isa::Isa;

/// How far ahead weights are fetched.
const AHEAD: usize = 2048;

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
            (Isa::Avx512Vnni, 1) => avx512_vnni::<F, 1>(panel, blocks, x, out),
            (Isa::Avx512Vnni, 2) => avx512_vnni::<F, 2>(panel, blocks, x, out),
            (Isa::Avx512Vnni, _) => avx512_vnni::<F, 4>(panel, blocks, x, out),
            (Isa::AvxVnni, 1) => avx_vnni::<F, 1>(panel, blocks, x, out),
            (Isa::AvxVnni, 2) => avx_vnni::<F, 2>(panel, blocks, x, out),
            (Isa::AvxVnni, _) => avx_vnni::<F, 4>(panel, blocks, x, out),
            (_, 1) => avx2::<F, 1>(panel, blocks, x, out),
            (_, 2) => avx2::<F, 2>(panel, blocks, x, out),
            (_, _) => avx2::<F, 4>(panel, blocks, x, out),
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

compiled_for!(avx2, "avx2,fma,f16c", Avx2);
compiled_for!(avx_vnni, "avx2,fma,f16c,avxvnni", AvxVnni);
compiled_for!(
    avx512_vnni,
    "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni",
    Avx512Vnni
);

/// Integer products of registers of codes with activations.
trait Dot {
    /// The sums of registers `FIRST..LAST` of a group for the groups of `R` rows at `x`.
    ///
    /// # Safety
    /// Both pointers are to whole groups; the processor has what the implementation is named for.
    unsafe fn dot<F: Format, const R: usize, const FIRST: usize, const LAST: usize>(
        codes: *const u8,
        x: *const QuantisedGroup,
    ) -> [__m256i; R];
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
        let mut sums = [_mm256_setzero_ps(); R];
        let (mut block, mut x) = (panel, x);
        for _ in 0..blocks {
            let units = Units::load::<F>(block);
            let mut codes = block.add(const { F::SHAPE.parameter_bytes() });
            for group in 0..const { F::SHAPE.groups() } {
                for line in 0..const { F::SHAPE.group_bytes().div_ceil(64) } {
                    let ahead = codes.wrapping_add(AHEAD + 64 * line);
                    _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
                }
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
            _mm256_storeu_ps(out.add(r).cast(), sums[r]);
        }
    }
}

/// What multiples are multiples of.
struct Units {
    scale: __m256,
    min: __m256,
}

impl Units {
    /// # Safety
    /// `block` is a whole block, and the processor has F16C and AVX2.
    #[inline(always)]
    unsafe fn load<F: Format>(block: *const u8) -> Self {
        // SAFETY: the caller promises a block.
        unsafe {
            let halves = |at: usize| _mm256_cvtph_ps(_mm_loadu_si128(block.add(at).cast()));
            let scale = match F::SHAPE.parameters {
                Parameters::Power => half_powers(block),
                _ => halves(0),
            };
            let min = match F::SHAPE.parameters {
                // The format adds its minimum, a group takes it off.
                Parameters::HalfMin => _mm256_xor_ps(halves(16), _mm256_set1_ps(-0.0)),
                Parameters::GroupMin | Parameters::HalvesMin => halves(16),
                _ => _mm256_setzero_ps(),
            };
            Self { scale, min }
        }
    }
}

/// Halves of the powers of two that eight exponents stand for; the two smallest are subnormal.
///
/// # Safety
/// `exponents` points at eight bytes, and the processor has AVX2.
#[inline(always)]
unsafe fn half_powers(exponents: *const u8) -> __m256 {
    // SAFETY: the caller promises eight bytes, and AVX2.
    unsafe {
        let wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(exponents.cast()));
        let normal = _mm256_slli_epi32::<23>(_mm256_sub_epi32(wide, _mm256_set1_epi32(1)));
        let small = _mm256_sllv_epi32(_mm256_set1_epi32(0x0020_0000), wide);
        let is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), wide);
        _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, is_small))
    }
}

/// Add the products of a part of a block: a group or half of one.
///
/// # Safety
/// The block is whole, the part one of its parts, and `x` points at its group in each row.
#[inline(always)]
unsafe fn add_part<F: Format, const R: usize>(
    sums: &mut [__m256; R],
    products: [__m256i; R],
    units: &Units,
    (block, part): (*const u8, usize),
    x: *const QuantisedGroup,
) {
    // SAFETY: as the caller promises.
    unsafe {
        let shape = const { F::SHAPE };
        let multiples = |at: usize| _mm_loadl_epi64(block.add(at + part * PANEL_ROWS).cast());
        let unsigned = |at: usize| _mm256_cvtepu8_epi32(multiples(at));
        let times =
            |unit: __m256, multiple: __m256i| _mm256_mul_ps(unit, _mm256_cvtepi32_ps(multiple));
        let (scale, min) = match shape.parameters {
            Parameters::Half | Parameters::Power | Parameters::HalfMin => (units.scale, units.min),
            Parameters::Group | Parameters::Halves => {
                let signed = _mm256_cvtepi8_epi32(multiples(shape.multiples()));
                (times(units.scale, signed), units.min)
            }
            Parameters::GroupMin => (
                times(units.scale, unsigned(shape.multiples())),
                times(units.min, unsigned(shape.min_multiples())),
            ),
            Parameters::HalvesMin => {
                let both = unsigned(shape.multiples());
                let fifteen = _mm256_set1_epi32(15);
                let high = _mm256_srli_epi16::<4>(both);
                (
                    times(units.scale, _mm256_and_si256(both, fifteen)),
                    times(units.min, _mm256_and_si256(high, fifteen)),
                )
            }
        };
        // What is taken off codes is taken off as a minimum is.
        let min = match const { F::SHAPE.offset() } {
            0 => min,
            offset => _mm256_mul_ps(scale, _mm256_set1_ps(offset as f32)),
        };
        for r in 0..R {
            let x = &*x.add(r);
            let factor = _mm256_mul_ps(scale, _mm256_set1_ps(x.scale));
            sums[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(products[r]), factor, sums[r]);
            if const { F::SHAPE.takes_off() } {
                let sum = x.scaled_part(const { F::SHAPE.halves() }, part);
                sums[r] = _mm256_fnmadd_ps(min, _mm256_set1_ps(sum), sums[r]);
            }
        }
    }
}

/// Register `register` of the codes of a group, a byte each.
///
/// # Safety
/// `codes` points at a whole group, in which the planes lie, and the processor has AVX2.
#[inline(always)]
unsafe fn code<F: Format>(codes: *const u8, register: usize) -> __m256i {
    let shape = const { F::SHAPE };
    // SAFETY: the caller promises a whole group, in which the planes lie, and AVX2.
    unsafe {
        let plane = |at: usize| _mm256_loadu_si256(codes.add(at).cast());
        // Bits from `from` on, as many as `mask` has, to bit `to` on.
        let field = |bytes: __m256i, from: u32, to: u32, mask: u8| {
            let moved = match from.cmp(&to) {
                std::cmp::Ordering::Less => {
                    _mm256_sll_epi16(bytes, _mm_cvtsi32_si128((to - from) as i32))
                }
                std::cmp::Ordering::Equal => bytes,
                std::cmp::Ordering::Greater => {
                    _mm256_srl_epi16(bytes, _mm_cvtsi32_si128((from - to) as i32))
                }
            };
            _mm256_and_si256(moved, _mm256_set1_epi8((mask << to) as i8))
        };
        if shape.bytes {
            return plane(register * Shape::REGISTER);
        }
        let mut code = _mm256_setzero_si256();
        if shape.nibbles {
            let both = plane(register / 2 * Shape::REGISTER);
            code = field(both, register as u32 % 2 * 4, 0, 15);
        }
        if shape.pairs {
            let four = plane(shape.pairs_at() + register / 4 * Shape::REGISTER);
            let pair = field(four, register as u32 % 4 * 2, shape.pair_bit(), 3);
            code = _mm256_or_si256(code, pair);
        }
        if shape.singles {
            let all = plane(shape.singles_at());
            let single = field(all, register as u32, shape.single_bit(), 1);
            code = _mm256_or_si256(code, single);
        }
        match shape.table {
            None => code,
            Some(table) => {
                let table = _mm_loadu_si128(table.as_ptr().cast());
                _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), code)
            }
        }
    }
}

/// Four activations of row `r` in all lanes.
///
/// # Safety
/// `x` points at more than `r` groups, `register` is below [`REGISTERS`], and the processor has AVX2.
#[inline(always)]
unsafe fn four(x: *const QuantisedGroup, r: usize, register: usize) -> __m256i {
    // SAFETY: the caller promises so many groups, and a register is within a group.
    unsafe {
        let quants = (&raw const (*x.add(r)).quants).cast::<i32>();
        _mm256_set1_epi32(quants.add(register).read_unaligned())
    }
}

/// Keep a sum in its register and additions in their order: the compiler would otherwise make trees of
/// them and run out of registers.
#[inline]
#[target_feature(enable = "avx")]
fn fence(sum: __m256i) -> __m256i {
    let mut sum = sum;
    // SAFETY: no instruction is executed.
    unsafe {
        asm!("/* {0} */", inout(ymm_reg) sum, options(nomem, nostack, preserves_flags, pure));
    }
    sum
}

/// Bytes to pairs to fours, in three instructions.
struct Avx2;

impl Dot for Avx2 {
    #[inline(always)]
    unsafe fn dot<F: Format, const R: usize, const FIRST: usize, const LAST: usize>(
        codes: *const u8,
        x: *const QuantisedGroup,
    ) -> [__m256i; R] {
        // SAFETY: as the caller promises.
        unsafe {
            let ones = _mm256_set1_epi16(1);
            let mut sums = [_mm256_setzero_si256(); R];
            let Codes::Unsigned { max, .. } = (const { F::SHAPE.codes }) else {
                // The sign goes to the activation: products of bytes take an unsigned one.
                for register in FIRST..LAST {
                    let code = code::<F>(codes, register);
                    let size = _mm256_abs_epi8(code);
                    for r in 0..R {
                        let x = _mm256_sign_epi8(four(x, r, register), code);
                        let pairs = _mm256_maddubs_epi16(size, x);
                        let fours = _mm256_madd_epi16(pairs, ones);
                        sums[r] = fence(_mm256_add_epi32(sums[r], fours));
                    }
                }
                return sums;
            };
            // As many pairs of products as sixteen bits hold.
            let together = (i16::MAX as i32 / (2 * 127 * max)) as usize;
            let mut register = FIRST;
            while register < LAST {
                let end = if register + together < LAST {
                    register + together
                } else {
                    LAST
                };
                let first = code::<F>(codes, register);
                let mut pairs = [_mm256_setzero_si256(); R];
                for r in 0..R {
                    pairs[r] = _mm256_maddubs_epi16(first, four(x, r, register));
                }
                for register in register + 1..end {
                    let code = code::<F>(codes, register);
                    for r in 0..R {
                        let product = _mm256_maddubs_epi16(code, four(x, r, register));
                        pairs[r] = fence(_mm256_add_epi16(pairs[r], product));
                    }
                }
                for r in 0..R {
                    let fours = _mm256_madd_epi16(pairs[r], ones);
                    sums[r] = _mm256_add_epi32(sums[r], fours);
                }
                register = end;
            }
            sums
        }
    }
}

macro_rules! vnni {
    ($name:ident, $product:ident) => {
        /// Bytes to fours in one instruction.
        struct $name;

        impl Dot for $name {
            #[inline(always)]
            unsafe fn dot<F: Format, const R: usize, const FIRST: usize, const LAST: usize>(
                codes: *const u8,
                x: *const QuantisedGroup,
            ) -> [__m256i; R] {
                // SAFETY: as the caller promises.
                unsafe {
                    let mut sums = [_mm256_setzero_si256(); R];
                    if matches!(const { F::SHAPE.codes }, Codes::Signed) {
                        // Raised by 128, signed bytes are unsigned.
                        for r in 0..R {
                            let sum = _mm256_set1_epi32((*x.add(r)).sum);
                            let raised = _mm256_slli_epi32::<7>(sum);
                            sums[r] = _mm256_sub_epi32(sums[r], raised);
                        }
                    }
                    for register in FIRST..LAST {
                        let mut code = code::<F>(codes, register);
                        if matches!(const { F::SHAPE.codes }, Codes::Signed) {
                            code = _mm256_xor_si256(code, _mm256_set1_epi8(-128));
                        }
                        for r in 0..R {
                            sums[r] = $product(sums[r], code, four(x, r, register));
                        }
                    }
                    sums
                }
            }
        }
    };
}

vnni!(AvxVnni, _mm256_dpbusd_avx_epi32);
vnni!(Avx512Vnni, _mm256_dpbusd_epi32);
