//! Tensors from safetensors files: one file, or several with an index.

mod header;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use safetensors::tensor::{Dtype, Metadata, SafeTensors};
use serde::Deserialize;

use crate::error::ModelError;
use crate::fields::ObjectFields;
use crate::file_bytes::FileBytes;
use crate::folder::{CONFIG_FILE, ModelFolder};
use crate::fp8;
use crate::limits::{INDEX_BYTES_MAX, SHARDS_MAX};
use crate::stored_tensor::{StoredTensor, TensorPlace};
use crate::unique_map::UniqueMap;
use crate::weights::{NumberType, widen};

pub(crate) const SINGLE_FILE: &str = "model.safetensors";
const INDEX_FILE: &str = "model.safetensors.index.json";

/// The tensors of a folder, still in their files.
pub(crate) struct Shards {
    shards: Vec<Shard>,
    /// Shard of each tensor; `None` for a single file.
    index: Option<HashMap<String, usize>>,
    naming: Naming,
    /// Rows and columns that share a scale in matrices of eight bits, if the configuration says so.
    scaled_block: Option<[usize; 2]>,
}

/// Difference of stored names from those of a decoder with a head.
#[derive(Debug, Clone, Copy)]
enum Naming {
    Same,
    /// [`TEXT_PREFIX`] stands before them.
    OfText,
    /// [`HEADED_PREFIX`] is left out, in files of a decoder without a head.
    Headless,
}

/// Stands before the names of the text part in models that also see.
const TEXT_PREFIX: &str = "language_model.";
/// Stands before the names of all tensors but the head.
const HEADED_PREFIX: &str = "model.";
/// A tensor that every decoder has.
const EMBEDDING: &str = "embed_tokens.weight";

impl Naming {
    /// The name in the files.
    fn stored(self, tensor: &str) -> Cow<'_, str> {
        match self {
            Self::Same => Cow::Borrowed(tensor),
            Self::OfText => Cow::Owned(format!("{TEXT_PREFIX}{tensor}")),
            Self::Headless => Cow::Borrowed(tensor.strip_prefix(HEADED_PREFIX).unwrap_or(tensor)),
        }
    }
}

struct Shard {
    file: String,
    bytes: Arc<FileBytes>,
    /// End of the header.
    data_start: usize,
    metadata: Metadata,
}

impl Shards {
    /// Open the files and check their headers; `None` if the folder has none.
    pub(crate) fn open(folder: &ModelFolder) -> Result<Option<Self>, ModelError> {
        let Some(mut shards) = Self::open_files(folder)? else {
            return Ok(None);
        };
        let embedding = format!("{HEADED_PREFIX}{EMBEDDING}");
        let fits = |naming: &Naming| shards.locate(&naming.stored(&embedding)).is_ok();
        let naming = [Naming::OfText, Naming::Headless].into_iter().find(fits);
        shards.naming = naming.unwrap_or(Naming::Same);
        if let Some(config) = ObjectFields::read(folder, CONFIG_FILE)? {
            shards.scaled_block = fp8::read_block(&config)?;
        }
        Ok(Some(shards))
    }

