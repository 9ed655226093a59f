//! Weights that lie on disk in another order than that in which they are computed with.

use half::{bf16, f16};
use zerocopy::IntoBytes;

use crate::weights::{NumberType, WeightNumbers, WeightPrecision, brain_floats, halves, widen};

/// Numbers of a tensor, as precise as they are stored, to be put in another order.
pub(crate) enum Unordered {
    F32(Vec<f32>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
}

impl Unordered {
    /// Numbers from a file's bytes.
    pub(crate) fn new(bytes: &[u8], stored: NumberType) -> Self {
        match stored {
            NumberType::Bf16 => Self::Bf16(brain_floats(bytes)),
            NumberType::F16 => Self::F16(halves(bytes)),
            other => Self::F32(widen(bytes, other)),
        }
    }

    /// Convert all numbers to f32.
    pub(crate) fn into_f32(self) -> Vec<f32> {
        match self {
            Self::F32(numbers) => numbers,
            Self::F16(numbers) => numbers.into_iter().map(f16::to_f32).collect(),
            Self::Bf16(numbers) => numbers.into_iter().map(bf16::to_f32).collect(),
        }
    }

    /// A matrix of `outputs` rows of `inputs` numbers, each from where `source` says. Panics beyond
    /// the numbers.
    pub(crate) fn matrix(
        &self,
        outputs: usize,
        inputs: usize,
        precision: WeightPrecision,
        source: impl Fn(usize, usize) -> usize,
    ) -> WeightNumbers {
        let source = &source;
        let order =
            (0..outputs).flat_map(|output| (0..inputs).map(move |input| source(output, input)));
        let convert =
            |bytes: &[u8], stored| WeightNumbers::convert(bytes, stored, precision, inputs);
        match self {
            Self::F32(numbers) => convert(gather(numbers, order).as_bytes(), NumberType::F32),
            Self::F16(numbers) => convert(gather(numbers, order).as_bytes(), NumberType::F16),
            Self::Bf16(numbers) => convert(gather(numbers, order).as_bytes(), NumberType::Bf16),
        }
    }
}

fn gather<T: Copy>(numbers: &[T], order: impl Iterator<Item = usize>) -> Vec<T> {
    order.map(|index| numbers[index]).collect()
}
