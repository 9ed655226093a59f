//! Tensors of a GGUF file: names, shapes, types, places.

use std::collections::HashSet;

use mortise_kernels::quant::BlockType;

use super::cursor::Cursor;
use super::{GgufError, Place};
use crate::weights::NumberType;

/// Bytes of a name; the format's own limit.
const NAME_BYTES_MAX: u64 = 64;
/// Dimensions of a GGUF tensor.
const DIMENSIONS_MAX: u32 = 4;

/// Number format of a tensor, for every type that GGUF defines. [`Self::numbers`] tells which are
/// supported. Every type that GGUF defines has one; [`Self::numbers`] says which can be computed
/// with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorType {
    number: u32,
    /// The name in GGUF.
    pub name: &'static str,
    /// Numbers of a block.
    pub block_numbers: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
}

/// Number in the file, name, numbers of a block, bytes of a block.
const TYPES: &[(u32, &str, u64, u64)] = &[
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
];

impl TensorType {
    fn from_number(number: u32) -> Option<Self> {
        let known = TYPES.iter().find(|(known, ..)| *known == number);
        known.map(|&(number, name, block_numbers, block_bytes)| Self {
            number,
            name,
            block_numbers,
            block_bytes,
        })
    }

    /// Format of the kernels, for supported types.
    pub(crate) fn numbers(self) -> Option<NumberType> {
        match self.name {
            "F32" => Some(NumberType::F32),
            "F16" => Some(NumberType::F16),
            "BF16" => Some(NumberType::Bf16),
            name => BlockType::ALL
                .into_iter()
                .find(|kind| kind.name() == name)
                .map(NumberType::Blocks),
        }
    }
}

/// One tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// Its sides, the slowest first: outputs before inputs.
    pub shape: Vec<usize>,
    /// Number format.
    pub kind: TensorType,
    /// In which of the model's files it is.
    pub(super) file: usize,
    /// Byte range in that file.
    pub(crate) place: Place,
}

impl TensorInfo {
    /// Bytes in the file.
    pub fn bytes(&self) -> usize {
        self.place.len()
    }
}

/// Read all tensors' descriptions. The cursor stands behind the metadata; behind the descriptions
/// the file's data begins at the next multiple of `alignment`.
pub(super) fn read_all(
    cursor: &mut Cursor<'_>,
    count: u64,
    alignment: usize,
) -> Result<Vec<TensorInfo>, GgufError> {
    let mut described = Vec::new();
    let mut names = HashSet::new();
    for number in 0..count {
        let tensor = Described::read(cursor, number, alignment)?;
        if !names.insert(tensor.name.clone()) {
            return Err(tensor.wrong("is there twice"));
        }
        described.push(tensor);
    }
    let file = cursor.file_length() as u64;
    // The header lies in memory, so that this cannot overflow.
    let data = (cursor.position() as u64).next_multiple_of(alignment as u64);
    let mut tensors = Vec::with_capacity(described.len());
    for tensor in described {
        tensors.push(tensor.placed(data, file)?);
    }
    refuse_overlaps(&tensors)?;
    Ok(tensors)
}

/// A tensor as the header describes it.
struct Described {
    name: String,
    shape: Vec<usize>,
    kind: TensorType,
    /// From the beginning of the data.
    offset: u64,
    bytes: u64,
}

impl Described {
    fn read(cursor: &mut Cursor<'_>, number: u64, alignment: usize) -> Result<Self, GgufError> {
        let name = cursor.text(NAME_BYTES_MAX, || format!("the name of tensor {number}"))?;
        let within = || format!("the description of tensor `{name}`");
        let wrong = |problem: String| GgufError::Tensor {
            tensor: name.to_owned(),
            problem,
        };
        let dimensions = cursor.u32(within)?;
        if !(1..=DIMENSIONS_MAX).contains(&dimensions) {
            return Err(wrong(format!(
                "has {dimensions} dimensions; expected 1 to {DIMENSIONS_MAX}"
            )));
        }
        let mut sides = Vec::new();
        for _ in 0..dimensions {
            sides.push(cursor.u64(within)?);
        }
        let number = cursor.u32(within)?;
        let offset = cursor.u64(within)?;
        let kind = TensorType::from_number(number)
            .ok_or_else(|| wrong(format!("has type {number}, which is not known")))?;
        let count = sides
            .iter()
            .try_fold(1_u64, |product, side| product.checked_mul(*side))
            .filter(|count| (1..=i64::MAX as u64).contains(count));
        let Some(count) = count else {
            return Err(wrong(format!("has sides {sides:?}, which make no sense")));
        };
        if !sides[0].is_multiple_of(kind.block_numbers) {
            return Err(wrong(format!(
                "has rows of {} numbers, which blocks of {} ({}) do not fill",
                sides[0], kind.block_numbers, kind.name
            )));
        }
        let bytes = (count / kind.block_numbers).checked_mul(kind.block_bytes);
        let shape: Option<Vec<usize>> = sides
            .iter()
            .rev()
            .map(|side| usize::try_from(*side).ok())
            .collect();
        let Some((bytes, shape)) = bytes.zip(shape) else {
            return Err(wrong(format!("has sides {sides:?}, which make no sense")));
        };
        if !offset.is_multiple_of(alignment as u64) {
            return Err(wrong(format!(
                "begins at byte {offset} of the data, which is no multiple of {alignment}"
            )));
        }
        Ok(Self {
            name: name.to_owned(),
            shape,
            kind,
            offset,
            bytes,
        })
    }

    /// The tensor's place in a file of `file` bytes whose data begins at `data`.
    fn placed(self, data: u64, file: u64) -> Result<TensorInfo, GgufError> {
        let first = data.checked_add(self.offset);
        let last = first.and_then(|first| first.checked_add(self.bytes));
        let place = first
            .zip(last)
            .filter(|(_, last)| *last <= file)
            .and_then(|(first, last)| usize::try_from(first).ok().zip(usize::try_from(last).ok()));
        let Some((first, last)) = place else {
            let (bytes, offset) = (self.bytes, self.offset);
            return Err(self.wrong(&format!(
                "has {bytes} bytes from byte {offset} of the data on; the file ends before"
            )));
        };
        Ok(TensorInfo {
            name: self.name,
            shape: self.shape,
            kind: self.kind,
            file: 0,
            place: first..last,
        })
    }

    fn wrong(&self, problem: &str) -> GgufError {
        GgufError::Tensor {
            tensor: self.name.clone(),
            problem: problem.to_owned(),
        }
    }
}

fn refuse_overlaps(tensors: &[TensorInfo]) -> Result<(), GgufError> {
    let mut order: Vec<&TensorInfo> = tensors.iter().collect();
    order.sort_by_key(|tensor| tensor.place.start);
    for pair in order.windows(2) {
        if pair[1].place.start < pair[0].place.end {
            return Err(GgufError::Tensor {
                tensor: pair[1].name.clone(),
                problem: format!("overlaps tensor `{}`", pair[0].name),
            });
        }
    }
    Ok(())
}
