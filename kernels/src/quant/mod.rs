//! Quantised weights: decoding of the block formats of GGUF, and dot products with them.
//!
//! A format stores weights in blocks of 32 or 256 along the inputs of a row. Whatever its layout, each
//! group of 32 consecutive weights is small integers with a scale, and in some formats a minimum,
//! for each half of the group: a [`Group`]. What a block means in f32 follows from that
//! ([`dequantise`]); it agrees bit for bit with the definition of the format.
//!
//! Products are of [packed](PackedMatrix) weights, and integer products: activations are rounded to eight
//! bits in groups of 32 with a scale each ([`QuantisedRows`]), which makes the sum over a group exact, so
//! that vector paths of any width agree on it, and reads half of the bytes that f32 activations have. The rounding of
//! activations has an error of about 0.4 % of a group's largest value. Exact products need weights that are dequantised
//! to f32.

mod activations;
#[cfg(target_arch = "x86_64")]
mod avx2;
mod layout;
#[cfg(target_arch = "aarch64")]
mod neon;
mod packed;
mod quantise;
mod quantised_group;

pub(crate) use activations::PASS_ROWS;
pub use activations::QuantisedRows;
pub(crate) use packed::PANEL_ROWS;
pub use packed::PackedMatrix;
pub use quantise::{quantise_q4_k, quantise_q8_0};
pub use quantised_group::QuantisedGroup;

/// Weights that are unpacked together.
pub const GROUP: usize = 32;

/// A block format, by its name in GGUF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockType {
    /// 4 bits, symmetric: `Q4_0`.
    Q4_0,
    /// 4 bits with a minimum: `Q4_1`.
    Q4_1,
    /// 5 bits, symmetric: `Q5_0`.
    Q5_0,
    /// 5 bits with a minimum: `Q5_1`.
    Q5_1,
    /// 8 bits: `Q8_0`.
    Q8_0,
    /// 2 bits with minima, in blocks of 256: `Q2_K`.
    Q2K,
    /// 3 bits, in blocks of 256: `Q3_K`.
    Q3K,
    /// 4 bits with minima, in blocks of 256: `Q4_K`.
    Q4K,
    /// 5 bits with minima, in blocks of 256: `Q5_K`.
    Q5K,
    /// 6 bits, in blocks of 256: `Q6_K`.
    Q6K,
    /// 4 bits that number uneven steps: `IQ4_NL`.
    Iq4Nl,
    /// 4 bits that number uneven steps, in blocks of 256: `IQ4_XS`.
    Iq4Xs,
    /// 4-bit floats that share an exponent, of the OCP microscaling specification: `MXFP4`.
    Mxfp4,
}

impl BlockType {
    /// All formats.
    pub const ALL: [Self; 13] = [
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q2K,
        Self::Q3K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
        Self::Iq4Nl,
        Self::Iq4Xs,
        Self::Mxfp4,
    ];

    /// The name in GGUF.
    pub fn name(self) -> &'static str {
        match self {
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q8_0 => "Q8_0",
            Self::Q2K => "Q2_K",
            Self::Q3K => "Q3_K",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
            Self::Iq4Nl => "IQ4_NL",
            Self::Iq4Xs => "IQ4_XS",
            Self::Mxfp4 => "MXFP4",
        }
    }

    /// Weights in a block: 32 or 256. The inputs of a matrix are a multiple of it.
    pub const fn weights(self) -> usize {
        match self {
            Self::Q4_0
            | Self::Q4_1
            | Self::Q5_0
            | Self::Q5_1
            | Self::Q8_0
            | Self::Iq4Nl
            | Self::Mxfp4 => 32,
            Self::Q2K | Self::Q3K | Self::Q4K | Self::Q5K | Self::Q6K | Self::Iq4Xs => 256,
        }
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Q4_0 | Self::Iq4Nl => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q2K => 84,
            Self::Q3K => 110,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
            Self::Iq4Xs => 136,
            Self::Mxfp4 => 17,
        }
    }

    /// Bytes of a row of `weights` weights; `None` if it is no multiple of the block.
    pub const fn row_bytes(self, weights: usize) -> Option<usize> {
        if weights.is_multiple_of(self.weights()) {
            (weights / self.weights()).checked_mul(self.bytes())
        } else {
            None
        }
    }
}

/// Thirty-two weights: weight `k` is `scales[k / 16] * quants[k] - mins[k / 16]`, in f32.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group {
    /// The integers.
    pub quants: [i8; GROUP],
    /// Scale of each half.
    pub scales: [f32; 2],
    /// Minimum of each half, which is subtracted; 0 in formats without minima.
    pub mins: [f32; 2],
}

impl Group {
    fn dequantise(&self, out: &mut [f32]) {
        for (k, weight) in out.iter_mut().enumerate() {
            let half = k / 16;
            *weight = self.scales[half] * f32::from(self.quants[k]) - self.mins[half];
        }
    }
}

/// The weights of whole blocks in f32.
///
/// # Panics
/// If `blocks` is not whole blocks, or `out` does not hold exactly their weights.
pub fn dequantise(kind: BlockType, blocks: &[u8], out: &mut [f32]) {
    assert!(blocks.len().is_multiple_of(kind.bytes()));
    assert_eq!(out.len(), blocks.len() / kind.bytes() * kind.weights());
    let weights = out.chunks_exact_mut(kind.weights());
    for (block, weights) in blocks.chunks_exact(kind.bytes()).zip(weights) {
        for (index, weights) in weights.chunks_exact_mut(GROUP).enumerate() {
            layout::unpack(kind, block, index).dequantise(weights);
        }
    }
}

#[cfg(test)]
mod tests;
