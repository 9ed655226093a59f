//! The tensors of a model, wherever they are stored.

use mortise_kernels::linear::RowOrder;
use zerocopy::IntoBytes;

use crate::error::ModelError;
use crate::folder::ModelFolder;
use crate::gguf::GgufTensors;
use crate::limits::VOCABULARY_MAX;
use crate::rearrange::Unordered;
use crate::shards::{SINGLE_FILE, Shards};
use crate::spec::ModelSpec;
use crate::stored_tensor::{StoredTensor, TensorPlace};
use crate::weights::{Mapped, NumberType, WeightNumbers, WeightPrecision, widen};

/// Names of the token embedding in safetensors files, of decoders and of encoders.
const EMBEDDINGS: [&str; 6] = [
    "model.embed_tokens.weight",
    "embeddings.word_embeddings.weight",
    "bert.embeddings.word_embeddings.weight",
    "roberta.embeddings.word_embeddings.weight",
    "embeddings.tok_embeddings.weight",
    "model.embeddings.tok_embeddings.weight",
];

/// Size of the vocabulary with its padding: the rows of the token embedding, as many as the file has
/// bytes for. `None` for a folder without weights.
///
/// Headers are read, weights are not. `vocab_size` in `config.json` is compared with this number when
/// the model is loaded.
pub fn vocabulary_size(folder: &ModelFolder) -> Result<Option<usize>, ModelError> {
    let checkpoint = Checkpoint::open_optional(folder)?;
    checkpoint.map(|open| open.embedding_rows()).transpose()
}

/// The tensors of a model, still in their files. Names are those of safetensors files.
pub(crate) enum Checkpoint {
    /// Hugging Face files.
    Shards(Shards),
    /// A GGUF file.
    Gguf(GgufTensors),
}

impl Checkpoint {
    /// Open the files and check their headers.
    pub(crate) fn open(folder: &ModelFolder) -> Result<Self, ModelError> {
        Self::open_optional(folder)?.ok_or_else(|| folder.missing(SINGLE_FILE))
    }

    /// Open the files of a folder that may have no weights.
    fn open_optional(folder: &ModelFolder) -> Result<Option<Self>, ModelError> {
        match folder.gguf() {
            Some(gguf) => {
                let tensors = GgufTensors::new(gguf).map_err(|source| ModelError::Gguf {
                    file: folder.name(),
                    source,
                })?;
                Ok(Some(Self::Gguf(tensors)))
            }
            None => Ok(Shards::open(folder)?.map(Self::Shards)),
        }
    }

    fn embedding_rows(&self) -> Result<usize, ModelError> {
        let found = EMBEDDINGS.iter().find_map(|name| match self.stored(name) {
            Err(ModelError::MissingTensor { .. }) => None,
            stored => Some(stored.map(|stored| (name, stored.place))),
        });
        let (tensor, place) = found.unwrap_or_else(|| {
            Err(ModelError::MissingTensor {
                tensor: EMBEDDINGS[0].to_owned(),
            })
        })?;
        // A shape such as [2^62, 0] takes no bytes.
        let most = place.range.len().min(VOCABULARY_MAX);
        match place.shape[..] {
            [rows, _] if (1..=most).contains(&rows) => Ok(rows),
            _ => Err(ModelError::Embedding {
                tensor: (*tensor).to_owned(),
                found: place.shape.clone(),
                limit: VOCABULARY_MAX,
            }),
        }
    }

    fn stored(&self, tensor: &str) -> Result<StoredTensor, ModelError> {
        match self {
            Self::Shards(shards) => shards.find(tensor),
            Self::Gguf(gguf) => gguf.find(tensor),
        }
    }

    /// A tensor of the shape that the configuration asks for.
    pub(crate) fn find(&self, tensor: &str, shape: &[usize]) -> Result<StoredTensor, ModelError> {
        let stored = self.stored(tensor)?;
        stored.place.check(tensor, shape)?;
        Ok(stored)
    }

