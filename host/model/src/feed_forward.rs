//! Feed-forward part of a layer: a gated MLP, or a mixture of experts.

use mortise_kernels::linear::{Activations, Forms};

use crate::error::ModelError;
use crate::experts::Experts;
use crate::gated_mlp::GatedMlp;
use crate::linear::Residual;
use crate::loader::Loader;
use crate::lora::Adapted;

/// The feed-forward part of a layer.
#[derive(Debug)]
pub(crate) enum FeedForward {
    Gated(GatedMlp),
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
        Ok(Self::Gated(GatedMlp {
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

    /// Forms of activations that the layer reads.
    pub(crate) fn forms(&self) -> Forms {
        match self {
            Self::Gated(layer) => layer.gate_up.forms(),
            Self::Experts(experts) => experts.forms(),
        }
    }

    /// `residual.rows += residual.scale * feed_forward(x)`.
    pub(crate) fn add(&self, x: &Activations<'_>, adapted: Adapted<'_>, residual: Residual<'_>) {
        match self {
            Self::Gated(layer) => layer.add(x, adapted, residual),
            Self::Experts(experts) => experts.add(x, residual),
        }
    }
}
