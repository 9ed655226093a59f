//! Tensors from safetensors files: one file, or several with an index.

use std::collections::HashMap;

use candle_core::{DType, Device, Tensor};
use half::bf16;
use safetensors::tensor::{Dtype, Metadata, SafeTensors};
use serde_json::{Map, Value};

use crate::error::ModelError;
use crate::folder::{FileBytes, ModelFolder};

const SINGLE_FILE: &str = "model.safetensors";
const INDEX_FILE: &str = "model.safetensors.index.json";
const INDEX_BYTES_MAX: u64 = 64 << 20;
const SHARDS_MAX: usize = 1 << 10;
/// Bytes before the header, which hold its length.
const LENGTH_BYTES: usize = 8;

/// In which precision matrices are kept in memory. Arithmetic is in f32 always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WeightPrecision {
    /// bf16 where the files have bf16, else f32.
    #[default]
    AsStored,
    /// f32.
    F32,
    /// bf16: half the memory; rounds what the files have more precisely.
    Bf16,
}

/// Numbers of a matrix or a vector.
#[derive(Debug)]
pub(crate) enum Numbers {
    F32(Vec<f32>),
    Bf16(Vec<bf16>),
}

/// The tensors of a model, still in their files.
pub(crate) struct Checkpoint {
    shards: Vec<Shard>,
    /// Which shard has a tensor; `None` if there is only one.
    index: Option<HashMap<String, usize>>,
}

struct Shard {
    file: String,
    bytes: FileBytes,
    /// Where the header ends.
    data_start: usize,
    metadata: Metadata,
}

