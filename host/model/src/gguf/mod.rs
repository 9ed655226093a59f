//! GGUF files: one file with a model's weights, shape, tokenizer and chat template.
//!
//! The whole header is checked when a file is opened: counts, lengths, types, alignment and where each
//! tensor lies. What is kept of it is small and proportional to the file; values of metadata and
//! tensors stay in the file, which is mapped. Versions 2 and 3, little endian. The format:
//! <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod config;
mod cursor;
mod error;
mod metadata;
mod names;
mod parts;
mod tensor;
mod tensors;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::file_bytes::FileBytes;

pub(crate) use config::{architecture_of, config_fields, generation_fields, metadata_key};
pub use error::GgufError;
pub use metadata::{Array, Metadata, Value};
pub use names::gguf_name;
pub(crate) use names::{KEY_UPS, VALUE_UPS};
pub(crate) use parts::{PartName, sole_file};
pub use tensor::{TensorInfo, TensorType};
pub(crate) use tensors::GgufTensors;

use cursor::Cursor;

const MAGIC: &[u8; 4] = b"GGUF";
const VERSIONS: std::ops::RangeInclusive<u32> = 2..=3;
/// Entries of metadata. Files in use have fewer than 100.
const ENTRIES_MAX: u64 = 1 << 14;
/// Tensors. The largest models in use have about 2,000.
const TENSORS_MAX: u64 = 1 << 16;

/// An opened GGUF file, or several that are parts of one model.
#[derive(Debug, Clone)]
pub struct Gguf {
    /// The first has the metadata.
    files: Vec<Arc<FileBytes>>,
    version: u32,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    by_name: HashMap<String, usize>,
}

impl Gguf {
    /// Read and check the header of a file.
    pub fn parse(bytes: Arc<FileBytes>) -> Result<Self, GgufError> {
        let mut cursor = Cursor::new(&bytes);
        if cursor.take(MAGIC.len() as u64, || "its first bytes".to_owned())? != MAGIC {
            return Err(GgufError::Magic);
        }
        let version = cursor.u32(|| "its version".to_owned())?;
        if !VERSIONS.contains(&version) {
            let swapped = VERSIONS.contains(&version.swap_bytes());
            let hint = if swapped {
                "; this is a big-endian file"
            } else {
                ""
            };
            return Err(GgufError::Version {
                found: version,
                hint,
            });
        }
        let tensors = cursor.count("tensors", TENSORS_MAX)?;
        let entries = cursor.count("entries of metadata", ENTRIES_MAX)?;
        let metadata = Metadata::read(&mut cursor, &bytes, entries)?;
        let alignment = metadata.alignment()?;
        let tensors = tensor::read_all(&mut cursor, tensors, alignment)?;
        let by_name = tensors
            .iter()
            .enumerate()
            .map(|(number, tensor)| (tensor.name.clone(), number))
            .collect();
        Ok(Self {
            files: vec![bytes],
            version,
            metadata,
            tensors,
            by_name,
        })
    }

    /// The version of the format.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The entries before the tensors.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors, in the order of the file.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// A tensor by its name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.by_name.get(name).map(|number| &self.tensors[*number])
    }

    /// The architecture, such as `llama`.
    pub fn architecture(&self) -> Result<&str, GgufError> {
        const KEY: &str = "general.architecture";
        self.metadata.text(KEY)?.ok_or_else(|| GgufError::Entry {
            key: KEY.to_owned(),
            problem: "is missing".to_owned(),
        })
    }

    /// The file that a tensor is in.
    pub(crate) fn file_of(&self, tensor: &TensorInfo) -> &Arc<FileBytes> {
        &self.files[tensor.file]
    }
}

/// A part of the file that was checked to lie in it.
type Place = Range<usize>;
