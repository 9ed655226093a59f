//! Tensors of a GGUF file by the names that they have in safetensors files.

use std::sync::Arc;

use mortise_kernels::linear::RowOrder;

use super::names::{gguf_name, gguf_part};
use super::{Gguf, GgufError, TensorInfo};
use crate::error::ModelError;
use crate::stored_tensor::{StoredTensor, TensorPlace};

/// Architectures whose files have the rows of queries and keys in rotary pairs side by side.
const PAIRED_ROWS: &[&str] = &["llama", "granite", "mistral3", "smollm3"];

/// The tensors of one file.
pub(crate) struct GgufTensors {
    gguf: Gguf,
    architecture: String,
}

impl GgufTensors {
    /// Divisors of the rotary frequencies, one a pair. Safetensors files have no such tensor.
    pub(crate) const ROPE_DIVISORS: &str = "rope_freqs.weight";

    pub(crate) fn new(gguf: &Gguf) -> Result<Self, GgufError> {
        Ok(Self {
            gguf: gguf.clone(),
            architecture: gguf.architecture()?.to_owned(),
        })
    }

    /// Find a tensor.
    pub(crate) fn find(&self, tensor: &str) -> Result<StoredTensor, ModelError> {
        if let Some(part) = gguf_part(tensor) {
            return match self.gguf.tensor(&part.whole) {
                Some(info) => self.part(info, part.number),
                None => self.stored(&part.alone),
            };
        }
        let name = match tensor {
            Self::ROPE_DIVISORS => Some(tensor.to_owned()),
            _ => gguf_name(&self.architecture, tensor),
        };
        let mut stored = self.stored(&name.unwrap_or_else(|| tensor.to_owned()))?;
        let shape = &mut stored.place.shape;
        if tensor.ends_with("shared_expert_gate.weight") && shape.len() == 1 {
            // A matrix of one row lost its second side when it was written.
            shape.insert(0, 1);
        }
        Ok(stored)
    }

    /// Whether there is such a tensor, or a tensor that it is a part of.
    pub(crate) fn has(&self, tensor: &str) -> bool {
        self.find(tensor).is_ok()
    }

    /// Find a tensor by the name that it has in the file.
    pub(crate) fn stored(&self, name: &str) -> Result<StoredTensor, ModelError> {
        let info = self.gguf.tensor(name);
        let info = info.ok_or_else(|| ModelError::MissingTensor {
            tensor: name.to_owned(),
        })?;
        let Some(numbers) = info.kind.numbers() else {
            return Err(ModelError::NumberType {
                tensor: name.to_owned(),
                found: info.kind.name.to_owned(),
            });
        };
        let place = TensorPlace {
            file: Arc::clone(self.gguf.file_of(info)),
            range: info.place.clone(),
            shape: info.shape.clone(),
        };
        Ok(StoredTensor {
            place,
            numbers,
            scales: None,
        })
    }

    /// The part of a tensor with this number along its slowest side.
    fn part(&self, info: &TensorInfo, number: usize) -> Result<StoredTensor, ModelError> {
        let mut stored = self.stored(&info.name)?;
        let parts = stored.place.shape.remove(0);
        if number >= parts || stored.place.shape.is_empty() {
            return Err(ModelError::MissingTensor {
                tensor: format!("part {number} of {}", info.name),
            });
        }
        // Rows are whole blocks, so that parts of equally many rows have equally many bytes.
        let bytes = info.place.len() / parts;
        let first = info.place.start + number * bytes;
        stored.place.range = first..first + bytes;
        Ok(stored)
    }

    pub(crate) fn has_rope_divisors(&self) -> bool {
        self.gguf.tensor(Self::ROPE_DIVISORS).is_some()
    }

    /// In which order a tensor's rows are stored.
    pub(crate) fn row_order(&self, tensor: &str, head_dim: usize) -> RowOrder {
        let turned = [".q_proj.", ".k_proj."]
            .iter()
            .any(|part| tensor.contains(part));
        if turned && PAIRED_ROWS.contains(&self.architecture.as_str()) {
            RowOrder::Paired { head: head_dim }
        } else {
            RowOrder::Plain
        }
    }
}
