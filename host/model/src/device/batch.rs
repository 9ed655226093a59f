//! A batch on a device: activations, scratch memory and the places of its rows.

use std::sync::Arc;

use mortise_cuda::attention::{BatchPlaces, Splits};
use mortise_cuda::experts::Routes;
use mortise_cuda::linear::{Rows, Workspace};
use mortise_cuda::rows::RmsNorm;
use mortise_cuda::{Buffer, Device, DeviceError, Slice};

use super::rotary::Rotary;
use crate::spec::{ExpertsSpec, ModelSpec};

/// Activations of a batch.
#[derive(Debug)]
pub(super) struct Activations {
    /// Hidden states, to which the layers add.
    pub(super) hidden: Buffer<f32>,
    /// Normalised rows, and what a branch gives where it is normalised before it is added.
    pub(super) normed: Buffer<f32>,
    pub(super) qkv: Buffer<f32>,
    pub(super) attended: Buffer<f32>,
    pub(super) gate_up: Buffer<f32>,
    pub(super) gated: Buffer<f32>,
    /// Scratch memory of the experts, in models that have them.
    pub(super) experts: Option<ExpertScratch>,
}

impl Activations {
    /// Allocate for `rows` rows.
    pub(super) fn new(
        device: &Arc<dyn Device>,
        spec: &ModelSpec,
        rows: usize,
    ) -> Result<Self, DeviceError> {
        let of = |width: usize| Buffer::zeros(device, rows * width);
        let (queries, gates) = (spec.heads * spec.head_dim, gate_width(spec));
        let experts = spec.feed_forward.experts;
        Ok(Self {
            hidden: of(spec.hidden)?,
            normed: of(spec.hidden)?,
            qkv: of(queries + 2 * spec.kv_heads * spec.head_dim)?,
            attended: of(queries)?,
            gate_up: of(gates)?,
            gated: of(gates / 2)?,
            experts: experts
                .map(|experts| ExpertScratch::new(device, spec, experts, rows))
                .transpose()?,
        })
    }
}

/// A batch, as a layer sees it.
pub(super) struct DeviceBatch<'a> {
    pub(super) device: &'a dyn Device,
    pub(super) spec: &'a ModelSpec,
    pub(super) ropes: &'a [Rotary],
    pub(super) activations: &'a Activations,
    pub(super) workspace: &'a Workspace,
    pub(super) rows: usize,
    pub(super) places: BatchPlaces<'a>,
    /// Positions of the rows that attend each by itself; negative for the others.
    pub(super) single_positions: Slice<'a, i32>,
    /// Rows up to the last of them.
    pub(super) single_rows: usize,
    /// Splits that the longest of their sequences needs.
    pub(super) splits: (&'a Splits, usize),
    /// Tiles of the other rows, and how many.
    pub(super) tiles: (Slice<'a, i32>, usize),
}

impl DeviceBatch<'_> {
    pub(super) fn whole<'b>(&self, buffer: &'b Buffer<f32>, width: usize) -> Rows<'b> {
        Rows {
            slice: buffer.all(),
            stride: width,
            count: self.rows,
        }
    }

    pub(super) fn norm<'b>(&self, weight: &'b Buffer<f32>) -> RmsNorm<'b> {
        RmsNorm {
            weight: weight.all(),
            epsilon: self.spec.norm_epsilon,
            sources: None,
            added: None,
        }
    }
}

/// Scratch memory of the experts.
#[derive(Debug)]
pub(super) struct ExpertScratch {
    pub(super) logits: Buffer<f32>,
    pub(super) routes: Routes,
    /// Output of each routed pair of row and expert.
    pub(super) results: Buffer<f32>,
    /// Output of the shared expert, and its gates.
    pub(super) common: Buffer<f32>,
    pub(super) common_gates: Buffer<f32>,
}

impl ExpertScratch {
    /// Allocate for `rows` rows.
    pub(super) fn new(
        device: &Arc<dyn Device>,
        spec: &ModelSpec,
        experts: ExpertsSpec,
        rows: usize,
    ) -> Result<Self, DeviceError> {
        let chosen = experts.routing.chosen;
        let shared = if experts.shared.is_some() { rows } else { 0 };
        Ok(Self {
            logits: Buffer::zeros(device, rows * experts.experts)?,
            routes: Routes::new(device, experts.experts, chosen, rows)?,
            results: Buffer::zeros(device, rows * chosen * spec.hidden)?,
            common: Buffer::zeros(device, shared * spec.hidden)?,
            common_gates: Buffer::zeros(device, shared)?,
        })
    }
}

/// Values of a row of gates and ups: twice the widest intermediate size.
pub(super) fn gate_width(spec: &ModelSpec) -> usize {
    let dense = spec.feed_forward.intermediate;
    let experts = spec.feed_forward.experts.map_or(0, |experts| {
        let parts = experts.routing.chosen * experts.intermediate;
        parts.max(experts.shared.unwrap_or(0))
    });
    2 * dense.max(experts)
}
