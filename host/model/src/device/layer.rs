//! Decoder layer on a device: attention and feed-forward, each with a residual connection.

use std::sync::Arc;

use mortise_cuda::attention::{
    BatchPlaces, FinishQkv, KvBlocks, KvNumbers, Scoring, decode, finish_qkv, prefill,
};
use mortise_cuda::linear::Rows;
use mortise_cuda::rows::{RmsNorm, rms_norm};
use mortise_cuda::{Buffer, Device, DeviceError, Scalars};

use super::batch::{Activations, DeviceBatch};
use super::feed_forward::DeviceFeedForward;
use super::heads;
use super::weights::Stack;
use crate::error::ModelError;
use crate::loader::Loader;
use crate::spec::{LayerSpec, QkNorm};

/// One layer with its cache.
#[derive(Debug)]
pub(super) struct DeviceLayer {
    layer: LayerSpec,
    attention_norms: Norms,
    qkv: Stack,
    qk_norm: Option<[Buffer<f32>; 2]>,
    sinks: Option<Buffer<f32>>,
    output: Stack,
    feed_forward_norms: Norms,
    feed_forward: DeviceFeedForward,
    cache: KvBlocks,
}

/// Weights of the norms before and after a branch.
#[derive(Debug)]
struct Norms {
    input: Option<Buffer<f32>>,
    output: Option<Buffer<f32>>,
}

impl DeviceLayer {
    pub(super) fn load(
        loader: &Loader<'_>,
        device: &Arc<dyn Device>,
        number: usize,
        blocks: usize,
        numbers: KvNumbers,
    ) -> Result<Self, ModelError> {
        let Loader { spec, names, .. } = *loader;
        let name = |part: &str| loader.layer_name(number, part);
        let weight = |part: &str, width: usize| -> Result<Buffer<f32>, ModelError> {
            let norm = loader.norm(&name(part), width)?;
            Ok(Buffer::of(device, &norm.weight)?)
        };
        let norm = |part: Option<&str>| part.map(|part| weight(part, spec.hidden)).transpose();
        let (query, key) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        let widths = match spec.attention.qk_norm {
            QkNorm::None => None,
            QkNorm::PerHead => Some([spec.head_dim, spec.head_dim]),
            QkNorm::AllHeads => Some([query, key]),
        };
        let qk_norm = widths.map(|[query, key]| -> Result<_, ModelError> {
            Ok([
                weight(names.query_norm, query)?,
                weight(names.key_norm, key)?,
            ])
        });
        let sinks = match spec.attention.sinks {
            true => Some(Buffer::of(
                device,
                &loader.vector(&name(names.sinks), spec.heads)?,
            )?),
            false => None,
        };
        let hidden = spec.hidden;
        let qkv = (
            &names.qkv,
            ([query, key, key], hidden),
            spec.attention.qkv_bias,
        );
        let output = ([hidden, query], spec.attention.output_bias);
        Ok(Self {
            layer: spec.layer_specs[number],
            attention_norms: Norms {
                input: norm(names.attention_norm)?,
                output: norm(names.attention_output_norm)?,
            },
            qkv: Stack::of_names(loader, device, qkv.0, name, qkv.1, qkv.2)?,
            qk_norm: qk_norm.transpose()?,
            sinks,
            output: Stack::single(
                loader,
                device,
                name(names.attention_output),
                output.0,
                output.1,
            )?,
            feed_forward_norms: Norms {
                input: norm(names.feed_forward_norm)?,
                output: norm(names.feed_forward_output_norm)?,
            },
            feed_forward: DeviceFeedForward::load(loader, device, number)?,
            cache: KvBlocks::new(device, blocks, heads(spec), numbers)?,
        })
    }

    /// Bytes of the matrices that one row is multiplied with.
    pub(super) fn bytes_per_row(&self) -> usize {
        let of_all: usize = self.stacks().map(Stack::bytes).sum();
        of_all + self.feed_forward.chosen_bytes()
    }

    /// Matrices that every row is multiplied with.
    pub(super) fn stacks(&self) -> impl Iterator<Item = &Stack> {
        let attention = [&self.qkv, &self.output];
        attention.into_iter().chain(self.feed_forward.stacks())
    }

