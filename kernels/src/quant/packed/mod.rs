//! Quantised matrices laid out for products: eight rows side by side, so that no product needs a sum
//! across a register, and in memory of their own, in huge pages.
//!
//! Packing keeps every bit of a format: a packed row decodes to the same numbers as its blocks.

#[cfg(target_arch = "aarch64")]
mod neon;
mod pack;
mod portable;
mod shape;
#[cfg(target_arch = "x86_64")]
mod x86;

use super::activations::TILE_ROWS;
use super::{BlockType, GROUP, PASS_ROWS, QuantisedGroup};
use crate::isa::Isa;
use crate::memory::{OutOfMemory, Piece};
use crate::row_order::RowOrder;
#[cfg(target_arch = "aarch64")]
use neon as vector;
use shape::Shape;
#[cfg(target_arch = "x86_64")]
use x86 as vector;

pub(crate) use shape::PANEL_ROWS;

/// Panels that are packed by one task.
const PANELS_A_TASK: usize = 16;

/// A quantised matrix in panels of eight rows.
#[derive(Debug)]
pub struct PackedMatrix {
    shape: Shape,
    outputs: usize,
    inputs: usize,
    memory: Piece,
}

impl PackedMatrix {
    /// Pack `outputs` rows of `inputs` weights. Row `i` of the result is the one that gives output `i`
    /// by `order`.
    ///
    /// # Errors
    /// If the system has no memory for it.
    ///
    /// # Panics
    /// If blocks do not fill the rows, or the rows `blocks`, or heads `outputs`.
    pub fn new(
        kind: BlockType,
        blocks: &[u8],
        order: RowOrder,
        outputs: usize,
        inputs: usize,
    ) -> Result<Self, OutOfMemory> {
        let row_bytes = kind.row_bytes(inputs).expect("blocks fill a row");
        assert!(outputs > 0 && inputs > 0 && Some(blocks.len()) == row_bytes.checked_mul(outputs));
        assert!(order.fills(outputs));
        let shape = Shape::of(kind);
        let panel_bytes = inputs / kind.weights() * shape.block_bytes();
        let bytes = outputs.div_ceil(PANEL_ROWS).saturating_mul(panel_bytes);
        let mut memory = Piece::new(bytes)?;
        let pack = |task: usize, panels: &mut [u8]| {
            for (number, panel) in panels.chunks_exact_mut(panel_bytes).enumerate() {
                let first = (task * PANELS_A_TASK + number) * PANEL_ROWS;
                let mut rows = [&[][..]; PANEL_ROWS];
                let count = PANEL_ROWS.min(outputs - first);
                for (output, row) in (first..).zip(&mut rows[..count]) {
                    *row = &blocks[order.row(output) * row_bytes..][..row_bytes];
                }
                pack::pack_panel(kind, &rows[..count], panel);
            }
        };
        crate::pool::for_each_piece(memory.bytes_mut(), PANELS_A_TASK * panel_bytes, pack);
        Ok(Self {
            shape,
            outputs,
            inputs,
            memory,
        })
    }

    /// The format.
    pub fn kind(&self) -> BlockType {
        self.shape.kind
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
        let panel = self.panel(row / PANEL_ROWS);
        for (number, out) in out.chunks_exact_mut(GROUP).enumerate() {
            let groups = self.shape.groups();
            let block = &panel[number / groups * self.shape.block_bytes()..];
            let group = portable::unpack(&self.shape, block, number % groups, row % PANEL_ROWS);
            group.dequantise(out);
        }
    }

    fn panel(&self, number: usize) -> &[u8] {
        let length = self.inputs / self.shape.kind.weights() * self.shape.block_bytes();
        &self.memory.bytes()[number * length..][..length]
    }

    /// The products of the rows of a [pass](super::QuantisedRows::pass) with those of a panel:
    /// `out[row][panel row]`. Rows beyond the matrix give 0.
    pub(crate) fn products(
        &self,
        isa: Isa,
        panel: usize,
        (x, rows): (&[QuantisedGroup], usize),
        out: &mut [[f32; PANEL_ROWS]; PASS_ROWS],
    ) {
        panel_products(&self.shape, isa, self.panel(panel), (x, rows), out);
    }
}

/// The products of the rows of a pass with those of a panel.
///
/// # Panics
/// If the panel and the rows are not of one length, whole blocks, or there is no pass of so many rows.
fn panel_products(
    shape: &Shape,
    isa: Isa,
    panel: &[u8],
    (x, rows): (&[QuantisedGroup], usize),
    out: &mut [[f32; PANEL_ROWS]; PASS_ROWS],
) {
    let blocks = panel.len() / shape.block_bytes();
    assert!(panel.len().is_multiple_of(shape.block_bytes()));
    assert!(x.len() == rows * blocks * shape.groups() && matches!(rows, 1 | 2 | 4 | PASS_ROWS));
    let together = if takes_passes(isa) {
        rows
    } else {
        rows.min(TILE_ROWS)
    };
    let tiles = x.chunks_exact(together * blocks * shape.groups());
    for (x, out) in tiles.zip(out.chunks_exact_mut(together)) {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if isa != Isa::Portable {
            let (panel, x, out) = (panel.as_ptr(), x.as_ptr(), out.as_mut_ptr());
            // SAFETY: who names an instruction set has found it; panel and tile have as many blocks and
            // groups as is said, checked above, and there is a place for each row.
            #[allow(unsafe_code, reason = "calls a function compiled for checked features")]
            unsafe {
                vector::tile(isa, shape.kind, together, panel, blocks, x, out);
            }
            continue;
        }
        portable::tile(shape, panel, x, together, out);
    }
}

/// Whether products of two tiles at a time are written for an instruction set. One at a time, the first
/// waits for weights that come from memory, and then memory for the second, which finds them in the cache.
fn takes_passes(isa: Isa) -> bool {
    matches!(isa, Isa::Avx2 | Isa::AvxVnni | Isa::Avx512Vnni)
}

#[cfg(test)]
mod tests;
