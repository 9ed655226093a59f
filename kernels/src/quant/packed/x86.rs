//! Products with panels on x86-64. The sum over a group is exact in integers, whatever instructions
//! make it, and groups are added in their order with fused multiply-adds: all instruction sets and all
//! sizes of tiles give the same bits.
#![allow(unsafe_code, reason = "vector loads through pointers")]
#![allow(
    clippy::needless_range_loop,
    reason = "the same place of several arrays of registers"
)]

use std::arch::x86_64::{
    __m256, __m256i, _MM_HINT_T0, _mm_loadl_epi64, _mm_loadu_si128, _mm_prefetch, _mm256_and_si256,
    _mm256_blendv_epi8, _mm256_castsi256_ps, _mm256_cmpgt_epi32, _mm256_cvtepi8_epi32,
    _mm256_cvtepi32_ps, _mm256_cvtepu8_epi32, _mm256_cvtph_ps, _mm256_fmadd_ps, _mm256_fnmadd_ps,
    _mm256_mul_ps, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps, _mm256_slli_epi32,
    _mm256_sllv_epi32, _mm256_srli_epi16, _mm256_storeu_ps, _mm256_sub_epi32, _mm256_xor_ps,
};

use super::super::activations::TILE_ROWS;
use super::super::{BlockType, PASS_ROWS, QuantisedGroup};
use super::shape::{Format, PANEL_ROWS, Parameters, REGISTERS, with_format};
use crate::isa::Isa;

mod dot;

use dot::{Avx2, Avx512Vnni, AvxVnni, Dot};

/// Prefetch distance in bytes.
const AHEAD: usize = 2048;

/// Products of the rows of a pass, 1, 2, 4 or 8, with the rows of a panel.
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
            (Isa::Avx512Vnni, 4) => avx512_vnni::<F, 4>(panel, blocks, x, out),
            (Isa::Avx512Vnni, _) => avx512_vnni::<F, 8>(panel, blocks, x, out),
            (Isa::AvxVnni, 1) => avx_vnni::<F, 1>(panel, blocks, x, out),
            (Isa::AvxVnni, 2) => avx_vnni::<F, 2>(panel, blocks, x, out),
            (Isa::AvxVnni, 4) => avx_vnni::<F, 4>(panel, blocks, x, out),
            (Isa::AvxVnni, _) => avx_vnni::<F, 8>(panel, blocks, x, out),
            (_, 1) => avx2::<F, 1>(panel, blocks, x, out),
            (_, 2) => avx2::<F, 2>(panel, blocks, x, out),
            (_, 4) => avx2::<F, 4>(panel, blocks, x, out),
            (_, _) => avx2::<F, 8>(panel, blocks, x, out),
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

/// One group of all rows of a pass.
#[derive(Clone, Copy)]
struct Groups {
    /// Groups of the first and of the second tile; the first again if there is no second.
    tiles: [*const QuantisedGroup; 2],
}

impl Groups {
    /// Group of row `r`.
    ///
    /// # Safety
    /// The pass has more than `r` rows.
    #[inline(always)]
    unsafe fn row(self, r: usize) -> *const QuantisedGroup {
        // SAFETY: the groups of the rows of a tile are side by side.
        unsafe { self.tiles[r / TILE_ROWS].add(r % TILE_ROWS) }
    }

    /// The next group of each of `R` rows.
    ///
    /// # Safety
    /// The group is within the blocks of the panel.
    #[inline(always)]
    unsafe fn next<const R: usize>(self) -> Self {
        let [first, second] = self.tiles;
        let rows = const { if R < TILE_ROWS { R } else { TILE_ROWS } };
        // SAFETY: what follows may be the end of the groups, but nothing beyond.
        let tiles = unsafe { [first.add(rows), second.add(rows)] };
        Self { tiles }
    }
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
        let second = match R {
            PASS_ROWS => x.add(TILE_ROWS * blocks * const { F::SHAPE.groups() }),
            _ => x,
        };
        let (mut block, mut x) = (panel, Groups { tiles: [x, second] });
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
                x = x.next::<R>();
            }
            block = block.add(const { F::SHAPE.block_bytes() });
        }
        for r in 0..R {
            _mm256_storeu_ps(out.add(r).cast(), sums[r]);
        }
    }
}

/// Scale and minimum of a block, by which multiples are multiplied.
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
/// The block is whole, the part one of its parts, and `x` is its group in each row.
#[inline(always)]
unsafe fn add_part<F: Format, const R: usize>(
    sums: &mut [__m256; R],
    products: [__m256; R],
    units: &Units,
    (block, part): (*const u8, usize),
    x: Groups,
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
            let x = &*x.row(r);
            let factor = _mm256_mul_ps(scale, _mm256_set1_ps(x.scale));
            sums[r] = _mm256_fmadd_ps(products[r], factor, sums[r]);
            if const { F::SHAPE.takes_off() } {
                let sum = x.scaled_part(const { F::SHAPE.halves() }, part);
                sums[r] = _mm256_fnmadd_ps(min, _mm256_set1_ps(sum), sums[r]);
            }
        }
    }
}
