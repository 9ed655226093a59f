//! One layer of a decoder.

use mortise_kernels::attention::Scoring;
use mortise_kernels::gate_mul::{Activation, gate_mul};
use mortise_kernels::rms_norm::{rms_norm, rms_norm_in_place};
use mortise_kernels::rope::{RopeHeads, RopePairs, RopeTable};

use crate::error::ModelError;
use crate::kv_cache::{CachePlan, LayerCache};
use crate::linear::Linear;
use crate::loader::Loader;
use crate::spec::ModelSpec;

/// One layer: attention, then feed-forward, each added to what came in.
#[derive(Debug)]
pub(crate) struct Layer {
    attention_norm: Vec<f32>,
    qkv: Linear,
    /// Weights of the norms of queries and of keys.
    qk_norm: Option<(Vec<f32>, Vec<f32>)>,
    attention_output: Linear,
    feed_forward_norm: Vec<f32>,
    gate_up: Linear,
    down: Linear,
}

impl Layer {
    pub(crate) fn load(loader: &Loader<'_>, number: usize) -> Result<Self, ModelError> {
        let Loader { spec, names, .. } = loader;
        let name = |part: &str| format!("{}{number}.{part}", names.layer_prefix);
        let (hidden, head_dim) = (spec.hidden, spec.head_dim);
        let (query, key) = (spec.heads * head_dim, spec.kv_heads * head_dim);
        let qkv = [query, key, key];
        let qkv: Vec<_> = names.qkv.iter().map(|part| name(part)).zip(qkv).collect();
        let gate_up = names.gate_up.map(|part| (name(part), spec.intermediate));
        let qk_norm = if spec.qk_norm {
            let query_norm = loader.norm(&name(names.query_norm), head_dim)?;
            Some((query_norm, loader.norm(&name(names.key_norm), head_dim)?))
        } else {
            None
        };
        let attention_output = [(name(names.attention_output), hidden)];
        let down = [(name(names.down), hidden)];
        Ok(Self {
            attention_norm: loader.norm(&name(names.attention_norm), hidden)?,
            qkv: loader.stacked(&qkv, hidden, spec.qkv_bias)?,
            qk_norm,
            attention_output: loader.stacked(&attention_output, query, spec.output_bias)?,
            feed_forward_norm: loader.norm(&name(names.feed_forward_norm), hidden)?,
            gate_up: loader.stacked(&gate_up, hidden, spec.feed_forward_bias)?,
            down: loader.stacked(&down, spec.intermediate, spec.feed_forward_bias)?,
        })
    }

    /// Advance all rows of the batch by this layer.
    pub(crate) fn forward(
        &self,
        spec: &ModelSpec,
        rope: &RopeTable,
        plan: &CachePlan<'_>,
        cache: &mut LayerCache,
        hidden: &mut [f32],
    ) {
        let mut normed = vec![0.0; hidden.len()];
        rms_norm(hidden, &self.attention_norm, spec.norm_epsilon, &mut normed);
        let mut qkv = self.qkv.apply(&normed);
        self.normalise_heads(spec, &mut qkv);
        let turned = RopeHeads {
            heads: spec.heads + spec.kv_heads,
            head_dim: spec.head_dim,
            first: 0,
            pairs: RopePairs::Halves,
        };
        rope.apply(&mut qkv, self.qkv.outputs, turned);
        let mut attended = vec![0.0; plan.rows.len() * self.attention_output.inputs];
        let scoring = Scoring::scaled(1.0 / (spec.head_dim as f32).sqrt());
        cache.attend(&qkv, spec.heads, scoring, plan, &mut attended);
        add(hidden, &self.attention_output.apply(&attended));

        rms_norm(
            hidden,
            &self.feed_forward_norm,
            spec.norm_epsilon,
            &mut normed,
        );
        let gate_up = self.gate_up.apply(&normed);
        let mut gated = vec![0.0; gate_up.len() / 2];
        gate_mul(Activation::Silu, &gate_up, spec.intermediate, &mut gated);
        add(hidden, &self.down.apply(&gated));
    }

    fn normalise_heads(&self, spec: &ModelSpec, qkv: &mut [f32]) {
        let Some((query_norm, key_norm)) = &self.qk_norm else {
            return;
        };
        let (queries, keys) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        for row in qkv.chunks_exact_mut(self.qkv.outputs) {
            let (query, rest) = row.split_at_mut(queries);
            rms_norm_in_place(query, query_norm, spec.norm_epsilon);
            rms_norm_in_place(&mut rest[..keys], key_norm, spec.norm_epsilon);
        }
    }
}

fn add(to: &mut [f32], what: &[f32]) {
    for (to, what) in to.iter_mut().zip(what) {
        *to += what;
    }
}
