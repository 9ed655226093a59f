//! Attention of a layer in stages: the QKV projection; norms, rotary embedding and cache write;
//! attention; the output projection, added to the residual.

use mortise_kernels::attention::Scoring;
use mortise_kernels::linear::{Activations, Forms};
use mortise_kernels::qkv::QkvStage;
use mortise_kernels::rope::RopeHeads;

use crate::batch::BatchLayout;
use crate::error::ModelError;
use crate::kv_cache::LayerCache;
use crate::latent_attention::LatentAttention;
use crate::linear::{Linear, Residual};
use crate::loader::Loader;
use crate::lora::{Adapted, Site};
use crate::norm::Norm;
use crate::spec::{LayerSpec, QkNorm};

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

    /// Forms of activations that the layer reads.
    pub(crate) fn forms(&self) -> Forms {
        match self {
            Self::Heads(attention) => attention.qkv.forms(),
            Self::Latent(attention) => attention.forms(),
        }
    }

    /// Write keys and values to the cache, attend, and add the result: `residual.rows +=
    /// residual.scale * attention(x)`.
    pub(crate) fn add(
        &self,
        batch: &BatchLayout<'_>,
        adapted: Adapted<'_>,
        cache: &mut LayerCache,
        x: &Activations<'_>,
        residual: Residual<'_>,
    ) {
        match self {
            Self::Heads(attention) => attention.add(batch, adapted, cache, x, residual),
            Self::Latent(attention) => attention.add(batch, cache, x, residual),
        }
    }
}

/// Attention whose keys and values are stored head by head.
#[derive(Debug)]
pub(crate) struct HeadAttention {
    layer: LayerSpec,
    qkv: Linear,
    /// Query and key norms, per head or over all heads.
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

    fn add(
        &self,
        batch: &BatchLayout<'_>,
        adapted: Adapted<'_>,
        cache: &mut LayerCache,
        x: &Activations<'_>,
        residual: Residual<'_>,
    ) {
        let spec = batch.spec;
        let mut qkv = self.qkv.apply_to(x);
        if adapted.changes(Site::Qkv) {
            adapted.add(Site::Qkv, x.plain(), 1.0, &mut qkv, self.qkv.outputs());
        }
        let turned = RopeHeads {
            heads: spec.heads + spec.kv_heads,
            head_dim: spec.head_dim,
            first: 0,
            pairs: spec.attention.rope_pairs,
        };
        let stage = QkvStage {
            heads: spec.heads,
            norms: self
                .qk_norm
                .as_ref()
                .map(|norms| norms.each_ref().map(Norm::op)),
            rope: batch.rope(self.layer, turned),
            query_factors: batch.query_factors.as_deref(),
        };
        let scoring = Scoring {
            scale: spec.attention.scale,
            window: self.layer.window,
            soft_cap: spec.attention.soft_cap,
            sinks: self.sinks.as_deref(),
        };
        let mut attended = vec![0.0; batch.rows() * spec.heads * spec.head_dim];
        cache.attend(&mut qkv, stage, scoring, &batch.plan, &mut attended);
        let site = Site::AttentionOutput;
        adapted.add_product(&self.output, site, attended, residual);
    }
}
