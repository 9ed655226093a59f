//! An embedding model on the processor.

use anyhow::Context as _;
use mortise_engine::EngineLoad;
use mortise_model::{Embedder, EmbedderOptions, ModelFolder, WeightPrecision};

use crate::embedding_runtime::{EmbeddingFuture, EmbeddingRuntime};
use crate::text_queue::{ComputeBatch, TextQueue};

/// A model that takes one batch after the other.
pub(crate) struct LocalEmbedder(TextQueue<Embedder>);

impl ComputeBatch for Embedder {
    type Text = Vec<u32>;
    type Made = Vec<f32>;

    fn tokens(text: &Vec<u32>) -> usize {
        text.len()
    }

    fn compute(&self, texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>, String> {
        let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
        self.embed(&texts).map_err(|error| error.to_string())
    }
}

impl LocalEmbedder {
    /// Blocks.
    pub(crate) fn open(
        folder: &ModelFolder,
        precision: WeightPrecision,
        options: EmbedderOptions,
        max_context: usize,
        max_queue: usize,
    ) -> anyhow::Result<Self> {
        let mut model = Embedder::load(folder, precision, options)
            .context("the embedding model cannot be loaded")?;
        model.limit_context(max_context);
        Ok(Self(TextQueue::new(model, max_queue)))
    }
}

impl EmbeddingRuntime for LocalEmbedder {
    fn dimensions(&self) -> usize {
        self.0.model().dimensions()
    }

    fn context_length(&self) -> usize {
        self.0.model().context()
    }

    fn embed(&self, texts: Vec<Vec<u32>>) -> EmbeddingFuture<'_> {
        Box::pin(self.0.run(texts))
    }

    fn load(&self) -> EngineLoad {
        self.0.load()
    }
}
