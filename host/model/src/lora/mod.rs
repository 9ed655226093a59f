//! LoRA adapters (arXiv 2106.09685): for some matrices of a model two small ones each, whose product is added to
//! what the model computes. The weights of the model stay as they are, so that rows of one batch may have
//! different adapters.
//!
//! An adapter is a folder as PEFT writes it, or a GGUF file as llama.cpp's converter writes it. Both are compared with
//! the shape of the model: ranks, sides, types and numbers are checked before anything is kept.

mod config;
mod gguf;
mod part;
mod peft;
mod rows;
mod site;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::ModelError;
use crate::folder::ModelFolder;
use crate::limits::{ADAPTER_BYTES_MAX, ADAPTER_SCALE_MAX};
use crate::spec::ModelSpec;
use crate::stored_tensor::StoredTensor;
use part::{AdapterPart, parts};
use site::SiteAdapter;

pub(crate) use part::Site;
pub(crate) use rows::{Adapted, AdaptedRows};

/// A loaded adapter of a model. Immutable.
#[derive(Debug)]
pub struct Adapter {
    number: u64,
    rank: usize,
    alpha: f64,
    modules: Vec<String>,
    bytes: u64,
    base: BaseShape,
    /// By layer of the model, then by site.
    layers: Vec<[Option<SiteAdapter>; Site::COUNT]>,
}

/// The sizes that an adapter was checked against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BaseShape {
    layers: usize,
    hidden: usize,
    query: usize,
    key: usize,
    intermediate: usize,
}

impl BaseShape {
    fn of(spec: &ModelSpec) -> Self {
        Self {
            layers: spec.layers,
            hidden: spec.hidden,
            query: spec.heads * spec.head_dim,
            key: spec.kv_heads * spec.head_dim,
            intermediate: spec.feed_forward.intermediate,
        }
    }
}

/// The two matrices for one matrix of the model, still in their file.
struct Pair {
    layer: usize,
    part: AdapterPart,
    /// Names in the file, for messages.
    names: [String; 2],
    /// Inputs to values of the rank, and those to outputs.
    matrices: [StoredTensor; 2],
    /// Factor of the product.
    scale: f64,
    /// The file's matrices have rotary pairs side by side.
    order: mortise_kernels::linear::RowOrder,
}

/// The content of an adapter's files.
struct Contents {
    alpha: f64,
    pairs: Vec<Pair>,
}

/// The number of the next adapter.
static NEXT: AtomicU64 = AtomicU64::new(1);

impl Adapter {
    /// Read an adapter's files and compare them with a model of this shape. What the adapter adds is multiplied
    /// by `scale`.
    ///
    /// # Errors
    /// When a file is missing or damaged, does not fit the model, or asks for what is not supported.
    pub fn load(folder: &ModelFolder, spec: &ModelSpec, scale: f32) -> Result<Self, ModelError> {
        if !(scale.is_finite() && scale.abs() <= f32::from(ADAPTER_SCALE_MAX)) {
            return Err(refused(
                folder,
                format!("has scale {scale}; expected -{ADAPTER_SCALE_MAX} to {ADAPTER_SCALE_MAX}"),
            ));
        }
        let contents = match folder.gguf() {
            Some(file) => gguf::read(folder, file, spec)?,
            None => peft::read(folder, spec)?,
        };
        let Some(rank) = contents.pairs.iter().map(Pair::rank).max() else {
            return Err(refused(folder, "adapts no matrix".to_owned()));
        };
        let bytes = contents.pairs.iter().map(Pair::bytes).sum();
        if bytes > ADAPTER_BYTES_MAX {
            return Err(refused(
                folder,
                format!("takes {bytes} bytes; at most {ADAPTER_BYTES_MAX} are read"),
            ));
        }
        let modules: BTreeSet<&str> = contents.pairs.iter().map(|pair| pair.part.name).collect();
        let short = |name: &str| name.rsplit('.').next().unwrap_or(name).to_owned();
        let mut layers = Vec::new();
        for layer in 0..spec.layers {
            let of_layer: Vec<&Pair> = contents
                .pairs
                .iter()
                .filter(|pair| pair.layer == layer)
                .collect();
            layers.push(site::load(&of_layer, spec, scale)?);
        }
        Ok(Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            rank,
            alpha: contents.alpha,
            modules: modules.into_iter().map(short).collect(),
            bytes,
            base: BaseShape::of(spec),
            layers,
        })
    }

    /// A number that no other adapter of this process has, not even the same one loaded again.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The highest rank of its matrices.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Alpha, as its files have it; of its own patterns nothing shows here.
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// Names of the matrices that it adapts in some layer, such as `q_proj`.
    pub fn modules(&self) -> &[String] {
        &self.modules
    }

    /// Bytes of its matrices in memory.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if it was checked against a model of this shape.
    pub(crate) fn fits(&self, spec: &ModelSpec) -> bool {
        self.base == BaseShape::of(spec)
    }

    /// Its part at a site of a layer.
    fn site(&self, layer: usize, site: Site) -> Option<&SiteAdapter> {
        self.layers.get(layer)?[site as usize].as_ref()
    }
}

/// The error of an adapter as a whole.
fn refused(folder: &ModelFolder, problem: String) -> ModelError {
    ModelError::Adapter {
        adapter: folder.name(),
        problem,
    }
}

/// The matrix of a model that a name within a layer means, or the error that says which there are.
fn find_part(
    folder: &ModelFolder,
    spec: &ModelSpec,
    layer: usize,
    name: &str,
    shown: &str,
) -> Result<AdapterPart, ModelError> {
    if layer >= spec.layers {
        let last = spec.layers.saturating_sub(1);
        return Err(refused(
            folder,
            format!("adapts `{shown}`; the model has layers 0 to {last}"),
        ));
    }
    let known = parts(spec, layer);
    if let Some(part) = known.iter().find(|part| part.name == name) {
        return Ok(*part);
    }
    let names: Vec<&str> = known.iter().map(|part| part.name).collect();
    let there = match names.is_empty() {
        true => "no matrix of this layer can be adapted".to_owned(),
        false => format!("this layer has {}", names.join(", ")),
    };
    Err(refused(
        folder,
        format!(
            "adapts `{shown}`, which cannot be adapted in a {}: {there}",
            spec.architecture.name()
        ),
    ))
}
