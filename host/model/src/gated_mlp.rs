//! Gated MLP: `down(activation(gate(x)) * up(x))`.

use mortise_kernels::gate_mul::Activation;
use mortise_kernels::linear::Activations;

use crate::linear::{Linear, Residual};

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
    pub(crate) fn add(&self, x: &Activations<'_>, residual: Residual<'_>) {
        let gated = self.gate_up.gate(x, self.activation, self.down.forms());
        self.down.add_of(&gated, residual);
    }

    /// `mlp(x)`, in rows of the hidden size.
    pub(crate) fn apply(&self, x: &Activations<'_>) -> Vec<f32> {
        let mut rows = vec![0.0; x.rows() * self.down.outputs()];
        let scale = 1.0;
        self.add(
            x,
            Residual {
                rows: &mut rows,
                scale,
            },
        );
        rows
    }
}