    /// Open one file that is no model and check its header; `None` if it is not there.
    pub(crate) fn open_one(folder: &ModelFolder, file: &str) -> Result<Option<Self>, ModelError> {
        let Some(bytes) = folder.map_optional(file)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            shards: vec![Shard::open(file, bytes)?],
            index: None,
            naming: Naming::Same,
            scaled_block: None,
        }))
    }

    /// Names of all tensors of a single file, in order.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        let shards = self.shards.iter();
        shards
            .flat_map(|shard| shard.metadata.tensors().into_keys())
            .collect()
    }

    /// Find a tensor that has no scales.
    pub(crate) fn find_plain(&self, tensor: &str) -> Result<StoredTensor, ModelError> {
        let (stored, place) = self.place(tensor)?;
        let numbers = number_type(stored).ok_or_else(|| wrong_type(tensor, stored))?;
        Ok(StoredTensor {
            place,
            numbers,
            scales: None,
        })
    }

    fn open_files(folder: &ModelFolder) -> Result<Option<Self>, ModelError> {
        if let Some(single) = Self::open_one(folder, SINGLE_FILE)? {
            return Ok(Some(single));
        }
        let Some(index) = folder.read_optional(INDEX_FILE, INDEX_BYTES_MAX)? else {
            return Ok(None);
        };
        let mut shards: Vec<Shard> = Vec::new();
        let mut numbers: HashMap<String, usize> = HashMap::new();
        let mut tensors = HashMap::new();
        for (tensor, file) in read_index(&index)? {
            let number = match numbers.get(&file) {
                Some(number) => *number,
                None => {
                    let bytes = folder.map_optional(&file)?;
                    let bytes = bytes.ok_or_else(|| folder.missing(&file))?;
                    shards.push(Shard::open(&file, bytes)?);
                    numbers.insert(file, shards.len() - 1);
                    shards.len() - 1
                }
            };
            tensors.insert(tensor, number);
        }
        Ok(Some(Self {
            shards,
            index: Some(tensors),
            naming: Naming::Same,
            scaled_block: None,
        }))
    }

    /// Find a tensor, with its scales if it is FP8.
    pub(crate) fn find(&self, tensor: &str) -> Result<StoredTensor, ModelError> {
        let (stored, place) = self.place(tensor)?;
        if let (Dtype::F8_E4M3, Some(name), &[rows, columns]) =
            (stored, tensor.strip_suffix("weight"), &place.shape[..])
        {
            return Ok(StoredTensor {
                scales: Some(self.scales(name, [rows, columns])?),
                place,
                numbers: NumberType::Fp8,
            });
        }
        self.find_plain(tensor)
    }

    /// The scales of a matrix of eight bits, whose name is this and `weight`.
    fn scales(&self, name: &str, matrix: [usize; 2]) -> Result<fp8::Scales, ModelError> {
        let names = fp8::SCALES.map(|scales| format!("{name}{scales}"));
        let found = names.iter().find(|scales| self.has(scales));
        let tensor = found.unwrap_or(&names[0]);
        let (stored, place) = self.place(tensor)?;
        let numbers = number_type(stored).ok_or_else(|| wrong_type(tensor, stored))?;
        let values = widen(place.bytes(), numbers);
        fp8::Scales::new(values, &place.shape, matrix, self.scaled_block).ok_or_else(|| {
            ModelError::Scales {
                tensor: tensor.clone(),
                found: place.shape,
                matrix: matrix.to_vec(),
            }
        })
    }

    /// Find a tensor of bytes.
    pub(crate) fn find_bytes(&self, tensor: &str) -> Result<TensorPlace, ModelError> {
        match self.place(tensor)? {
            (Dtype::U8, place) => Ok(place),
            (other, _) => Err(wrong_type(tensor, other)),
        }
    }

    /// Whether there is such a tensor.
    pub(crate) fn has(&self, tensor: &str) -> bool {
        self.locate(&self.naming.stored(tensor)).is_ok()
    }

    fn place(&self, tensor: &str) -> Result<(Dtype, TensorPlace), ModelError> {
        let tensor = &*self.naming.stored(tensor);
        let missing = || ModelError::MissingTensor {
            tensor: tensor.to_owned(),
        };
        let shard = self.locate(tensor)?;
        let info = shard.metadata.info(tensor).ok_or_else(missing)?;
        let (first, last) = info.data_offsets;
        let place = shard
            .data_start
            .checked_add(first)
            .zip(shard.data_start.checked_add(last))
            .filter(|(_, last)| *last <= shard.bytes.len());
        let (first, last) = place.ok_or_else(|| ModelError::WeightsFile {
            file: shard.file.clone(),
            problem: format!("tensor `{tensor}` lies beyond the end of the file"),
        })?;
        let place = TensorPlace {
            file: Arc::clone(&shard.bytes),
            range: first..last,
            shape: info.shape.clone(),
        };
        Ok((info.dtype, place))
    }

    fn locate(&self, tensor: &str) -> Result<&Shard, ModelError> {
        let number = match &self.index {
            None => Some(0),
            Some(index) => index.get(tensor).copied(),
        };
        number
            .and_then(|number| self.shards.get(number))
            .filter(|shard| shard.metadata.info(tensor).is_some())
            .ok_or_else(|| ModelError::MissingTensor {
                tensor: tensor.to_owned(),
            })
    }
}

/// Number type of a tensor without scales.
fn number_type(stored: Dtype) -> Option<NumberType> {
    match stored {
        Dtype::F32 => Some(NumberType::F32),
        Dtype::F16 => Some(NumberType::F16),
        Dtype::BF16 => Some(NumberType::Bf16),
        _ => None,
    }
}

fn wrong_type(tensor: &str, found: Dtype) -> ModelError {
    ModelError::NumberType {
        tensor: tensor.to_owned(),
        found: format!("{found:?}"),
    }
}

/// Content of the index file; other fields are not kept.
#[derive(Deserialize)]
struct Index {
    weight_map: UniqueMap<String>,
}

/// Names of tensors with the files that hold them, in the order of their names.
fn read_index(bytes: &[u8]) -> Result<BTreeMap<String, String>, ModelError> {
    let wrong = |problem: String| ModelError::Field {
        file: INDEX_FILE.to_owned(),
        field: "weight_map".to_owned(),
        problem,
    };
    let Index { weight_map } = serde_json::from_slice(bytes).map_err(|source| {
        if source.is_data() {
            return wrong(format!("must map names of tensors to files: {source}"));
        }
        ModelError::Json {
            file: INDEX_FILE.to_owned(),
            source,
        }
    })?;
    let mut files = HashSet::new();
    for (tensor, file) in &weight_map.0 {
        if !file.ends_with(".safetensors") || file.contains(['/', '\\', '\0']) {
            let shown = crate::fields::brief(&file.as_str().into());
            return Err(wrong(format!(
                "maps `{tensor}` to {shown}; expected a .safetensors file"
            )));
        }
        files.insert(file);
    }
    if files.len() > SHARDS_MAX {
        return Err(wrong(format!(
            "names {} files; at most {SHARDS_MAX} are read",
            files.len()
        )));
    }
    Ok(weight_map.0.into_iter().collect())
}

impl Shard {
    fn open(file: &str, bytes: FileBytes) -> Result<Self, ModelError> {
        let damaged = |problem: String| ModelError::WeightsFile {
            file: file.to_owned(),
            problem,
        };
        header::check(&bytes).map_err(damaged)?;
        let (length, metadata) =
            SafeTensors::read_metadata(&bytes).map_err(|error| damaged(error.to_string()))?;
        Ok(Self {
            file: file.to_owned(),
            data_start: header::LENGTH_BYTES + length,
            bytes: Arc::new(bytes),
            metadata,
        })
    }
}
