//! Shape and computation of a decoder, as its configuration describes them.

use mortise_kernels::gate_mul::Activation;
use mortise_kernels::kv_page::KvShape;
use mortise_kernels::rope::RopePairs;
use mortise_kernels::route::Routing;

use crate::error::ModelError;
use crate::fields::ObjectFields;
use crate::folder::{CONFIG_FILE, ModelFolder};
use crate::rope::RopeSpec;

mod experts;
mod families;
mod layers;
mod read;

pub use families::Architecture;
pub(crate) use families::Family;

/// The shape of a decoder. The sizes are consistent with one another and within sane bounds.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ModelSpec {
    /// Family.
    pub architecture: Architecture,
    /// Tokens that the model knows.
    pub vocabulary: usize,
    /// Values that represent a token.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key-value heads; they divide the query heads.
    pub kv_heads: usize,
    /// Values of a head.
    pub head_dim: usize,
    /// Positions that the model was made for.
    pub context: usize,
    /// Added to the mean square in norms.
    pub norm_epsilon: f32,
    /// Whether the embedding also maps to logits.
    pub tied_embeddings: bool,
    /// Factor of the embedding.
    pub embedding_scale: f32,
    /// Factor of what attention and feed-forward add.
    pub residual_scale: f32,
    /// Factor of the logits.
    pub logit_scale: f32,
    /// Bound towards which logits are bent.
    pub logit_soft_cap: Option<f32>,
    /// Attention parameters that all layers share.
    pub attention: AttentionSpec,
    /// Feed-forward parameters that all layers share.
    pub feed_forward: FeedForwardSpec,
    /// Rotary embeddings; layers name theirs by its place here.
    pub ropes: Vec<RopeSpec>,
    /// Properties that differ by layer; one entry a layer.
    pub layer_specs: Vec<LayerSpec>,
}

/// Properties that differ by layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerSpec {
    /// Positions that a token sees, its own included; `None` is all.
    pub window: Option<usize>,
    /// Place of the rotary embedding in [`ModelSpec::ropes`]; `None` is no positions.
    pub rope: Option<usize>,
    /// Whether experts compute the feed-forward part.
    pub experts: bool,
}

/// Attention parameters that all layers share.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct AttentionSpec {
    /// Whether query, key and value have a bias.
    pub qkv_bias: bool,
    /// Whether the output has a bias.
    pub output_bias: bool,
    /// Normalisation of queries and keys.
    pub qk_norm: QkNorm,
    /// Factor of the products of queries and keys.
    pub scale: f32,
    /// Bound towards which scores are bent.
    pub soft_cap: Option<f32>,
    /// Whether each head has a sink.
    pub sinks: bool,
    /// Pairing of rotary dimensions.
    pub rope_pairs: RopePairs,
    /// Keys and values that are kept compressed.
    pub latent: Option<LatentSpec>,
    /// Queries that grow with their position.
    pub query_growth: Option<QueryGrowth>,
}

/// Normalisation of queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QkNorm {
    /// No normalisation.
    None,
    /// Normalisation of each head by itself.
    PerHead,
    /// Normalisation of all heads together.
    AllHeads,
}

/// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): the cache holds one compressed
/// vector and one turned key a token, which all heads share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatentSpec {
    /// Numbers of a compressed query; `None` where queries are not compressed.
    pub query_rank: Option<usize>,
    /// Numbers of the compressed keys and values.
    pub kv_rank: usize,
    /// Numbers of a head's query that do not turn.
    pub plain_dim: usize,
    /// Numbers of a head's query that turn, and of the shared turned key.
    pub rope_dim: usize,
    /// Numbers of a head's value.
    pub value_dim: usize,
}

/// Queries times `1 + beta * ln(1 + floor(position / original_context))`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QueryGrowth {
    /// Growth rate.
    pub beta: f64,
    /// Positions up to which queries do not grow.
    pub original_context: usize,
}

/// Feed-forward parameters that all layers share.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct FeedForwardSpec {
    /// Values between the two halves of a layer without experts.
    pub intermediate: usize,
    /// Whether the matrices of the feed-forward part have biases.
    pub bias: bool,
    /// Activation of the gates.
    pub activation: Activation,
    /// The experts of layers that have them.
    pub experts: Option<ExpertsSpec>,
}

/// Mixture of experts: a router selects some feed-forward layers for each token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExpertsSpec {
    /// Number of experts.
    pub experts: usize,
    /// Values between the two halves of an expert.
    pub intermediate: usize,
    /// Routing of tokens to experts.
    pub routing: Routing,
    /// Whether the router has a selection bias.
    pub correction: bool,
    /// Whether router and experts have biases.
    pub bias: bool,
    /// Values between the two halves of the expert that computes every token.
    pub shared: Option<usize>,
    /// Whether the shared expert has a gate.
    pub shared_gate: bool,
}

impl QueryGrowth {
    /// The factor of a query at this position.
    pub(crate) fn factor(self, position: u32) -> f32 {
        let periods = position as usize / self.original_context;
        (1.0 + self.beta * (periods as f64).ln_1p()) as f32
    }
}

impl ModelSpec {
    /// Read and check `config.json`.
    pub fn read(folder: &ModelFolder) -> Result<Self, ModelError> {
        let config =
            ObjectFields::read(folder, CONFIG_FILE)?.ok_or_else(|| folder.missing(CONFIG_FILE))?;
        Self::from_config(&config)
    }

    /// Shape of a token's keys and values in one layer of the cache.
    pub fn kv_shape(&self) -> KvShape {
        match self.attention.latent {
            None => KvShape {
                kv_heads: self.kv_heads,
                key_dim: self.head_dim,
                value_dim: self.head_dim,
            },
            Some(latent) => KvShape {
                kv_heads: 1,
                key_dim: latent.kv_rank + latent.rope_dim,
                value_dim: latent.kv_rank,
            },
        }
    }
}
