//! What computes logits: the model, or a fake in tests.

use std::sync::Arc;

use mortise_kernels::linear::Best;
use mortise_model::{DeviceModel, InputError, KvCache, Logits, Model, ModelInput};

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

    /// Compute a batch and find, of each row that [`forward`](Self::forward) would give, the token with
    /// the highest logit, where that costs less than the rows. `None` where it does not; then nothing is
    /// computed.
    fn likeliest(&mut self, input: &ModelInput) -> Option<Result<Vec<Best>, InputError>> {
        let _ = input;
        None
    }
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

    fn likeliest(&mut self, input: &ModelInput) -> Option<Result<Vec<Best>, InputError>> {
        Some(self.model.likeliest(input, &mut self.cache))
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
}
