//! The decoder on an accelerator: the same spec, files and names as [`crate::Model`], with weights,
//! cache and activations in the device's memory.
//!
//! Rows of one token attend by splits of their sequence, longer parts in tiles. A batch of nothing
//! but the former, which is what decoding is, is rounded up to one of few sizes and recorded when it
//! comes the second time: from then on, a step is one launch.

mod batch;
mod experts;
mod feed_forward;
mod layer;
mod rotary;
mod sampling;
mod step;
mod token_source;
mod weights;

use std::sync::Arc;

use mortise_cuda::attention::{Heads, KvNumbers};
use mortise_cuda::{Buffer, Device, DeviceError};

use crate::decoder::Logits;
use crate::error::{InputError, ModelError};
use crate::folder::ModelFolder;
use crate::input::ModelInput;
use crate::kv_cache::KvType;
use crate::loader::Loader;
use crate::names::TensorNames;
use crate::spec::ModelSpec;
use crate::weights::WeightPrecision;
use crate::{checkpoint::Checkpoint, kv_cache::BLOCK_TOKENS};

use layer::DeviceLayer;
use rotary::Rotary;
use sampling::DeviceSampler;
use step::ForwardStep;
pub use token_source::TokenSource;
use weights::Stack;

/// Settings of a model on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceSettings {
    /// In which precision matrices are kept there.
    pub precision: WeightPrecision,
    /// Tokens of a sequence at most, where the model was made for more.
    pub context: usize,
    /// Blocks of the cache.
    pub blocks: usize,
    /// As what keys and values are kept.
    pub kv_type: KvType,
}

/// A model on a device, with its cache.
#[derive(Debug)]
pub struct DeviceModel {
    spec: ModelSpec,
    device: Arc<dyn Device>,
    weights: Weights,
    blocks: usize,
    step: ForwardStep,
    sampling: DeviceSampler,
}

/// Weights on the device.
#[derive(Debug)]
struct Weights {
    embedding: Stack,
    /// `None` where the embedding serves.
    head: Option<Stack>,
    layers: Vec<DeviceLayer>,
    final_norm: Buffer<f32>,
    ropes: Vec<Rotary>,
}

impl DeviceModel {
    /// Read a model's files and check them, and copy what is in them to the device.
    ///
    /// Errors are those of [`crate::Model::load`], those of the device, and
    /// [`ModelError::NotOnDevice`] for models that compute what the kernels do not.
    pub fn load(
        folder: &ModelFolder,
        device: Arc<dyn Device>,
        settings: DeviceSettings,
    ) -> Result<Self, ModelError> {
        let mut spec = ModelSpec::read(folder)?;
        refuse_what_is_missing(&spec)?;
        spec.context = spec.context.min(settings.context.max(1));
        let checkpoint = Checkpoint::open(folder)?;
        for rope in &mut spec.ropes {
            rope.divisors = checkpoint.rope_divisors(rope.turned / 2)?;
        }
        let loader = Loader {
            checkpoint: &checkpoint,
            spec: &spec,
            names: spec.architecture.family().names,
            precision: settings.precision,
        };
        let numbers = kv_numbers(settings.kv_type);
        let layers = (0..spec.layers)
            .map(|number| DeviceLayer::load(&loader, &device, number, settings.blocks, numbers));
        let weights = Weights {
            layers: layers.collect::<Result<_, _>>()?,
            ..Weights::load(&loader, &device)?
        };
        Ok(Self {
            step: ForwardStep::new(&device, &spec)?,
            sampling: DeviceSampler::new(&device)?,
            blocks: settings.blocks,
            weights,
            device,
            spec,
        })
    }

    /// The shape of the model.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// Blocks of the cache.
    pub fn cache_blocks(&self) -> usize {
        self.blocks
    }

    /// Bytes of the matrices that computing a token reads.
    pub fn bytes_per_token(&self) -> usize {
        let head = self
            .weights
            .head
            .as_ref()
            .unwrap_or(&self.weights.embedding);
        let layers = self.weights.layers.iter().map(DeviceLayer::bytes_per_row);
        head.bytes() + layers.sum::<usize>()
    }

    /// Compute a batch: store keys and values of its tokens in the cache and return the logits that
    /// it asks for, row by row in the order of the batch.
    pub fn forward(&mut self, input: &ModelInput) -> Result<Logits, InputError> {
        self.queue(input, &[])?;
        let mut values = vec![0.0; self.sampling.rows() * self.spec.vocabulary];
        self.step.scratch.logits.download(0, &mut values)?;
        Ok(Logits::new(values, self.spec.vocabulary))
    }
}

impl Weights {
    /// All but the layers.
    fn load(loader: &Loader<'_>, device: &Arc<dyn Device>) -> Result<Self, ModelError> {
        let Loader { spec, names, .. } = *loader;
        let of_vocabulary = Loader {
            precision: loader.precision.of_vocabulary(),
            ..*loader
        };
        let TensorNames {
            embedding,
            head,
            final_norm,
            ..
        } = names;
        let matrix = |name: &str| {
            let shape = [spec.vocabulary, spec.hidden];
            Stack::single(&of_vocabulary, device, name.to_owned(), shape, false)
        };
        let final_norm = loader.norm(final_norm, spec.hidden)?;
        let ropes = spec.ropes.iter();
        Ok(Self {
            embedding: matrix(embedding)?,
            head: match spec.tied_embeddings {
                true => None,
                false => Some(matrix(head)?),
            },
            layers: Vec::new(),
            final_norm: Buffer::of(device, &final_norm.weight)?,
            ropes: ropes
                .map(|rope| Rotary::new(device, rope, spec.context))
                .collect::<Result<_, DeviceError>>()?,
        })
    }
}

/// Heads and their size.
fn heads(spec: &ModelSpec) -> Heads {
    Heads {
        heads: spec.heads,
        kv_heads: spec.kv_heads,
        dim: spec.head_dim,
    }
}

fn refuse_what_is_missing(spec: &ModelSpec) -> Result<(), ModelError> {
    let lacking = |feature: &str| {
        Err(ModelError::NotOnDevice {
            architecture: spec.architecture.name(),
            feature: feature.to_owned(),
        })
    };
    let experts = spec.feed_forward.experts;
    if experts.is_some_and(|experts| experts.routing.groups.is_some()) {
        return lacking("experts in groups");
    }
    if spec.attention.latent.is_some() {
        return lacking("latent attention");
    }
    if spec.attention.query_growth.is_some() {
        return lacking("queries that grow with their position");
    }
    if spec.head_dim > mortise_cuda::attention::DIM_MAX {
        return lacking("heads of more than 256 numbers");
    }
    Ok(())
}

fn kv_numbers(kv_type: KvType) -> KvNumbers {
    match kv_type {
        KvType::F32 => KvNumbers::F32,
        KvType::F16 => KvNumbers::F16,
        KvType::Bf16 => KvNumbers::Bf16,
        KvType::Q8_0 => KvNumbers::Q8_0,
    }
}

// The kernels are compiled for blocks of this size.
const _: () = assert!(BLOCK_TOKENS == mortise_cuda::attention::BLOCK_TOKENS);
