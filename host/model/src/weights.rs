//! Numbers of a model: as a file has them, or converted when they are loaded.

use std::ops::Range;
use std::sync::Arc;

use half::{bf16, f16};
use mortise_kernels::linear::Weights;
use mortise_kernels::quant::{BlockType, dequantise, quantise_q4_k, quantise_q8_0};
use zerocopy::{FromBytes, IntoBytes};

use crate::folder::FileBytes;
use crate::fp8;

// Files are little endian, and weights are computed with as they are mapped.
#[cfg(target_endian = "big")]
compile_error!("mortise runs on little-endian machines only");

/// In which precision matrices are kept in memory. Sums are in f32 always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WeightPrecision {
    /// As the files have them: bf16 as bf16, FP8 as FP8 on a GPU and as bf16 on the processor, else f32.
    /// Those of a GGUF file keep every bit: quantised
    /// ones are packed for the kernels, others are not copied at all.
    #[default]
    AsStored,
    /// f32: the exact products, also of quantised weights.
    F32,
    /// bf16: half the memory; rounds what the files have more precisely.
    Bf16,
    /// Quantised to `Q8_0` where rows are multiples of 32, unless the files have them quantised.
    Q8_0,
    /// Quantised to `Q4_K` where rows are multiples of 256, else as [`Self::Q8_0`]; embedding and
    /// output head always as [`Self::Q8_0`].
    Q4K,
}

impl WeightPrecision {
    /// For the matrix of a router, which is small and whose errors choose other experts.
    pub(crate) fn of_router(self) -> Self {
        match self {
            Self::Q8_0 | Self::Q4K => Self::AsStored,
            other => other,
        }
    }

    /// For a matrix with a row for each token, whose errors show most.
    pub(crate) fn of_vocabulary(self) -> Self {
        match self {
            Self::Q4K => Self::Q8_0,
            other => other,
        }
    }
}

/// How a file stores numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberType {
    F32,
    F16,
    Bf16,
    Blocks(BlockType),
    /// Eight bits, whose scales are beside the tensor: see [`crate::fp8`].
    Fp8,
}

/// Numbers of a matrix or a vector.
#[derive(Debug)]
pub(crate) enum Numbers {
    F32(Vec<f32>),
    Bf16(Vec<bf16>),
    Blocks(BlockType, Vec<u8>),
    Mapped(Mapped),
}

/// Numbers that stay in their file.
#[derive(Debug)]
pub(crate) struct Mapped {
    file: Arc<FileBytes>,
    place: Range<usize>,
    numbers: NumberType,
}

impl Mapped {
    /// The place must lie in the file and hold whole numbers or blocks. `None` if they do not lie
    /// where the processor can read them.
    pub(crate) fn new(
        file: &Arc<FileBytes>,
        place: Range<usize>,
        numbers: NumberType,
    ) -> Option<Self> {
        let mapped = Self {
            file: Arc::clone(file),
            place,
            numbers,
        };
        mapped.stored().is_some().then_some(mapped)
    }

    fn stored(&self) -> Option<Stored<'_>> {
        let bytes = self.file.get(self.place.clone())?;
        Some(Stored::Dense(match self.numbers {
            NumberType::F32 => Weights::F32(<[f32]>::ref_from_bytes(bytes).ok()?),
            NumberType::F16 => Weights::F16(<[f16]>::ref_from_bytes(bytes).ok()?),
            NumberType::Bf16 => Weights::Bf16(<[bf16]>::ref_from_bytes(bytes).ok()?),
            NumberType::Blocks(kind) => return Some(Stored::Blocks(kind, bytes)),
            NumberType::Fp8 => return None,
        }))
    }
}

