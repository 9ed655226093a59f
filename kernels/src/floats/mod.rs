//! Weights in floating point: matrices laid out for products, sixteen rows side by side.
//!
//! A panel holds sixteen rows of a matrix, input by input: the weights of one activation lie
//! together, each product has a lane of its own, and no sum goes across a register. Numbers stay what
//! they were in the file, and are widened in registers.
//!
//! A sum is made of blocks of 256 inputs, which are added in their order; within a block, products are
//! added input by input. Tiles of all sizes do so, and instruction sets with fused multiply-adds give
//! the same bits. Portable code rounds each product first.

#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
mod tile;
#[cfg(target_arch = "x86_64")]
mod x86;

use half::{bf16, f16};

use crate::isa::Isa;
use crate::memory::{OutOfMemory, Piece};
use crate::row_order::RowOrder;
use tile::Operands;
pub(crate) use tile::{TILE_SUMS, TilePlace, panels_together, tiles};

/// Rows of a panel.
pub(crate) const PANEL_ROWS: usize = 16;
/// Panels that are packed by one task.
const PANELS_A_TASK: usize = 8;
/// Inputs that are packed together: what is written of a panel stays in the cache.
const INPUTS_TOGETHER: usize = 64;

/// A type of numbers in floating point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FloatType {
    /// Single precision.
    F32,
    /// Half precision.
    F16,
    /// Brain float: the upper half of single precision.
    Bf16,
}

impl FloatType {
    /// All types.
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Bf16];

    /// The name in GGUF.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
        }
    }

    /// Bytes of a number.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// Widen numbers from their bytes, in the order of this machine.
    ///
    /// # Panics
    /// If `out` does not hold exactly these numbers.
    pub fn widen(self, bytes: &[u8], out: &mut [f32]) {
        assert_eq!(Some(bytes.len()), out.len().checked_mul(self.bytes()));
        match self {
            Self::F32 => widen_each(bytes, out, f32::from_ne_bytes),
            Self::F16 => widen_each(bytes, out, |pair| f16::from_ne_bytes(pair).to_f32()),
            Self::Bf16 => widen_each(bytes, out, |pair| bf16::from_ne_bytes(pair).to_f32()),
        }
    }

    /// Position of a row of a panel among the sixteen numbers of an input. bf16 numbers stand in pairs in
    /// 32-bit words, rows 0 to 7 in the lower halves: a shift or a mask widens eight of them.
    const fn place(self, row: usize) -> usize {
        match self {
            Self::F32 | Self::F16 => row,
            Self::Bf16 => row % 8 * 2 + row / 8,
        }
    }
}

fn widen_each<const BYTES: usize>(
    bytes: &[u8],
    out: &mut [f32],
    widen: impl Fn([u8; BYTES]) -> f32,
) {
    let (numbers, _) = bytes.as_chunks::<BYTES>();
    for (out, number) in out.iter_mut().zip(numbers) {
        *out = widen(*number);
    }
}

/// A matrix in floating point, in panels of sixteen rows: `[input][row]`, rows of zeros at the end.
#[derive(Debug)]
pub struct FloatMatrix {
    kind: FloatType,
    outputs: usize,
    inputs: usize,
    memory: Piece,
}

impl FloatMatrix {
    /// Pack `outputs` rows of `inputs` numbers from their bytes, in the order of this machine. Row `i` of
    /// the result is the one that gives output `i` by `order`.
    ///
    /// # Errors
    /// If the system has no memory for it.
    ///
    /// # Panics
    /// If numbers do not fill the rows, or heads `outputs`.
    pub fn new(
        kind: FloatType,
        bytes: &[u8],
        order: RowOrder,
        outputs: usize,
        inputs: usize,
    ) -> Result<Self, OutOfMemory> {
        let row_bytes = inputs.saturating_mul(kind.bytes());
        assert!(outputs > 0 && inputs > 0 && Some(bytes.len()) == row_bytes.checked_mul(outputs));
        assert!(order.fills(outputs));
        let panel_bytes = row_bytes.saturating_mul(PANEL_ROWS);
        let mut memory = Piece::new(outputs.div_ceil(PANEL_ROWS).saturating_mul(panel_bytes))?;
        let pack = |task: usize, panels: &mut [u8]| {
            for (number, panel) in panels.chunks_exact_mut(panel_bytes).enumerate() {
                let first = (task * PANELS_A_TASK + number) * PANEL_ROWS;
                let mut rows = [&[][..]; PANEL_ROWS];
                let count = PANEL_ROWS.min(outputs - first);
                for (output, row) in (first..).zip(&mut rows[..count]) {
                    *row = &bytes[order.row(output) * row_bytes..][..row_bytes];
                }
                match kind.bytes() {
                    2 => pack_panel::<2>(kind, &rows[..count], panel),
                    _ => pack_panel::<4>(kind, &rows[..count], panel),
                }
            }
        };
        crate::pool::for_each_piece(memory.bytes_mut(), PANELS_A_TASK * panel_bytes, pack);
        Ok(Self {
            kind,
            outputs,
            inputs,
            memory,
        })
    }

