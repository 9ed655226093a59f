//! The attention of a layer, in stages: one product for queries, keys and values; norms and
//! positions; the cache; the product of the output.

use mortise_kernels::attention::Scoring;
use mortise_kernels::rope::{RopeHeads, RopeTable};

use crate::error::ModelError;
use crate::kv_cache::{CachePlan, LayerCache};
use crate::latent_attention::LatentAttention;
use crate::linear::Linear;
use crate::loader::Loader;
use crate::norm::Norm;
use crate::spec::{LayerSpec, ModelSpec, QkNorm};

/// What all layers ask of a batch.
pub(crate) struct Batch<'a> {
    pub(crate) spec: &'a ModelSpec,
    pub(crate) plan: CachePlan<'a>,
    /// A table for each of the model's rotary embeddings.
    pub(crate) ropes: Vec<RopeTable>,
    /// A factor for each row's queries, in models whose queries grow.
    pub(crate) query_factors: Option<Vec<f32>>,
}

impl Batch<'_> {
    /// Rows of the batch.
    pub(crate) fn rows(&self) -> usize {
        self.plan.rows.len()
    }

    /// Turn heads of all rows of `x` by the positions of a layer, if it has any.
    pub(crate) fn turn(&self, layer: LayerSpec, x: &mut [f32], stride: usize, heads: RopeHeads) {
        if let Some(table) = layer.rope.and_then(|rope| self.ropes.get(rope)) {
            table.apply(x, stride, heads);
        }
    }
}

/// The attention of a layer.
#[derive(Debug)]
pub(crate) enum Attention {
    Heads(HeadAttention),
    Latent(LatentAttention),
}

impl Attention {
    pub(crate) fn load(loader: &Loader<'_>, number: usize) -> Result<Self, ModelError> {
        let spec = loader.spec;
        let layer = spec.layer_specs[number];
        match spec.attention.latent {
            None => HeadAttention::load(loader, number, layer).map(Self::Heads),
            Some(latent) => LatentAttention::load(loader, number, layer, latent).map(Self::Latent),
        }
    }

    /// Store keys and values of normalised rows and attend: rows of the hidden width.
    pub(crate) fn forward(&self, batch: &Batch<'_>, cache: &mut LayerCache, x: &[f32]) -> Vec<f32> {
        match self {
            Self::Heads(attention) => attention.forward(batch, cache, x),
            Self::Latent(attention) => attention.forward(batch, cache, x),
        }
    }
}

/// Attention whose keys and values are stored head by head.
#[derive(Debug)]
pub(crate) struct HeadAttention {
    layer: LayerSpec,
    qkv: Linear,
    /// Norms of queries and of keys, of one head or of all.
    qk_norm: Option<[Norm; 2]>,
    sinks: Option<Vec<f32>>,
    output: Linear,
}

impl HeadAttention {
    fn load(loader: &Loader<'_>, number: usize, layer: LayerSpec) -> Result<Self, ModelError> {
        let Loader { spec, names, .. } = loader;
        let name = |part: &str| loader.layer_name(number, part);
        let (query, key) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        let widths = match spec.attention.qk_norm {
            QkNorm::None => None,
            QkNorm::PerHead => Some([spec.head_dim, spec.head_dim]),
            QkNorm::AllHeads => Some([query, key]),
        };
        let qk_norm = match widths {
            None => None,
            Some([query, key]) => Some([
                loader.norm(&name(names.query_norm), query)?,
                loader.norm(&name(names.key_norm), key)?,
            ]),
        };
        let sinks = match spec.attention.sinks {
            true => Some(loader.vector(&name(names.sinks), spec.heads)?),
            false => None,
        };
        let bias = spec.attention.qkv_bias;
        let output = name(names.attention_output);
        Ok(Self {
            layer,
            qkv: loader.stack(&names.qkv, name, [query, key, key], spec.hidden, bias)?,
            qk_norm,
            sinks,
            output: loader.matrix(output, spec.hidden, query, spec.attention.output_bias)?,
        })
    }

    fn forward(&self, batch: &Batch<'_>, cache: &mut LayerCache, x: &[f32]) -> Vec<f32> {
        let spec = batch.spec;
        let mut qkv = self.qkv.apply(x);
        self.normalise(spec, &mut qkv);
        let turned = RopeHeads {
            heads: spec.heads + spec.kv_heads,
            head_dim: spec.head_dim,
            first: 0,
            pairs: spec.attention.rope_pairs,
        };
        batch.turn(self.layer, &mut qkv, self.qkv.outputs(), turned);
        if let Some(factors) = &batch.query_factors {
            for (row, factor) in qkv.chunks_exact_mut(self.qkv.outputs()).zip(factors) {
                for query in &mut row[..spec.heads * spec.head_dim] {
                    *query *= factor;
                }
            }
        }
        let scoring = Scoring {
            scale: spec.attention.scale,
            window: self.layer.window,
            soft_cap: spec.attention.soft_cap,
            sinks: self.sinks.as_deref(),
        };
        let mut attended = vec![0.0; batch.rows() * spec.heads * spec.head_dim];
        cache.attend(&qkv, spec.heads, scoring, &batch.plan, &mut attended);
        self.output.apply(&attended)
    }

    fn normalise(&self, spec: &ModelSpec, qkv: &mut [f32]) {
        let Some([query_norm, key_norm]) = &self.qk_norm else {
            return;
        };
        let (queries, keys) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        for row in qkv.chunks_exact_mut(self.qkv.outputs()) {
            let (query, rest) = row.split_at_mut(queries);
            query_norm.apply_in_place(query);
            key_norm.apply_in_place(&mut rest[..keys]);
        }
    }
}
