//! The feed-forward part of a layer on a device: gated products, by one for all rows or by experts.

use std::sync::Arc;

use mortise_cuda::rows::{Activation, gate_mul};
use mortise_cuda::{Buffer, Device, DeviceError, Scalars};
use mortise_kernels::gate_mul::Activation as HostActivation;

use super::batch::DeviceBatch;
use super::experts::DeviceExperts;
use super::weights::Stack;
use crate::error::ModelError;
use crate::loader::Loader;

/// The feed-forward part of a layer.
#[derive(Debug)]
pub(super) enum DeviceFeedForward {
    Gated { gate_up: Stack, down: Stack },
    Experts(Box<DeviceExperts>),
}

impl DeviceFeedForward {
    pub(super) fn load(
        loader: &Loader<'_>,
        device: &Arc<dyn Device>,
        number: usize,
    ) -> Result<Self, ModelError> {
        let feed_forward = loader.spec.feed_forward;
        if loader.spec.layer_specs[number].experts
            && let Some(experts) = feed_forward.experts
        {
            let experts = DeviceExperts::load(loader, device, number, experts)?;
            return Ok(Self::Experts(Box::new(experts)));
        }
        let names = loader.names;
        let name = |part: &str| loader.layer_name(number, part);
        let (width, hidden) = (feed_forward.intermediate, loader.spec.hidden);
        let (gates, down) = (([width, width], hidden), [hidden, width]);
        let bias = feed_forward.bias;
        Ok(Self::Gated {
            gate_up: Stack::of_names(loader, device, &names.gate_up, name, gates, bias)?,
            down: Stack::single(loader, device, name(names.down), down, bias)?,
        })
    }

    /// Matrices that every row is multiplied with.
    pub(super) fn stacks(&self) -> Vec<&Stack> {
        match self {
            Self::Gated { gate_up, down } => vec![gate_up, down],
            Self::Experts(experts) => experts.stacks().collect(),
        }
    }

    /// Bytes of the other matrices that a row is multiplied with.
    pub(super) fn chosen_bytes(&self) -> usize {
        match self {
            Self::Gated { .. } => 0,
            Self::Experts(experts) => experts.chosen_bytes(),
        }
    }

    /// Write what comes of rows of `x` to those of `out`, or add it there.
    pub(super) fn forward(
        &self,
        batch: &DeviceBatch<'_>,
        (x, out): (&Buffer<f32>, &Buffer<f32>),
        scalars: Scalars,
    ) -> Result<(), DeviceError> {
        let feed_forward = batch.spec.feed_forward;
        let activation = activation(feed_forward.activation);
        let (device, rows, workspace) = (batch.device, batch.rows, batch.workspace);
        let activations = batch.activations;
        match (self, &activations.experts) {
            (Self::Gated { gate_up, down }, _) => {
                let (gates, gated) = (&activations.gate_up, &activations.gated);
                gate_up.apply(device, x, gates, rows, Scalars::PLAIN, workspace)?;
                let width = feed_forward.intermediate;
                gate_mul(device, activation, gates.all(), width, rows, gated.all())?;
                down.apply(device, gated, out, rows, scalars, workspace)
            }
            (Self::Experts(experts), Some(scratch)) => {
                experts.forward(batch, scratch, activation, (x, out), scalars)
            }
            (Self::Experts(_), None) => {
                unreachable!("a model with experts has scratch memory for them")
            }
        }
    }
}

fn activation(activation: HostActivation) -> Activation {
    match activation {
        HostActivation::Silu => Activation::Silu,
        HostActivation::GeluTanh => Activation::GeluTanh,
        HostActivation::ClampedSwish { alpha, limit } => Activation::ClampedSwish { alpha, limit },
    }
}
