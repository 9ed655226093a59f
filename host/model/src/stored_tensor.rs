//! Location and number format of one tensor in a file.

use std::ops::Range;
use std::sync::Arc;

use crate::error::ModelError;
use crate::file_bytes::FileBytes;
use crate::fp8;
use crate::weights::{NumberType, WeightPrecision};

/// A tensor in a file and its number format.
pub(crate) struct StoredTensor {
    pub(crate) place: TensorPlace,
    pub(crate) numbers: NumberType,
    /// Scales of FP8 numbers.
    pub(crate) scales: Option<fp8::Scales>,
}

/// Byte range and shape of a tensor. The range lies within the file.
pub(crate) struct TensorPlace {
    pub(crate) file: Arc<FileBytes>,
    pub(crate) range: Range<usize>,
    /// Slowest dimension first.
    pub(crate) shape: Vec<usize>,
}

impl TensorPlace {
    /// The bytes of the tensor.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.file.get(self.range.clone()).unwrap_or_default()
    }

    /// Compare the shape with the one that the configuration asks for.
    pub(crate) fn check(&self, tensor: &str, shape: &[usize]) -> Result<(), ModelError> {
        if self.shape == shape {
            return Ok(());
        }
        Err(ModelError::Shape {
            tensor: tensor.to_owned(),
            expected: shape.to_vec(),
            found: self.shape.clone(),
        })
    }
}

impl StoredTensor {
    /// Whether the numbers need no conversion for this precision.
    pub(crate) fn stays(&self, precision: WeightPrecision) -> bool {
        match precision {
            WeightPrecision::AsStored => true,
            WeightPrecision::F32 => self.numbers == NumberType::F32,
            WeightPrecision::Bf16 => self.numbers == NumberType::Bf16,
            WeightPrecision::Q8_0 | WeightPrecision::Q4K => {
                matches!(self.numbers, NumberType::Blocks(_))
            }
        }
    }
}
