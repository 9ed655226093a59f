//! Tiles: some rows of activations times some panels, written once for all instruction sets.
#![allow(unsafe_code, reason = "vector loads through pointers")]
#![allow(
    clippy::needless_range_loop,
    reason = "the same place of several arrays of registers"
)]

use super::PANEL_ROWS;
use crate::isa::Isa;

/// Inputs whose products are summed before they are added to what came before.
const INPUT_BLOCK: usize = 256;
/// Prefetch distance of weights that only one tile uses, in bytes.
const AHEAD: usize = 2048;
/// Sums of sixteen in a tile, at most.
pub(crate) const TILE_SUMS: usize = 12;

/// The most rows that a tile has: as many as there are registers for.
fn most_rows(isa: Isa) -> usize {
    match isa {
        Isa::Avx512Vnni => 12,
        _ => 6,
    }
}

/// Tiles of so many rows, which differ by a row at most.
pub(crate) fn tiles(isa: Isa, rows: usize) -> usize {
    rows.div_ceil(most_rows(isa))
}

/// Panels of a tile of so many rows. The latency of a multiply-add is that of eight issued ones: a tile of few rows needs
/// several panels for as many independent sums.
pub(crate) fn panels_together(isa: Isa, rows: usize) -> usize {
    match (isa, rows) {
        (_, 1) | (Isa::Avx512Vnni, 2) => 4,
        (_, 2) | (Isa::Avx512Vnni, 3..=5) => 2,
        _ => 1,
    }
}

/// Whether a tile of this size is compiled.
pub(super) fn is_a_size(isa: Isa, rows: usize, panels: usize) -> bool {
    (1..=most_rows(isa)).contains(&rows) && (panels == 1 || panels == panels_together(isa, rows))
}

/// Position of a tile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TilePlace {
    pub(crate) first_panel: usize,
    /// Number of panels.
    pub(crate) panels: usize,
    /// Its number among the tiles of these panels.
    pub(crate) tile: usize,
    pub(crate) tiles: usize,
}

impl TilePlace {
    /// Prefetch address at the first input, and its stride for each further input. A tile with
    /// panels of its own fetches a little ahead in them, others a share of the next panel. The
    /// address need not be valid.
    pub(super) fn fetched(self, panels: &[u8], inputs: usize) -> (*const u8, usize) {
        let length = panels.len() / self.panels;
        let input = length / inputs;
        if self.tiles == 1 {
            return (panels.as_ptr().wrapping_add(AHEAD), input);
        }
        let share = length / self.tiles * self.tile;
        let next = panels.as_ptr().wrapping_add(panels.len() + share);
        (next, input / self.tiles)
    }
}

/// Inputs of a tile.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    /// The first panel; the others follow it.
    pub(super) panels: *const u8,
    /// Inputs of a row.
    pub(super) inputs: usize,
    /// The first row; the others follow it.
    pub(super) x: *const f32,
    /// [`TilePlace::fetched`] for the first panel.
    pub(super) ahead: *const u8,
    pub(super) ahead_step: usize,
    /// For each row, sums of each panel.
    pub(super) sums: *mut [f32; PANEL_ROWS],
}

/// Sixteen numbers in registers of an instruction set.
///
/// # Safety
/// All methods are for processors that have the instruction set.
pub(super) trait Sixteen: Copy {
    unsafe fn zeros() -> Self;
    /// Multiply-add: these numbers plus `x` times `others`.
    unsafe fn add_products(self, x: f32, weights: Self) -> Self;
    /// Add these numbers to sums in memory.
    unsafe fn add_to(self, sums: &mut [f32; PANEL_ROWS]);
    /// Prefetch an address, which need not be valid.
    unsafe fn fetch(_from: *const u8) {}
}

/// Number type of weights in memory.
pub(super) trait Weight<V: Sixteen> {
    /// Widen the sixteen numbers of an input.
    ///
    /// # Safety
    /// `from` points at sixteen numbers in their [places](super::FloatType::place), and the processor
    /// has the instruction set.
    unsafe fn load(from: *const Self) -> V;
}

/// The products of `R` rows with `P` panels of weights of type `W`.
///
/// # Safety
/// Panels and rows have `inputs` numbers, `sums` points at `R * P` places, and the processor has the
/// instruction set of `V`; to be inlined into code that is compiled for it.
#[inline(always)]
pub(super) unsafe fn tile<V: Sixteen, W: Weight<V>, const R: usize, const P: usize>(
    operands: Operands,
) {
    const { assert!(R * P <= TILE_SUMS) };
    let Operands { inputs, x, .. } = operands;
    // SAFETY: `k` is below the number of inputs, and the rest is as the caller promises.
    unsafe {
        let panels = operands.panels.cast::<W>();
        // Without checks for overflow, which numbers in memory rule out: they would outnumber the products.
        let input_of = |row: usize, k: usize| row.wrapping_mul(inputs).wrapping_add(k);
        let sums = std::slice::from_raw_parts_mut(operands.sums, R * P);
        sums.fill([0.0; PANEL_ROWS]);
        let mut first = 0;
        while first < inputs {
            let last = inputs.min(first + INPUT_BLOCK);
            let mut block = [[V::zeros(); P]; R];
            for k in first..last {
                let mut weights = [V::zeros(); P];
                for p in 0..P {
                    let from = panels.add(input_of(p, k).wrapping_mul(PANEL_ROWS));
                    let panel = input_of(p, 0).wrapping_mul(PANEL_ROWS * size_of::<W>());
                    let ahead = panel.wrapping_add(k.wrapping_mul(operands.ahead_step));
                    V::fetch(operands.ahead.wrapping_add(ahead));
                    weights[p] = W::load(from);
                }
                for r in 0..R {
                    let x = *x.add(input_of(r, k));
                    for p in 0..P {
                        block[r][p] = block[r][p].add_products(x, weights[p]);
                    }
                }
            }
            for r in 0..R {
                for p in 0..P {
                    block[r][p].add_to(&mut sums[r * P + p]);
                }
            }
            first = last;
        }
    }
}

/// Call of a function whose constants are the number type, rows and panels of a tile. Callers have checked that a
/// tile of this size is compiled.
macro_rules! by_size {
    ($kind:expr, $size:expr, $tile:ident($operands:expr); $(($rows:literal, $panels:literal))*) => {
        match ($kind, $size) {
            $(
                ($crate::floats::FloatType::F32, ($rows, $panels)) => {
                    $tile::<f32, $rows, $panels>($operands)
                }
                ($crate::floats::FloatType::F16, ($rows, $panels)) => {
                    $tile::<half::f16, $rows, $panels>($operands)
                }
                ($crate::floats::FloatType::Bf16, ($rows, $panels)) => {
                    $tile::<half::bf16, $rows, $panels>($operands)
                }
            )*
            (_, size) => unreachable!("there is no tile of {size:?}"),
        }
    };
    // Sizes for sixteen registers, without AVX-512.
    ($kind:expr, $size:expr, $tile:ident($operands:expr)) => {
        by_size!(
            $kind, $size, $tile($operands);
            (1, 1) (1, 4) (2, 1) (2, 2) (3, 1) (4, 1) (5, 1) (6, 1)
        )
    };
}
pub(super) use by_size;