    /// Run the layer on all rows of the batch.
    pub(super) fn forward(&self, batch: &DeviceBatch<'_>) -> Result<(), DeviceError> {
        let Activations { qkv, attended, .. } = batch.activations;
        let (device, rows, workspace) = (batch.device, batch.rows, batch.workspace);
        let x = self.attention_norms.before(batch)?;
        self.qkv
            .apply(device, x, qkv, rows, Scalars::PLAIN, workspace)?;
        self.attend(batch)?;
        self.attention_norms.add(batch, |out, scalars| {
            let output = &self.output;
            output.apply(device, attended, out, rows, scalars, workspace)
        })?;
        let x = self.feed_forward_norms.before(batch)?;
        self.feed_forward_norms.add(batch, |out, scalars| {
            self.feed_forward.forward(batch, (x, out), scalars)
        })
    }

    /// From rows of queries, keys and values to attended ones.
    fn attend(&self, batch: &DeviceBatch<'_>) -> Result<(), DeviceError> {
        let spec = batch.spec;
        let queries = spec.heads * spec.head_dim;
        let qkv = batch.whole(&batch.activations.qkv, self.qkv.outputs());
        let all_heads = spec.attention.qk_norm == QkNorm::AllHeads;
        if all_heads && let Some([query_norm, key_norm]) = &self.qk_norm {
            for (norm, first) in [(query_norm, 0), (key_norm, queries)] {
                let part = Rows {
                    slice: batch.activations.qkv.from(first),
                    ..qkv
                };
                rms_norm(batch.device, &batch.norm(norm), part, part)?;
            }
        }
        let rope = self.layer.rope.and_then(|rope| batch.ropes.get(rope));
        let finish = FinishQkv {
            norms: match &self.qk_norm {
                Some([query, key]) if !all_heads => Some([query.all(), key.all()]),
                _ => None,
            },
            epsilon: spec.norm_epsilon,
            rope: rope.map(|rope| rope.of(spec.attention.rope_pairs)),
        };
        finish_qkv(batch.device, &finish, qkv, &batch.places, &self.cache)?;
        let scoring = Scoring {
            scale: spec.attention.scale,
            window: self.layer.window,
            soft_cap: spec.attention.soft_cap,
            sinks: self.sinks.as_ref().map(Buffer::all),
        };
        let out = batch.activations.attended.all();
        let places = BatchPlaces {
            positions: batch.single_positions,
            ..batch.places
        };
        let singles = Rows {
            count: batch.single_rows,
            ..qkv
        };
        let splits = batch.splits;
        decode(
            batch.device,
            &scoring,
            singles,
            &places,
            &self.cache,
            splits,
            out,
        )?;
        prefill(
            batch.device,
            &scoring,
            qkv,
            &batch.places,
            &self.cache,
            batch.tiles,
            out,
        )
    }
}

impl Norms {
    /// Input of the branch: normalised rows.
    fn before<'a>(&self, batch: &DeviceBatch<'a>) -> Result<&'a Buffer<f32>, DeviceError> {
        let Activations { hidden, normed, .. } = batch.activations;
        let Some(weight) = &self.input else {
            return Ok(hidden);
        };
        let width = batch.spec.hidden;
        let (x, out) = (batch.whole(hidden, width), batch.whole(normed, width));
        rms_norm(batch.device, &batch.norm(weight), x, out)?;
        Ok(normed)
    }

    /// Add the branch to the hidden states: directly, or through the output norm.
    fn add(
        &self,
        batch: &DeviceBatch<'_>,
        branch: impl FnOnce(&Buffer<f32>, Scalars) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let Activations { hidden, normed, .. } = batch.activations;
        let scale = batch.spec.residual_scale;
        let Some(weight) = &self.output else {
            let accumulate = true;
            return branch(hidden, Scalars { scale, accumulate });
        };
        branch(normed, Scalars::PLAIN)?;
        let norm = RmsNorm {
            added: Some(scale),
            ..batch.norm(weight)
        };
        let width = batch.spec.hidden;
        let (x, out) = (batch.whole(normed, width), batch.whole(hidden, width));
        rms_norm(batch.device, &norm, x, out)
    }
}
