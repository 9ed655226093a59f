//! Tensors of a GGUF file by the names that they have in safetensors files.

use std::sync::Arc;

use mortise_kernels::linear::RowOrder;

use super::names::gguf_name;
use super::{Gguf, GgufError};
use crate::checkpoint::{StoredTensor, TensorPlace};
use crate::error::ModelError;

/// Architectures whose files have the rows of queries and keys in rotary pairs side by side.
const PAIRED_ROWS: &[&str] = &["llama", "granite", "mistral3", "smollm3"];

/// The tensors of one file.
pub(crate) struct GgufTensors {
    gguf: Gguf,
    architecture: String,
}

impl GgufTensors {
    /// What each pair's rotary frequency is divided by: a tensor that safetensors files lack.
    pub(crate) const ROPE_DIVISORS: &str = "rope_freqs.weight";

    pub(crate) fn new(gguf: &Gguf) -> Result<Self, GgufError> {
        Ok(Self {
            gguf: gguf.clone(),
            architecture: gguf.architecture()?.to_owned(),
        })
    }

    /// Where a tensor is.
    pub(crate) fn find(&self, tensor: &str) -> Result<StoredTensor, ModelError> {
        let name = match tensor {
            Self::ROPE_DIVISORS => Some(tensor.to_owned()),
            _ => gguf_name(&self.architecture, tensor),
        };
        let name = name.unwrap_or_else(|| tensor.to_owned());
        let Some(info) = self.gguf.tensor(&name) else {
            return Err(ModelError::MissingTensor { tensor: name });
        };
        let Some(numbers) = info.kind.numbers() else {
            return Err(ModelError::NumberType {
                tensor: name,
                found: info.kind.name.to_owned(),
            });
        };
        let place = TensorPlace {
            file: Arc::clone(self.gguf.bytes()),
            range: info.place.clone(),
            shape: info.shape.clone(),
        };
        Ok(StoredTensor { place, numbers })
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
