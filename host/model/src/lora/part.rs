//! Matrices of a layer that adapters can change.

use crate::names::StackNames;
use crate::spec::ModelSpec;

/// Place in a layer where products are added to: matrices that share inputs are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Site {
    Qkv,
    AttentionOutput,
    GateUp,
    Down,
}

impl Site {
    pub(super) const COUNT: usize = 4;
    pub(super) const ALL: [Self; Self::COUNT] =
        [Self::Qkv, Self::AttentionOutput, Self::GateUp, Self::Down];
}

/// One matrix.
#[derive(Debug, Clone, Copy)]
pub(super) struct AdapterPart {
    /// Name within a layer.
    pub(super) name: &'static str,
    pub(super) site: Site,
    /// The first of its outputs among those of the site.
    pub(super) first: usize,
    pub(super) outputs: usize,
    pub(super) inputs: usize,
}

/// The matrices of a layer that adapters can change: not those of experts, routers and latent attention.
pub(super) fn parts(spec: &ModelSpec, layer: usize) -> Vec<AdapterPart> {
    let names = spec.architecture.family().names;
    let (query, key) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
    let (hidden, width) = (spec.hidden, spec.feed_forward.intermediate);
    let mut parts = Vec::new();
    if spec.attention.latent.is_none() {
        stack(&mut parts, &names.qkv, Site::Qkv, [query, key, key], hidden);
        parts.push(AdapterPart {
            name: names.attention_output,
            site: Site::AttentionOutput,
            first: 0,
            outputs: hidden,
            inputs: query,
        });
    }
    if !spec.layer_specs[layer].experts {
        let gate_up = [width, width];
        stack(&mut parts, &names.gate_up, Site::GateUp, gate_up, hidden);
        parts.push(AdapterPart {
            name: names.down,
            site: Site::Down,
            first: 0,
            outputs: hidden,
            inputs: width,
        });
    }
    parts
}

/// Matrices that are multiplied as one, apart or stacked as the files have them.
fn stack<const PARTS: usize>(
    parts: &mut Vec<AdapterPart>,
    names: &'static StackNames<PARTS>,
    site: Site,
    outputs: [usize; PARTS],
    inputs: usize,
) {
    let part = |name, first, outputs| AdapterPart {
        name,
        site,
        first,
        outputs,
        inputs,
    };
    match names {
        StackNames::Stacked(name) => parts.push(part(name, 0, outputs.iter().sum())),
        StackNames::Apart(names) => {
            let mut first = 0;
            for (name, outputs) in names.iter().zip(outputs) {
                parts.push(part(name, first, outputs));
                first += outputs;
            }
        }
    }
}
