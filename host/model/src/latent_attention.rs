//! Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434).
//!
//! Keys and values of all heads are products of one compressed vector. The product that would widen
//! it to keys is applied to the queries instead, and the one that would widen it to values to what
//! was attended: to the cache, all heads share one key, the compressed vector with a turned part, and
//! one value, the compressed vector itself.

use mortise_kernels::attention::Scoring;
use mortise_kernels::linear::{Activations, Forms};
use mortise_kernels::qkv::QkvStage;
use mortise_kernels::rope::RopeHeads;

use crate::batch::BatchLayout;
use crate::error::ModelError;
use crate::gguf::{KEY_UPS, VALUE_UPS};
use crate::kv_cache::LayerCache;
use crate::linear::{Linear, Residual};
use crate::loader::{Loader, StackPart};
use crate::norm::Norm;
use crate::spec::{LatentSpec, LayerSpec};

/// Epsilon of the norms of compressed vectors, in all families.
const LATENT_EPSILON: f32 = 1e-6;

/// Attention whose keys and values are stored compressed.
#[derive(Debug)]
pub(crate) struct LatentAttention {
    layer: LayerSpec,
    latent: LatentSpec,
    /// Queries, compressed or not, then keys and values, compressed, then the key that turns.
    down: Linear,
    /// The way from compressed queries to queries.
    query_up: Option<(Norm, Linear)>,
    kv_norm: Norm,
    /// For each head, from queries to queries of compressed keys.
    key_up: Vec<Linear>,
    /// For each head, from compressed values to values.
    value_up: Vec<Linear>,
    output: Linear,
}

impl LatentAttention {
    pub(crate) fn load(
        loader: &Loader<'_>,
        number: usize,
        layer: LayerSpec,
        latent: LatentSpec,
    ) -> Result<Self, ModelError> {
        let spec = loader.spec;
        let names = &loader.names.latent;
        let name = |part: &str| loader.layer_name(number, part);
        let norm = |part: &str, width| {
            let norm = loader.norm(&name(part), width)?;
            Ok::<_, ModelError>(Norm {
                epsilon: LATENT_EPSILON,
                ..norm
            })
        };
        let biased = spec.attention.qkv_bias;
        let queries = spec.heads * latent.query_dim();
        let (query, query_up) = match latent.query_rank {
            None => (part(name(names.query), queries, false), None),
            Some(rank) => {
                let up = loader.matrix(name(names.query_up), queries, rank, false)?;
                let down = part(name(names.query_down), rank, biased);
                (down, Some((norm(names.query_norm, rank)?, up)))
            }
        };
        let kv = part(
            name(names.kv_down),
            latent.kv_rank + latent.rope_dim,
            biased,
        );
        let (key_up, value_up) = load_ups(loader, number, latent)?;
        Ok(Self {
            layer,
            latent,
            down: loader.stacked(query, [kv], spec.hidden)?,
            query_up,
            kv_norm: norm(names.kv_norm, latent.kv_rank)?,
            key_up,
            value_up,
            output: loader.matrix(
                name(loader.names.attention_output),
                spec.hidden,
                spec.heads * latent.value_dim,
                spec.attention.output_bias,
            )?,
        })
    }

    /// Forms of activations that the layer reads.
    pub(crate) fn forms(&self) -> Forms {
        self.down.forms()
    }

    pub(crate) fn add(
        &self,
        batch: &BatchLayout<'_>,
        cache: &mut LayerCache,
        x: &Activations<'_>,
        residual: Residual<'_>,
    ) {
        let (spec, latent) = (batch.spec, self.latent);
        let shape = spec.kv_shape();
        let down = self.down.apply_to(x);
        let kv_width = latent.kv_rank + latent.rope_dim;
        let query_width = self.down.outputs() - kv_width;
        let queries = columns(&down, self.down.outputs(), 0, query_width);
        let queries = match &self.query_up {
            None => queries,
            Some((norm, up)) => up.apply(&norm.apply(&queries)),
        };
        let stride = (spec.heads + 1) * shape.key_dim + shape.value_dim;
        let mut qkv = vec![0.0; batch.rows() * stride];
        self.absorb_queries(&queries, &mut qkv, stride);
        for (row, down) in qkv
            .chunks_exact_mut(stride)
            .zip(down.chunks_exact(self.down.outputs()))
        {
            let (key, value) = row[spec.heads * shape.key_dim..].split_at_mut(shape.key_dim);
            key.copy_from_slice(&down[query_width..]);
            self.kv_norm.apply_in_place(&mut key[..latent.kv_rank]);
            value.copy_from_slice(&key[..latent.kv_rank]);
        }
        let turned = RopeHeads {
            heads: spec.heads + 1,
            head_dim: shape.key_dim,
            first: latent.kv_rank,
            pairs: spec.attention.rope_pairs,
        };
        let stage = QkvStage {
            heads: spec.heads,
            norms: None,
            rope: batch.rope(self.layer, turned),
            query_factors: None,
        };
        let scoring = Scoring {
            window: self.layer.window,
            ..Scoring::scaled(spec.attention.scale)
        };
        let width = spec.heads * latent.kv_rank;
        let mut attended = vec![0.0; batch.rows() * width];
        cache.attend(&mut qkv, stage, scoring, &batch.plan, &mut attended);
        let values_width = spec.heads * latent.value_dim;
        let mut values = vec![0.0; batch.rows() * values_width];
        for (head, up) in self.value_up.iter().enumerate() {
            let part = columns(&attended, width, head * latent.kv_rank, latent.kv_rank);
            let first = head * latent.value_dim;
            set_columns(
                &mut values,
                values_width,
                first,
                &up.apply(&part),
                latent.value_dim,
            );
        }
        self.output.add(values, residual);
    }

