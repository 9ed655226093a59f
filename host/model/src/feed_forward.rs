//! The feed-forward part of a layer: gated products, by one for all tokens or by experts.

use mortise_kernels::gate_mul::{Activation, gate_mul};

use crate::error::ModelError;
use crate::experts::Experts;
use crate::linear::Linear;
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

    /// Rows of the hidden width from normalised ones.
    pub(crate) fn forward(&self, x: &[f32]) -> Vec<f32> {
        match self {
            Self::Gated(layer) => layer.forward(x),
            Self::Experts(experts) => experts.forward(x),
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
    pub(crate) fn forward(&self, x: &[f32]) -> Vec<f32> {
        let gate_up = self.gate_up.apply(x);
        let mut gated = vec![0.0; gate_up.len() / 2];
        gate_mul(
            self.activation,
            &gate_up,
            self.gate_up.outputs() / 2,
            &mut gated,
        );
        self.down.apply(&gated)
    }
}
