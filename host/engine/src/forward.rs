//! The forward pass: a model on the processor, a model on a device, or a fake in tests.

use std::sync::Arc;

use mortise_kernels::linear::{Scores, WantedLogits};
use mortise_model::{
    Decoder, DeviceModel, InputError, KvCache, Logits, ModelInput, SampleParams, SampledToken,
    TokenSource,
};

/// Computes batches against a KV cache of its own.
pub trait ForwardPass: Send {
    /// Tokens that the model knows.
    fn vocabulary(&self) -> usize;

    /// The model's context length, in tokens.
    fn context_length(&self) -> usize;

    /// Blocks that the cache has.
    fn cache_blocks(&self) -> usize;

    /// Compute a batch: one row of logits for each sequence that asks for its last row, in order.
    /// May be called again with the same tokens after it failed.
    fn forward(&mut self, input: &ModelInput) -> Result<Logits, InputError>;

    /// Compute a batch and return, for each row that [`forward`](Self::forward) would give, what `wanted`
    /// names, where that costs less than the whole row; whole rows are valid for every wish. `wanted` is
    /// called once, as late as possible, since masks are computed during the forward pass.
    fn score(
        &mut self,
        input: &ModelInput,
        wanted: &mut dyn FnMut() -> Vec<WantedLogits>,
    ) -> Result<Scores, InputError> {
        let _ = wanted;
        self.forward(input).map(Scores::from)
    }

    /// The model as one whose logits stay on a device, if it is. The engine then samples there and copies
    /// whole rows only where it must.
    fn device(&mut self) -> Option<&mut dyn DeviceLogits> {
        None
    }
}

/// A model whose logits stay in device memory, where tokens are sampled by the rules of the engine's own
/// sampler. Work is enqueued and done in order.
pub trait DeviceLogits {
    /// Enqueue a batch; its rows of logits are those that [`ForwardPass::forward`] would give. The tokens
    /// that `sources` names are those that were sampled last, whatever the batch says. May be called again
    /// with the same tokens after it failed.
    fn queue(&mut self, input: &ModelInput, sources: &[TokenSource]) -> Result<(), InputError>;

    /// Wait until everything that was enqueued is done.
    fn wait(&mut self) -> Result<(), InputError>;

    /// Copy a row of logits of the last batch that was not sampled from.
    fn logit_row(&mut self, row: usize) -> Result<Vec<f32>, InputError>;

    /// Enqueue the sampling of rows of the last batch, each row at most once.
    fn sample(&mut self, params: Vec<SampleParams>) -> Result<(), InputError>;

    /// Wait for the oldest sampled tokens that were not waited for yet, and for nothing that was enqueued
    /// after them.
    fn sampled(&mut self) -> Result<Vec<SampledToken>, InputError>;
}

/// A model with its cache.
#[derive(Debug)]
pub(crate) struct LocalModel {
    pub(crate) model: Arc<Decoder>,
    pub(crate) cache: KvCache,
}

impl ForwardPass for LocalModel {
    fn vocabulary(&self) -> usize {
        self.model.spec().vocabulary
    }

    fn context_length(&self) -> usize {
        self.model.spec().context
    }

    fn cache_blocks(&self) -> usize {
        self.cache.blocks()
    }

    fn forward(&mut self, input: &ModelInput) -> Result<Logits, InputError> {
        self.model.forward(input, &mut self.cache)
    }

    fn score(
        &mut self,
        input: &ModelInput,
        wanted: &mut dyn FnMut() -> Vec<WantedLogits>,
    ) -> Result<Scores, InputError> {
        self.model.score(input, &mut self.cache, wanted)
    }
}

impl ForwardPass for DeviceModel {
    fn vocabulary(&self) -> usize {
        self.spec().vocabulary
    }

    fn context_length(&self) -> usize {
        self.spec().context
    }

    fn cache_blocks(&self) -> usize {
        DeviceModel::cache_blocks(self)
    }

    fn forward(&mut self, input: &ModelInput) -> Result<Logits, InputError> {
        DeviceModel::forward(self, input)
    }

    fn device(&mut self) -> Option<&mut dyn DeviceLogits> {
        Some(self)
    }
}

impl DeviceLogits for DeviceModel {
    fn queue(&mut self, input: &ModelInput, sources: &[TokenSource]) -> Result<(), InputError> {
        DeviceModel::queue(self, input, sources)
    }

    fn wait(&mut self) -> Result<(), InputError> {
        DeviceModel::wait(self)
    }

    fn logit_row(&mut self, row: usize) -> Result<Vec<f32>, InputError> {
        DeviceModel::logit_row(self, row)
    }

    fn sample(&mut self, params: Vec<SampleParams>) -> Result<(), InputError> {
        DeviceModel::sample(self, params)
    }

    fn sampled(&mut self) -> Result<Vec<SampledToken>, InputError> {
        DeviceModel::sampled(self)
    }
}