    /// The type of the numbers.
    pub fn kind(&self) -> FloatType {
        self.kind
    }

    /// Rows.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Columns.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// One row in f32.
    ///
    /// # Panics
    /// If there is no such row, or `out` does not hold one.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.outputs && out.len() == self.inputs);
        let size = self.kind.bytes();
        let place = self.kind.place(row % PANEL_ROWS) * size;
        let panel = self.panels(row / PANEL_ROWS, 1);
        for (out, input) in out.iter_mut().zip(panel.chunks_exact(PANEL_ROWS * size)) {
            self.kind
                .widen(&input[place..][..size], std::slice::from_mut(out));
        }
    }

    fn panels(&self, first: usize, count: usize) -> &[u8] {
        let length = self.inputs * PANEL_ROWS * self.kind.bytes();
        &self.memory.bytes()[first * length..][..count * length]
    }

    /// The products of the rows of `x`, a tile, with those of neighbouring panels: for each row of the
    /// tile the sums of each panel. Padding rows give 0, unless an activation is NaN or infinite.
    ///
    /// # Panics
    /// If the length of `x` is no multiple of the inputs, panels are beyond the matrix, or the tile's size is none that
    /// [`tiles`] and [`panels_together`] return for the instruction set.
    pub(crate) fn tile(
        &self,
        isa: Isa,
        place: TilePlace,
        x: &[f32],
        sums: &mut [[f32; PANEL_ROWS]; TILE_SUMS],
    ) {
        let rows = x.len() / self.inputs;
        assert!(x.len() == rows * self.inputs && tile::is_a_size(isa, rows, place.panels));
        let panels = self.panels(place.first_panel, place.panels);
        let (ahead, ahead_step) = place.fetched(panels, self.inputs);
        let operands = Operands {
            panels: panels.as_ptr(),
            inputs: self.inputs,
            x: x.as_ptr(),
            ahead,
            ahead_step,
            sums: sums.as_mut_ptr(),
        };
        let (kind, size) = (self.kind, (rows, place.panels));
        // SAFETY: so many panels and rows of so many inputs were just found, there are places for all
        // sums of every size of a tile, and who names an instruction set has found it.
        #[allow(unsafe_code, reason = "calls functions compiled for checked features")]
        unsafe {
            match isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512Vnni => x86::tile_of_avx512(kind, size, operands),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 | Isa::AvxVnni => x86::tile_of_avx2(kind, size, operands),
                #[cfg(target_arch = "aarch64")]
                Isa::Neon | Isa::NeonDotprod | Isa::NeonI8mm => neon::tile(kind, size, operands),
                _ => portable::tile(kind, size, operands),
            }
        }
    }
}

/// Put rows of numbers side by side into a panel of zeros.
fn pack_panel<const BYTES: usize>(kind: FloatType, rows: &[&[u8]], panel: &mut [u8]) {
    let (numbers, _) = panel.as_chunks_mut::<BYTES>();
    let (inputs, _) = numbers.as_chunks_mut::<PANEL_ROWS>();
    for (part, inputs) in inputs.chunks_mut(INPUTS_TOGETHER).enumerate() {
        for (row, source) in rows.iter().enumerate() {
            let (source, _) = source.as_chunks::<BYTES>();
            let place = kind.place(row);
            for (input, number) in inputs.iter_mut().zip(&source[part * INPUTS_TOGETHER..]) {
                input[place] = *number;
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