    /// Write each head's query of compressed keys, and its part that turns, to rows of `qkv`.
    fn absorb_queries(&self, queries: &[f32], qkv: &mut [f32], stride: usize) {
        let latent = self.latent;
        let (query_dim, key_dim) = (latent.query_dim(), latent.kv_rank + latent.rope_dim);
        let width = self.key_up.len() * query_dim;
        for (head, up) in self.key_up.iter().enumerate() {
            let plain = columns(queries, width, head * query_dim, latent.plain_dim);
            set_columns(
                qkv,
                stride,
                head * key_dim,
                &up.apply(&plain),
                latent.kv_rank,
            );
            let first = head * query_dim + latent.plain_dim;
            let turning = columns(queries, width, first, latent.rope_dim);
            let first = head * key_dim + latent.kv_rank;
            set_columns(qkv, stride, first, &turning, latent.rope_dim);
        }
    }
}

impl LatentSpec {
    /// Numbers of a head's query.
    fn query_dim(self) -> usize {
        self.plain_dim + self.rope_dim
    }
}

fn part(name: String, outputs: usize, biased: bool) -> StackPart {
    StackPart {
        name,
        outputs,
        biased,
    }
}

/// The matrices of each head. Newer GGUF files have them apart.
fn load_ups(
    loader: &Loader<'_>,
    number: usize,
    latent: LatentSpec,
) -> Result<(Vec<Linear>, Vec<Linear>), ModelError> {
    let name = |(before, behind): (&str, &str), head: usize| {
        loader.layer_name(number, &format!("{before}{head}.{behind}"))
    };
    let first = format!("{}.weight", name(KEY_UPS, 0));
    if !loader.checkpoint.has_in_gguf(&first) {
        return split_ups(loader, number, latent);
    }
    let (rank, plain, value) = (latent.kv_rank, latent.plain_dim, latent.value_dim);
    let mut ups = (Vec::new(), Vec::new());
    for head in 0..loader.spec.heads {
        ups.0
            .push(loader.matrix(name(KEY_UPS, head), rank, plain, false)?);
        ups.1
            .push(loader.matrix(name(VALUE_UPS, head), value, rank, false)?);
    }
    Ok(ups)
}

/// Each head's matrices from one that holds, head by head, rows for keys and rows for values.
fn split_ups(
    loader: &Loader<'_>,
    number: usize,
    latent: LatentSpec,
) -> Result<(Vec<Linear>, Vec<Linear>), ModelError> {
    let LatentSpec {
        kv_rank,
        plain_dim,
        value_dim,
        ..
    } = latent;
    let name = loader.layer_name(number, loader.names.latent.kv_up);
    let rows = plain_dim + value_dim;
    let heads = loader.spec.heads;
    let shape = [heads * rows, kv_rank];
    let numbers = loader
        .checkpoint
        .load_unordered(&format!("{name}.weight"), &shape)?;
    let up = |head| {
        let first = head * rows;
        let keys = numbers.matrix(kv_rank, plain_dim, loader.precision, |rank, plain| {
            (first + plain) * kv_rank + rank
        });
        let values = numbers.matrix(value_dim, kv_rank, loader.precision, |value, rank| {
            (first + plain_dim + value) * kv_rank + rank
        });
        Ok((
            Linear::new(keys, None, kv_rank, plain_dim)?,
            Linear::new(values, None, value_dim, kv_rank)?,
        ))
    };
    let ups: Vec<_> = (0..heads).map(up).collect::<Result<_, ModelError>>()?;
    Ok(ups.into_iter().unzip())
}

/// Some columns of rows of `stride` numbers.
fn columns(x: &[f32], stride: usize, first: usize, width: usize) -> Vec<f32> {
    x.chunks_exact(stride)
        .flat_map(|row| &row[first..][..width])
        .copied()
        .collect()
}

/// Set columns of rows of `stride` numbers.
fn set_columns(x: &mut [f32], stride: usize, first: usize, values: &[f32], width: usize) {
    for (row, values) in x.chunks_exact_mut(stride).zip(values.chunks_exact(width)) {
        row[first..][..width].copy_from_slice(values);
    }
}
