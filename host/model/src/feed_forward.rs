//! The feed-forward part of a layer: gated products, by one for all tokens or by experts.

use mortise_kernels::gate_mul::Activation;
use mortise_kernels::linear::{Activations, Forms};

use crate::error::ModelError;
use crate::experts::Experts;
use crate::linear::{Linear, Residual};
use crate::loader::Loader;

/// The feed-forward part of a layer.
#[derive(Debug)]
pub(crate) enum FeedForward {
    Gated(GatedLayer),
    Experts(Box<Experts>),
}

impl FeedForward {
    pub(crate) fn load(loader: &Loader<'_>, number: usize) -> Result<Self, ModelError> {
        let feed_forward = loader.spec.feed_forward;
        if loader.spec.layer_specs[number].experts
            && let Some(experts) = feed_forward.experts
        {
            return Experts::load(loader, number, experts)
                .map(|experts| Self::Experts(Box::new(experts)));
        }
        let names = loader.names;
        let name = |part: &str| loader.layer_name(number, part);
        let (width, hidden) = (feed_forward.intermediate, loader.spec.hidden);
        let down = name(names.down);
        Ok(Self::Gated(GatedLayer {
            activation: feed_forward.activation,
            gate_up: loader.stack(
                &names.gate_up,
                name,
                [width, width],
                hidden,
                feed_forward.bias,
            )?,
            down: loader.matrix(down, hidden, width, feed_forward.bias)?,
        }))
    }

    /// The forms of activations that it takes.
    pub(crate) fn forms(&self) -> Forms {
        match self {
            Self::Gated(layer) => layer.gate_up.forms(),
            Self::Experts(experts) => experts.forms(),
        }
    }

    /// Add what comes of normalised rows to rows of the hidden width.
    pub(crate) fn add(&self, x: &Activations<'_>, residual: Residual<'_>) {
        match self {
            Self::Gated(layer) => layer.add(x, residual),
            Self::Experts(experts) => experts.add(x, residual),
        }
    }
}

/// Two products with a gate between them.
#[derive(Debug)]
pub(crate) struct GatedLayer {
    pub(crate) activation: Activation,
    /// Gates, then ups.
    pub(crate) gate_up: Linear,
    pub(crate) down: Linear,
}

impl GatedLayer {
    pub(crate) fn add(&self, x: &Activations<'_>, residual: Residual<'_>) {
        let gated = self.gate_up.gate(x, self.activation, self.down.forms());
        self.down.add_of(&gated, residual);
    }

    /// What comes of rows of the hidden width.
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
