//! Packed layout of each format: rows of eight outputs side by side.
//!
//! A panel holds eight rows of the matrix. It is a sequence of blocks, as many as a row of the format
//! has; a block holds parameters of all its groups and then the codes, group by group:
//!
//! ```text
//! scale       [8 rows] f16            (or one exponent byte each, MXFP4)
//! minimum     [8 rows] f16            formats with minima
//! multiples   [part][8 rows] u8       of the scale; a part is a group or half of one
//! ... of min  [part][8 rows] u8
//! codes       [group][planes]
//! ```
//!
//! A register of codes holds four consecutive inputs of each of eight rows: lane `r` has row `r`.
//! Eight registers are a group. They are stored in planes of bits: whole bytes; low nibbles, two
//! registers in one; pairs of bits above those, four registers in one; single bits, eight in one.

use super::super::layout::IQ4_STEPS;
use super::super::{BlockType, GROUP};

/// Rows of a panel.
pub(crate) const PANEL_ROWS: usize = 8;
/// Registers of codes in a group.
pub(super) const REGISTERS: usize = 8;

/// The values of 4-bit floats, doubled and raised by 16, so that they are positive integers.
const FP4_RAISED: [i8; 16] = [16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4];

/// Encoding of scales and minima.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parameters {
    /// A scale in f16.
    Half,
    /// A scale and a minimum in f16.
    HalfMin,
    /// An exponent.
    Power,
    /// Multiples of scale and minimum for each group.
    GroupMin,
    /// Multiples for each half of a group, scales in low nibbles and minima in high ones.
    HalvesMin,
    /// Signed multiples of the scale for each group.
    Group,
    /// Signed multiples of the scale for each half of a group.
    Halves,
}

/// Meaning of the codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codes {
    /// Integers from 0 to `max`; the weight is the code minus `offset`.
    Unsigned { max: i32, offset: i32 },
    /// Signed bytes.
    Signed,
}

/// A format known when the code is compiled: known shifts and masks make it several times as fast.
pub(super) trait Format {
    const SHAPE: Shape;
}

/// An expression for the format that `$kind` is, which `$format` names as a type.
macro_rules! with_format {
    ($kind:expr, $format:ident => $body:expr) => {
        with_format!(
            $kind, $format => $body;
            Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2K Q3K Q4K Q5K Q6K Iq4Nl Iq4Xs Mxfp4
        )
    };
    ($kind:expr, $format:ident => $body:expr; $($name:ident)*) => {
        match $kind {
            $($crate::quant::BlockType::$name => {
                struct $format;
                impl $crate::quant::packed::shape::Format for $format {
                    const SHAPE: $crate::quant::packed::shape::Shape =
                        $crate::quant::packed::shape::Shape::of($crate::quant::BlockType::$name);
                }
                $body
            })*
        }
    };
}
pub(super) use with_format;

/// Packed layout of a format.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) kind: BlockType,
    /// Planes: bytes, or any of the others.
    pub(super) bytes: bool,
    pub(super) nibbles: bool,
    pub(super) pairs: bool,
    pub(super) singles: bool,
    /// Values of the nibbles.
    pub(super) table: Option<&'static [i8; 16]>,
    pub(super) codes: Codes,
    pub(super) parameters: Parameters,
}

impl Shape {
    const fn nibbles(kind: BlockType, codes: Codes, parameters: Parameters) -> Self {
        Self {
            kind,
            bytes: false,
            nibbles: true,
            pairs: false,
            singles: false,
            table: None,
            codes,
            parameters,
        }
    }

