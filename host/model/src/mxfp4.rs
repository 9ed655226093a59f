//! MXFP4 (Open Compute Project, Microscaling Formats 1.0) as gpt-oss has it in safetensors files:
//! 32 numbers of four bits in a block, with a power of two for each block.

use mortise_kernels::quant::BlockType;

use crate::weights::{NumberType, WeightNumbers, WeightPrecision};

/// Numbers of a block.
pub(crate) const BLOCK: usize = 32;
/// Bytes of a block, without its scale.
pub(crate) const BLOCK_BYTES: usize = BLOCK / 2;

/// Blocks and scales of a tensor: [`BLOCK_BYTES`] for each scale. Byte `i` of a block has number
/// `2 i` in its low and `2 i + 1` in its high half.
#[derive(Clone, Copy)]
pub(crate) struct Blocks<'a> {
    pub(crate) blocks: &'a [u8],
    pub(crate) scales: &'a [u8],
}

impl Blocks<'_> {
    /// A matrix of `outputs` rows of `inputs` numbers, which are whole blocks; row by row from the
    /// row of the tensor that `source` names. Panics beyond the tensor.
    pub(crate) fn matrix(
        &self,
        outputs: usize,
        inputs: usize,
        precision: WeightPrecision,
        source: impl Fn(usize) -> usize,
    ) -> WeightNumbers {
        let per_row = inputs / BLOCK;
        let mut bytes = Vec::with_capacity(outputs * per_row * BlockType::Mxfp4.bytes());
        for row in (0..outputs).map(source) {
            let blocks = &self.blocks[row * per_row * BLOCK_BYTES..][..per_row * BLOCK_BYTES];
            let scales = &self.scales[row * per_row..][..per_row];
            for (block, scale) in blocks.chunks_exact(BLOCK_BYTES).zip(scales) {
                bytes.push(*scale);
                bytes.extend(halves_apart(block));
            }
        }
        let stored = NumberType::Blocks(BlockType::Mxfp4);
        WeightNumbers::convert(&bytes, stored, precision, inputs)
    }
}

/// The order in which the kernels have a block: byte `i` has number `i` in its low and `i + 16` in
/// its high half.
fn halves_apart(block: &[u8]) -> [u8; BLOCK_BYTES] {
    let number = |index: usize| block[index / 2] >> (index % 2 * 4) & 15;
    std::array::from_fn(|index| number(index) | number(index + BLOCK_BYTES) << 4)
}