    /// A tensor of a shape that the caller knows, to be packed. Its size is that of bytes in a file, so
    /// that it may be allocated.
    pub(crate) fn load(
        &self,
        tensor: &str,
        shape: &[usize],
        precision: WeightPrecision,
    ) -> Result<WeightNumbers, ModelError> {
        let stored = self.find(tensor, shape)?;
        if stored.stays(precision)
            && let Some(mapped) = Mapped::new(
                &stored.place.file,
                stored.place.range.clone(),
                stored.numbers,
            )
        {
            return Ok(WeightNumbers::Mapped(mapped));
        }
        let inputs = shape.last().copied().unwrap_or(1);
        let bytes = stored.place.bytes();
        let Some(scales) = &stored.scales else {
            return Ok(WeightNumbers::convert(
                bytes,
                stored.numbers,
                precision,
                inputs,
            ));
        };
        // Products take no numbers of eight bits; half of what f32 needs is precise enough for them.
        let precision = match precision {
            WeightPrecision::AsStored => WeightPrecision::Bf16,
            other => other,
        };
        let weights = scales.apply(bytes);
        let bytes = weights.as_bytes();
        Ok(WeightNumbers::convert(
            bytes,
            NumberType::F32,
            precision,
            inputs,
        ))
    }

    /// Load a tensor that is kept unpacked.
    pub(crate) fn load_table(
        &self,
        tensor: &str,
        shape: &[usize],
        precision: WeightPrecision,
    ) -> Result<WeightNumbers, ModelError> {
        let numbers = self.load(tensor, shape, precision)?;
        Ok(match self {
            // The file is mapped as long as the model is there.
            Self::Gguf(_) => numbers,
            // Others are closed when the model is loaded.
            Self::Shards(_) => numbers.into_owned(),
        })
    }

    /// A tensor to be put in another order, as precise as it is stored.
    pub(crate) fn load_unordered(
        &self,
        tensor: &str,
        shape: &[usize],
    ) -> Result<Unordered, ModelError> {
        let stored = self.find(tensor, shape)?;
        Ok(match &stored.scales {
            None => Unordered::new(stored.place.bytes(), stored.numbers),
            Some(scales) => Unordered::F32(scales.apply(stored.place.bytes())),
        })
    }

    /// A tensor of bytes.
    pub(crate) fn load_bytes(
        &self,
        tensor: &str,
        shape: &[usize],
    ) -> Result<TensorPlace, ModelError> {
        let place = match self {
            Self::Shards(shards) => shards.find_bytes(tensor)?,
            Self::Gguf(_) => {
                return Err(ModelError::MissingTensor {
                    tensor: tensor.to_owned(),
                });
            }
        };
        place.check(tensor, shape)?;
        Ok(place)
    }

    /// Whether there is a tensor of bytes of this name.
    pub(crate) fn has_bytes(&self, tensor: &str) -> bool {
        matches!(self, Self::Shards(shards) if shards.has(tensor))
    }

    /// Whether gate and up matrices that safetensors files interleave in one tensor are tensors of their own.
    pub(crate) fn has_experts_apart(&self) -> bool {
        matches!(self, Self::Gguf(_))
    }

    /// Whether a GGUF file has such a tensor.
    pub(crate) fn has_in_gguf(&self, tensor: &str) -> bool {
        matches!(self, Self::Gguf(gguf) if gguf.has(tensor))
    }

    /// Offset of norm weights: the family's in safetensors files, 0 in GGUF files, which store the
    /// sums.
    pub(crate) fn norm_offset(&self, family: f32) -> f32 {
        match self {
            Self::Shards(_) => family,
            Self::Gguf(_) => 0.0,
        }
    }

    /// A vector, which is always computed with in f32.
    pub(crate) fn load_vector(&self, tensor: &str, length: usize) -> Result<Vec<f32>, ModelError> {
        let stored = self.find(tensor, &[length])?;
        Ok(widen(stored.place.bytes(), stored.numbers))
    }

    /// In which order a tensor's rows are stored.
    pub(crate) fn row_order(&self, tensor: &str, spec: &ModelSpec) -> RowOrder {
        match self {
            Self::Shards(_) => RowOrder::Plain,
            Self::Gguf(gguf) => gguf.row_order(tensor, spec.head_dim),
        }
    }

    /// Divisors of the rotary frequencies, one a pair, if the weights have them.
    pub(crate) fn rope_divisors(&self, pairs: usize) -> Result<Option<Vec<f32>>, ModelError> {
        match self {
            Self::Gguf(gguf) if gguf.has_rope_divisors() => self
                .load_vector(GgufTensors::ROPE_DIVISORS, pairs)
                .map(Some),
            _ => Ok(None),
        }
    }
}
