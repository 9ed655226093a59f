//! Cosines and sines of all positions, computed once.

use std::sync::Arc;

use mortise_cuda::attention::Rope;
use mortise_cuda::{Buffer, Device, DeviceError};
use mortise_kernels::rope::RopePairs;

use crate::rope::RopeSpec;

/// A rotary embedding on a device.
#[derive(Debug)]
pub(super) struct Rotary {
    cosines: Buffer<f32>,
    sines: Buffer<f32>,
    turned: usize,
}

impl Rotary {
    /// For texts of at most `context` tokens.
    pub(super) fn new(
        device: &Arc<dyn Device>,
        rope: &RopeSpec,
        context: usize,
    ) -> Result<Self, DeviceError> {
        let positions: Vec<u32> = (0..context as u32).collect();
        let table = rope.table(&positions, context);
        Ok(Self {
            cosines: Buffer::of(device, table.cosines())?,
            sines: Buffer::of(device, table.sines())?,
            turned: rope.turned,
        })
    }

    pub(super) fn of(&self, pairs: RopePairs) -> Rope<'_> {
        Rope {
            cosines: self.cosines.all(),
            sines: self.sines.all(),
            turned: self.turned,
            neighbours: pairs == RopePairs::Neighbours,
        }
    }
}
