//! A batch as the layers of a decoder see it.

use mortise_kernels::rope::{RopeHeads, RopeTable};

use crate::kv_cache::CachePlan;
use crate::lora::AdaptedRows;
use crate::spec::{LayerSpec, ModelSpec};

/// Positions, cache slots and rotary tables of a batch.
pub(crate) struct BatchLayout<'a> {
    /// Adapters with their rows; empty where no sequence has one.
    pub(crate) adapted: &'a [AdaptedRows],
    pub(crate) spec: &'a ModelSpec,
    pub(crate) plan: CachePlan<'a>,
    /// One table for each of [`ModelSpec::ropes`].
    pub(crate) ropes: Vec<RopeTable>,
    /// Query factor of each row, in models with position-dependent query scaling.
    pub(crate) query_factors: Option<Vec<f32>>,
}

impl BatchLayout<'_> {
    /// Rows of the batch.
    pub(crate) fn rows(&self) -> usize {
        self.plan.rows.len()
    }

    /// Rotary table of a layer with its heads; `None` for a layer without positions.
    pub(crate) fn rope(
        &self,
        layer: LayerSpec,
        heads: RopeHeads,
    ) -> Option<(&RopeTable, RopeHeads)> {
        let table = layer.rope.and_then(|rope| self.ropes.get(rope))?;
        Some((table, heads))
    }
}