    pub(super) const fn of(kind: BlockType) -> Self {
        const fn unsigned(max: i32, offset: i32) -> Codes {
            Codes::Unsigned { max, offset }
        }
        use Parameters::{Group, GroupMin, Half, HalfMin, Halves, HalvesMin, Power};
        match kind {
            BlockType::Q4_0 => Self::nibbles(kind, unsigned(15, 8), Half),
            BlockType::Q4_1 => Self::nibbles(kind, unsigned(15, 0), HalfMin),
            BlockType::Q5_0 => Self {
                singles: true,
                ..Self::nibbles(kind, unsigned(31, 16), Half)
            },
            BlockType::Q5_1 => Self {
                singles: true,
                ..Self::nibbles(kind, unsigned(31, 0), HalfMin)
            },
            BlockType::Q8_0 => Self {
                bytes: true,
                nibbles: false,
                ..Self::nibbles(kind, Codes::Signed, Half)
            },
            BlockType::Q2K => Self {
                nibbles: false,
                pairs: true,
                ..Self::nibbles(kind, unsigned(3, 0), HalvesMin)
            },
            BlockType::Q3K => Self {
                nibbles: false,
                pairs: true,
                singles: true,
                ..Self::nibbles(kind, unsigned(7, 4), Halves)
            },
            BlockType::Q4K => Self::nibbles(kind, unsigned(15, 0), GroupMin),
            BlockType::Q5K => Self {
                singles: true,
                ..Self::nibbles(kind, unsigned(31, 0), GroupMin)
            },
            BlockType::Q6K => Self {
                pairs: true,
                ..Self::nibbles(kind, unsigned(63, 32), Halves)
            },
            BlockType::Iq4Nl => Self {
                table: Some(&IQ4_STEPS),
                ..Self::nibbles(kind, Codes::Signed, Half)
            },
            BlockType::Iq4Xs => Self {
                table: Some(&IQ4_STEPS),
                ..Self::nibbles(kind, Codes::Signed, Group)
            },
            BlockType::Mxfp4 => Self {
                table: Some(&FP4_RAISED),
                ..Self::nibbles(kind, unsigned(28, 16), Power)
            },
        }
    }

    /// Groups of a block.
    pub(super) const fn groups(&self) -> usize {
        self.kind.weights() / GROUP
    }

    /// Whether the halves of a group have scales of their own.
    pub(super) const fn halves(&self) -> bool {
        matches!(self.parameters, Parameters::Halves | Parameters::HalvesMin)
    }

    /// Whether weights have a minimum.
    pub(super) const fn minima(&self) -> bool {
        matches!(
            self.parameters,
            Parameters::HalfMin | Parameters::GroupMin | Parameters::HalvesMin
        )
    }

    /// Offset that is subtracted from codes.
    pub(super) const fn offset(&self) -> i32 {
        match self.codes {
            Codes::Unsigned { offset, .. } => offset,
            Codes::Signed => 0,
        }
    }

    /// Whether something is taken off the products of codes: a minimum or an offset.
    pub(super) const fn takes_off(&self) -> bool {
        self.minima() || self.offset() > 0
    }

    /// Offset of the multiples of the scales.
    pub(super) const fn multiples(&self) -> usize {
        2 * PANEL_ROWS * (1 + self.minima() as usize)
    }

    /// Offset of the multiples of the minima, in formats that keep them apart.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(super) const fn min_multiples(&self) -> usize {
        self.multiples() + self.groups() * PANEL_ROWS
    }

    /// Offset of the codes.
    pub(super) const fn parameter_bytes(&self) -> usize {
        let parts = self.groups() * PANEL_ROWS;
        match self.parameters {
            Parameters::Power => PANEL_ROWS,
            Parameters::Half | Parameters::HalfMin => self.multiples(),
            Parameters::Group => self.multiples() + parts,
            Parameters::GroupMin | Parameters::Halves | Parameters::HalvesMin => {
                self.multiples() + 2 * parts
            }
        }
    }

    /// Bytes of a register of codes of eight bits.
    pub(super) const REGISTER: usize = 4 * PANEL_ROWS;

    /// Offset of the pairs of bits in a group.
    pub(super) const fn pairs_at(&self) -> usize {
        if self.nibbles { 4 * Self::REGISTER } else { 0 }
    }

    /// Offset of the single bits in a group.
    pub(super) const fn singles_at(&self) -> usize {
        self.pairs_at() + if self.pairs { 2 * Self::REGISTER } else { 0 }
    }

    /// Bytes of the codes of a group.
    pub(super) const fn group_bytes(&self) -> usize {
        if self.bytes {
            REGISTERS * Self::REGISTER
        } else {
            self.singles_at() + if self.singles { Self::REGISTER } else { 0 }
        }
    }

    /// Bytes of a block of eight rows.
    pub(super) const fn block_bytes(&self) -> usize {
        self.parameter_bytes() + self.groups() * self.group_bytes()
    }

    /// The lowest bit of a code that pairs hold.
    pub(super) const fn pair_bit(&self) -> u32 {
        if self.nibbles { 4 } else { 0 }
    }

    /// The bit of a code that single bits hold.
    pub(super) const fn single_bit(&self) -> u32 {
        self.pair_bit() + if self.pairs { 2 } else { 0 }
    }
}
