//! Numbers of a model: as a file has them, or converted when they are loaded.

use std::ops::Range;
use std::sync::Arc;

use half::{bf16, f16};
use mortise_kernels::floats::FloatType;
use mortise_kernels::quant::{BlockType, dequantise, quantise_q4_k, quantise_q8_0};
use zerocopy::IntoBytes;

use crate::file_bytes::FileBytes;
use crate::fp8;

// Files are little endian, and weights are packed as they are mapped.
#[cfg(target_endian = "big")]
compile_error!("mortise runs on little-endian machines only");

/// In which precision matrices are kept in memory. Sums are in f32 always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WeightPrecision {
    /// As the files have them, with every bit, packed for the kernels; but FP8, which stays FP8 on a GPU,
    /// is bf16 on the processor.
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
    /// For the matrix of a router: it is small, and its rounding errors would select other experts.
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

/// Number format of a tensor in a file.
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
pub(crate) enum WeightNumbers {
    F32(Vec<f32>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
    Blocks(BlockType, Vec<u8>),
    Mapped(Mapped),
}

/// Numbers that stay in their file.
#[derive(Debug)]
pub(crate) struct Mapped {
    file: Arc<FileBytes>,
    place: Range<usize>,
    kind: MappedKind,
}

#[derive(Debug, Clone, Copy)]
enum MappedKind {
    Floats(FloatType),
    Blocks(BlockType),
}

impl Mapped {
    /// The place must lie in the file and hold whole numbers or blocks. `None` for numbers that are
    /// nothing without their scales.
    pub(crate) fn new(
        file: &Arc<FileBytes>,
        place: Range<usize>,
        numbers: NumberType,
    ) -> Option<Self> {
        let kind = match numbers {
            NumberType::F32 => MappedKind::Floats(FloatType::F32),
            NumberType::F16 => MappedKind::Floats(FloatType::F16),
            NumberType::Bf16 => MappedKind::Floats(FloatType::Bf16),
            NumberType::Blocks(kind) => MappedKind::Blocks(kind),
            NumberType::Fp8 => return None,
        };
        Some(Self {
            file: Arc::clone(file),
            place,
            kind,
        })
    }

    fn stored(&self) -> StoredNumbers<'_> {
        // The constructor's caller checked the range.
        let bytes = self.file.get(self.place.clone()).unwrap_or_default();
        match self.kind {
            MappedKind::Floats(kind) => StoredNumbers::Floats(kind, bytes),
            MappedKind::Blocks(kind) => StoredNumbers::Blocks(kind, bytes),
        }
    }
}

/// Numbers as they lie in memory, row by row.
pub(crate) enum StoredNumbers<'a> {
    /// Floating point.
    Floats(FloatType, &'a [u8]),
    /// Quantised.
    Blocks(BlockType, &'a [u8]),
}

impl WeightNumbers {
    /// The numbers where they are.
    pub(crate) fn stored(&self) -> StoredNumbers<'_> {
        match self {
            Self::F32(values) => StoredNumbers::Floats(FloatType::F32, values.as_bytes()),
            Self::F16(values) => StoredNumbers::Floats(FloatType::F16, values.as_bytes()),
            Self::Bf16(values) => StoredNumbers::Floats(FloatType::Bf16, values.as_bytes()),
            Self::Blocks(kind, bytes) => StoredNumbers::Blocks(*kind, bytes),
            Self::Mapped(mapped) => mapped.stored(),
        }
    }

    /// Their bytes, and how those are meant.
    pub(crate) fn bytes(&self) -> (NumberType, &[u8]) {
        match self.stored() {
            StoredNumbers::Floats(FloatType::F32, bytes) => (NumberType::F32, bytes),
            StoredNumbers::Floats(FloatType::F16, bytes) => (NumberType::F16, bytes),
            StoredNumbers::Floats(FloatType::Bf16, bytes) => (NumberType::Bf16, bytes),
            StoredNumbers::Blocks(kind, bytes) => (NumberType::Blocks(kind), bytes),
        }
    }

    /// Copy mapped numbers into memory.
    pub(crate) fn into_owned(self) -> Self {
        let Self::Mapped(mapped) = &self else {
            return self;
        };
        match mapped.stored() {
            StoredNumbers::Floats(FloatType::F32, bytes) => {
                Self::F32(widen(bytes, NumberType::F32))
            }
            StoredNumbers::Floats(FloatType::F16, bytes) => Self::F16(halves(bytes)),
            StoredNumbers::Floats(FloatType::Bf16, bytes) => Self::Bf16(brain_floats(bytes)),
            StoredNumbers::Blocks(kind, bytes) => Self::Blocks(kind, bytes.to_vec()),
        }
    }

    /// A row of a matrix in f32. Panics beyond the matrix.
    pub(crate) fn row(&self, row: usize, out: &mut [f32]) {
        match self.stored() {
            StoredNumbers::Floats(kind, bytes) => {
                let length = out.len() * kind.bytes();
                kind.widen(&bytes[row * length..][..length], out);
            }
            StoredNumbers::Blocks(kind, blocks) => {
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
        use WeightPrecision::{AsStored, Bf16, F32, Q4K, Q8_0};
        let fits = |kind: BlockType| inputs.is_multiple_of(kind.weights());
        match (precision, stored) {
            (AsStored | Q8_0 | Q4K, NumberType::Blocks(kind)) => Self::Blocks(kind, bytes.to_vec()),
            (Q4K, _) if fits(BlockType::Q4K) => {
                Self::Blocks(BlockType::Q4K, quantise_q4_k(&widen(bytes, stored)))
            }
            (Q4K | Q8_0, _) if fits(BlockType::Q8_0) => {
                Self::Blocks(BlockType::Q8_0, quantise_q8_0(&widen(bytes, stored)))
            }
            (AsStored | Bf16 | Q4K | Q8_0, NumberType::Bf16) => Self::Bf16(brain_floats(bytes)),
            (AsStored | Q4K | Q8_0, NumberType::F16) => Self::F16(halves(bytes)),
            (Bf16, _) => {
                let values = widen(bytes, stored).into_iter();
                Self::Bf16(values.map(bf16::from_f32).collect())
            }
            (AsStored | F32 | Q4K | Q8_0, _) => Self::F32(widen(bytes, stored)),
        }
    }
}

/// Numbers in f32 from little-endian bytes, exactly; those of eight bits without their scales.
pub(crate) fn widen(bytes: &[u8], stored: NumberType) -> Vec<f32> {
    let floats = |kind: FloatType| {
        let mut values = vec![0.0; bytes.len() / kind.bytes()];
        kind.widen(bytes, &mut values);
        values
    };
    match stored {
        NumberType::F32 => floats(FloatType::F32),
        NumberType::F16 => floats(FloatType::F16),
        NumberType::Bf16 => floats(FloatType::Bf16),
        NumberType::Fp8 => bytes.iter().map(|bits| fp8::widen(*bits)).collect(),
        NumberType::Blocks(kind) => {
            let mut values = vec![0.0; bytes.len() / kind.bytes() * kind.weights()];
            dequantise(kind, bytes, &mut values);
            values
        }
    }
}

pub(crate) fn brain_floats(bytes: &[u8]) -> Vec<bf16> {
    pairs(bytes).map(bf16::from_le_bytes).collect()
}

pub(crate) fn halves(bytes: &[u8]) -> Vec<f16> {
    pairs(bytes).map(f16::from_le_bytes).collect()
}

fn pairs(bytes: &[u8]) -> impl Iterator<Item = [u8; 2]> + '_ {
    let (pairs, _) = bytes.as_chunks::<2>();
    pairs.iter().copied()
}
