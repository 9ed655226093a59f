//! What computes logits: the model, or a fake in tests.

use std::sync::Arc;

use mortise_kernels::linear::{Scores, WantedLogits};
use mortise_model::{
    Choice, Chosen, DeviceModel, InputError, KvCache, Logits, Model, ModelInput, TokenSource,
};

/// Computes batches against a KV cache of its own.
pub trait ForwardPass: Send {
    /// Tokens that the model knows.
    fn vocabulary(&self) -> usize;

    /// Tokens that a sequence may have by the model's making.
    fn context_length(&self) -> usize;

    /// Blocks that the cache has.
    fn cache_blocks(&self) -> usize;

    /// Compute a batch: one row of logits for each sequence that asks for its last row, in order.
    /// May be called again with the same tokens after it failed.
    fn forward(&mut self, input: &ModelInput) -> Result<Logits, InputError>;

    /// Compute a batch and find, of each row that [`forward`](Self::forward) would give, what is `wanted`
    /// of it, where that costs less than the row. It is asked once, as late as possible: masks are made
    /// meanwhile. Whole rows are an answer to all wishes.
    fn score(
        &mut self,
        input: &ModelInput,
        wanted: &mut dyn FnMut() -> Vec<WantedLogits>,
    ) -> Result<Scores, InputError> {
        let _ = wanted;
        self.forward(input).map(Scores::from)
    }

    /// This, where its logits can stay where they were computed: the engine then asks for whole rows
    /// only where it must.
    fn remote(&mut self) -> Option<&mut dyn RemoteLogits> {
        None
    }
}

/// Logits that stay where they were computed, and tokens that are chosen there, by the rules of the
/// engine's sampler. Work is queued and done in order.
pub trait RemoteLogits {
    /// Queue a batch; its rows of logits are those that [`ForwardPass::forward`] would give. Tokens named
    /// by `sources` are those that were chosen last, whatever stands in the batch. May be called again
    /// with the same tokens after it failed.
    fn queue(&mut self, input: &ModelInput, sources: &[TokenSource]) -> Result<(), InputError>;

    /// Wait until everything that was queued is done.
    fn wait(&mut self) -> Result<(), InputError>;

    /// Copy a row of logits of the last batch from which nothing was chosen.
    fn logit_row(&mut self, row: usize) -> Result<Vec<f32>, InputError>;

    /// Queue choices from the last batch, at most one of a row.
    fn choose(&mut self, choices: Vec<Choice>) -> Result<(), InputError>;

    /// Wait for the oldest choices that nobody has waited for, and for nothing that was queued after
    /// them.
    fn chosen(&mut self) -> Result<Vec<Chosen>, InputError>;
}

/// A model with its cache.
#[derive(Debug)]
pub(crate) struct LocalModel {
    pub(crate) model: Arc<Model>,
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

    fn remote(&mut self) -> Option<&mut dyn RemoteLogits> {
        Some(self)
    }
}

impl RemoteLogits for DeviceModel {
    fn queue(&mut self, input: &ModelInput, sources: &[TokenSource]) -> Result<(), InputError> {
        DeviceModel::queue(self, input, sources)
    }

    fn wait(&mut self) -> Result<(), InputError> {
        DeviceModel::wait(self)
    }

    fn logit_row(&mut self, row: usize) -> Result<Vec<f32>, InputError> {
        DeviceModel::logit_row(self, row)
    }

    fn choose(&mut self, choices: Vec<Choice>) -> Result<(), InputError> {
        DeviceModel::choose(self, choices)
    }

    fn chosen(&mut self) -> Result<Vec<Chosen>, InputError> {
        DeviceModel::chosen(self)
    }
}