impl Checkpoint {
    /// Open the files and check their headers.
    pub(crate) fn open(folder: &ModelFolder) -> Result<Self, ModelError> {
        if let Some(bytes) = folder.map_optional(SINGLE_FILE)? {
            return Ok(Self {
                shards: vec![Shard::open(SINGLE_FILE, bytes)?],
                index: None,
            });
        }
        let Some(index) = folder.read_optional(INDEX_FILE, INDEX_BYTES_MAX)? else {
            return Err(folder.missing(SINGLE_FILE));
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
        Ok(Self {
            shards,
            index: Some(tensors),
        })
    }

    /// A tensor of a shape that the caller knows. Its size is that of bytes in a file, so that it
    /// may be allocated.
    pub(crate) fn load(
        &self,
        tensor: &str,
        shape: &[usize],
        precision: WeightPrecision,
    ) -> Result<Numbers, ModelError> {
        let (shard, stored, bytes) = self.find(tensor, shape)?;
        let stored = match stored {
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            other => return Err(wrong_type(tensor, other, "F32, F16 and BF16")),
        };
        convert(bytes, stored, precision).map_err(|error| ModelError::WeightsFile {
            file: shard.file.clone(),
            problem: format!("tensor `{tensor}` cannot be read: {error}"),
        })
    }

    /// The bytes of a tensor of bytes.
    pub(crate) fn load_bytes(&self, tensor: &str, shape: &[usize]) -> Result<&[u8], ModelError> {
        match self.find(tensor, shape)? {
            (_, Dtype::U8, bytes) => Ok(bytes),
            (_, other, _) => Err(wrong_type(tensor, other, "U8")),
        }
    }

    /// Whether there is such a tensor.
    pub(crate) fn has(&self, tensor: &str) -> bool {
        self.locate(tensor).is_ok()
    }

    fn find(&self, tensor: &str, shape: &[usize]) -> Result<(&Shard, Dtype, &[u8]), ModelError> {
        let shard = self.locate(tensor)?;
        let missing = || ModelError::MissingTensor {
            tensor: tensor.to_owned(),
        };
        let info = shard.metadata.info(tensor).ok_or_else(missing)?;
        if info.shape != shape {
            return Err(ModelError::Shape {
                tensor: tensor.to_owned(),
                expected: shape.to_vec(),
                found: info.shape.clone(),
            });
        }
        let damaged = |problem: String| ModelError::WeightsFile {
            file: shard.file.clone(),
            problem,
        };
        let (first, last) = info.data_offsets;
        let range = shard
            .data_start
            .checked_add(first)
            .zip(shard.data_start.checked_add(last));
        let bytes = range
            .and_then(|(first, last)| shard.bytes.get(first..last))
            .ok_or_else(|| damaged(format!("tensor `{tensor}` lies beyond the end of the file")))?;
        Ok((shard, info.dtype, bytes))
    }

    /// A vector, which is always computed with in f32.
    pub(crate) fn load_vector(&self, tensor: &str, length: usize) -> Result<Vec<f32>, ModelError> {
        match self.load(tensor, &[length], WeightPrecision::F32)? {
            Numbers::F32(values) => Ok(values),
            Numbers::Bf16(values) => Ok(values.into_iter().map(bf16::to_f32).collect()),
        }
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

fn wrong_type(tensor: &str, found: Dtype, supported: &'static str) -> ModelError {
    ModelError::NumberType {
        tensor: tensor.to_owned(),
        found: format!("{found:?}"),
        supported,
    }
}

/// Which file has which tensor.
fn read_index(bytes: &[u8]) -> Result<Vec<(String, String)>, ModelError> {
    let wrong = |problem: String| ModelError::Field {
        file: INDEX_FILE.to_owned(),
        field: "weight_map".to_owned(),
        problem,
    };
    let json = |source| ModelError::Json {
        file: INDEX_FILE.to_owned(),
        source,
    };
    let mut index: Map<String, Value> = serde_json::from_slice(bytes).map_err(json)?;
    let Some(Value::Object(map)) = index.remove("weight_map") else {
        return Err(wrong(
            "must be an object of tensor and file names".to_owned(),
        ));
    };
    let mut files = std::collections::HashSet::new();
    let mut tensors = Vec::new();
    for (tensor, file) in map {
        let plain = file
            .as_str()
            .filter(|file| file.ends_with(".safetensors") && !file.contains(['/', '\\', '\0']));
        let Some(file) = plain else {
            let shown = crate::fields::brief(&file);
            return Err(wrong(format!(
                "maps `{tensor}` to {shown}; expected a .safetensors file"
            )));
        };
        files.insert(file.to_owned());
        tensors.push((tensor, file.to_owned()));
    }
    if files.len() > SHARDS_MAX {
        return Err(wrong(format!(
            "names {} files; at most {SHARDS_MAX} are read",
            files.len()
        )));
    }
    Ok(tensors)
}

impl Shard {
    fn open(file: &str, bytes: FileBytes) -> Result<Self, ModelError> {
        let damaged = |problem: String| ModelError::WeightsFile {
            file: file.to_owned(),
            problem,
        };
        check_extent(&bytes).map_err(damaged)?;
        let (header, metadata) =
            SafeTensors::read_metadata(&bytes).map_err(|error| damaged(error.to_string()))?;
        Ok(Self {
            file: file.to_owned(),
            data_start: LENGTH_BYTES + header,
            bytes,
            metadata,
        })
    }
}

/// Every tensor must end within the file. The parser adds these numbers up before it compares
/// them, and says less clearly what a truncated file lacks.
fn check_extent(bytes: &[u8]) -> Result<(), String> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(format!(
            "it has {} bytes, too few for a header",
            bytes.len()
        ));
    };
    let length = u64::from_le_bytes(*length);
    let header = usize::try_from(length)
        .ok()
        .and_then(|length| rest.split_at_checked(length));
    let Some((header, tensors)) = header else {
        return Err(format!(
            "its header should have {length} bytes and it ends before"
        ));
    };
    let header: Map<String, Value> = serde_json::from_slice(header)
        .map_err(|error| format!("its header is not a JSON object: {error}"))?;
    for (tensor, info) in &header {
        let end = info.get("data_offsets").and_then(|offsets| offsets.get(1));
        if let Some(end) = end.and_then(Value::as_u64)
            && end > tensors.len() as u64
        {
            return Err(format!(
                "tensor `{tensor}` ends at byte {end} of the data and the file has {}",
                tensors.len()
            ));
        }
    }
    Ok(())
}

/// Numbers in the wanted precision from little-endian bytes.
fn convert(
    bytes: &[u8],
    stored: DType,
    precision: WeightPrecision,
) -> candle_core::Result<Numbers> {
    let count = bytes.len() / stored.size_in_bytes();
    let tensor = Tensor::from_raw_buffer(bytes, stored, &[count], &Device::Cpu)?;
    let half = match precision {
        WeightPrecision::AsStored => stored == DType::BF16,
        WeightPrecision::F32 => false,
        WeightPrecision::Bf16 => true,
    };
    if half {
        tensor.to_dtype(DType::BF16)?.to_vec1().map(Numbers::Bf16)
    } else {
        tensor.to_dtype(DType::F32)?.to_vec1().map(Numbers::F32)
    }
}

impl Numbers {
    /// Append other numbers, in f32 if either is.
    pub(crate) fn append(self, other: Self) -> Self {
        match (self, other) {
            (Self::Bf16(mut numbers), Self::Bf16(more)) => {
                numbers.extend_from_slice(&more);
                Self::Bf16(numbers)
            }
            (numbers, more) => {
                let mut numbers = numbers.into_f32();
                numbers.extend(more.into_f32());
                Self::F32(numbers)
            }
        }
    }

    /// All of them in f32.
    pub(crate) fn into_f32(self) -> Vec<f32> {
        match self {
            Self::F32(numbers) => numbers,
            Self::Bf16(numbers) => numbers.into_iter().map(bf16::to_f32).collect(),
        }
    }
}