/// Numbers as they lie in memory.
pub(crate) enum Stored<'a> {
    /// Floating point, as a product takes them.
    Dense(Weights<'a>),
    /// Quantised, row by row.
    Blocks(BlockType, &'a [u8]),
}

impl Numbers {
    /// The numbers where they are.
    pub(crate) fn stored(&self) -> Stored<'_> {
        match self {
            Self::F32(values) => Stored::Dense(Weights::F32(values)),
            Self::Bf16(values) => Stored::Dense(Weights::Bf16(values)),
            Self::Blocks(kind, bytes) => Stored::Blocks(*kind, bytes),
            Self::Mapped(mapped) => mapped
                .stored()
                .expect("a mapping that was checked when it was made does not move"),
        }
    }

    /// Their bytes, and how those are meant.
    pub(crate) fn bytes(&self) -> (NumberType, &[u8]) {
        match self {
            Self::F32(values) => (NumberType::F32, values.as_bytes()),
            Self::Bf16(values) => (NumberType::Bf16, values.as_bytes()),
            Self::Blocks(kind, bytes) => (NumberType::Blocks(*kind), bytes),
            Self::Mapped(mapped) => (
                mapped.numbers,
                mapped.file.get(mapped.place.clone()).unwrap_or_default(),
            ),
        }
    }

    /// A row of a matrix in f32. Panics beyond the matrix.
    pub(crate) fn row(&self, row: usize, out: &mut [f32]) {
        match self.stored() {
            Stored::Dense(weights) => weights.row(row, out.len(), out),
            Stored::Blocks(kind, blocks) => {
                let length = out.len() / kind.weights() * kind.bytes();
                dequantise(kind, &blocks[row * length..][..length], out);
            }
        }
    }

    /// Give back the memory, also that of pages of a mapped file that were read.
    pub(crate) fn release(self) {
        if let Self::Mapped(mapped) = self {
            mapped.file.release(mapped.place);
        }
    }

    /// Numbers in the wanted precision from a file's bytes, in rows of `inputs`.
    pub(crate) fn convert(
        bytes: &[u8],
        stored: NumberType,
        precision: WeightPrecision,
        inputs: usize,
    ) -> Self {
        let fits = |kind: BlockType| inputs.is_multiple_of(kind.weights());
        match (precision, stored) {
            (WeightPrecision::AsStored, NumberType::Bf16) => Self::Bf16(brain_floats(bytes)),
            (
                WeightPrecision::AsStored | WeightPrecision::Q8_0 | WeightPrecision::Q4K,
                NumberType::Blocks(kind),
            ) => Self::Blocks(kind, bytes.to_vec()),
            (WeightPrecision::Bf16, NumberType::Bf16) => Self::Bf16(brain_floats(bytes)),
            (WeightPrecision::Bf16, _) => Self::Bf16(
                widen(bytes, stored)
                    .into_iter()
                    .map(bf16::from_f32)
                    .collect(),
            ),
            (WeightPrecision::Q4K, _) if fits(BlockType::Q4K) => {
                Self::Blocks(BlockType::Q4K, quantise_q4_k(&widen(bytes, stored)))
            }
            (WeightPrecision::Q4K | WeightPrecision::Q8_0, _) if fits(BlockType::Q8_0) => {
                Self::Blocks(BlockType::Q8_0, quantise_q8_0(&widen(bytes, stored)))
            }
            (WeightPrecision::Q4K | WeightPrecision::Q8_0, NumberType::Bf16) => {
                Self::Bf16(brain_floats(bytes))
            }
            (_, _) => Self::F32(widen(bytes, stored)),
        }
    }
}

/// Numbers in f32 from little-endian bytes, exactly; those of eight bits without their scales.
pub(crate) fn widen(bytes: &[u8], stored: NumberType) -> Vec<f32> {
    let pairs = bytes.chunks_exact(2).map(|pair| [pair[0], pair[1]]);
    match stored {
        NumberType::F32 => bytes
            .chunks_exact(4)
            .map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]))
            .collect(),
        NumberType::F16 => pairs
            .map(|pair| f16::from_le_bytes(pair).to_f32())
            .collect(),
        NumberType::Bf16 => pairs
            .map(|pair| bf16::from_le_bytes(pair).to_f32())
            .collect(),
        NumberType::Fp8 => bytes.iter().map(|bits| fp8::widen(*bits)).collect(),
        NumberType::Blocks(kind) => {
            let mut values = vec![0.0; bytes.len() / kind.bytes() * kind.weights()];
            dequantise(kind, bytes, &mut values);
            values
        }
    }
}

pub(crate) fn brain_floats(bytes: &[u8]) -> Vec<bf16> {
    let pairs = bytes.chunks_exact(2);
    pairs
        .map(|pair| bf16::from_le_bytes([pair[0], pair[1]]))
        .collect()
}
