//! Gated MLP: `down(activation(gate(x)) * up(x))`.

use mortise_kernels::gate_mul::{Activation, gate_mul};
use mortise_kernels::linear::Activations;

use crate::linear::{Linear, Residual};
use crate::lora::{Adapted, Site};

/// Gate and up projections, stacked, and the down projection.
#[derive(Debug)]
pub(crate) struct GatedMlp {
    pub(crate) activation: Activation,
    /// Gates, then ups.
    pub(crate) gate_up: Linear,
    pub(crate) down: Linear,
}

impl GatedMlp {
    /// `residual.rows += residual.scale * mlp(x)`.
    pub(crate) fn add(&self, x: &Activations<'_>, adapted: Adapted<'_>, residual: Residual<'_>) {
        if !adapted.changes(Site::GateUp) && !adapted.changes(Site::Down) {
            let gated = self.gate_up.gate(x, self.activation, self.down.forms());
            return self.down.add_of(&gated, residual);
        }
        // The same bits in separate steps, for what adapters add between them.
        let mut both = self.gate_up.apply_to(x);
        if adapted.changes(Site::GateUp) {
            let width = self.gate_up.outputs();
            adapted.add(Site::GateUp, x.plain(), 1.0, &mut both, width);
        }
        let width = self.gate_up.outputs() / 2;
        let mut gated = vec![0.0; x.rows() * width];
        gate_mul(self.activation, &both, width, &mut gated);
        adapted.add_product(&self.down, Site::Down, gated, residual);
    }

    /// `mlp(x)`, in rows of the hidden size.
    pub(crate) fn apply(&self, x: &Activations<'_>) -> Vec<f32> {
        let mut rows = vec![0.0; x.rows() * self.down.outputs()];
        let scale = 1.0;
        self.add(
            x,
            Adapted::NONE,
            Residual {
                rows: &mut rows,
                scale,
            },
        );
        rows
    }
}
