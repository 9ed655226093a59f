//! An embedding model on the processor.

use std::sync::Arc;

use anyhow::Context as _;
use mortise_engine::{EngineLoad, QueueBounds, Share};
use mortise_model::{Adapter, EmbedText, Embedder, EmbedderOptions, ModelFolder, WeightPrecision};

use crate::embedding_runtime::{EmbeddingFuture, EmbeddingRuntime};
use crate::text_queue::{ComputeBatch, TextQueue};
use crate::token_runtime::AdapterBase;

/// A model that takes one batch after the other.
pub(crate) struct LocalEmbedder(TextQueue<Embedder>);

/// A text in the queue. It holds its adapter until its vector is made.
#[derive(Debug, Clone)]
pub(crate) struct QueuedText {
    tokens: Vec<u32>,
    adapter: Option<Arc<Adapter>>,
}

impl ComputeBatch for Embedder {
    type Text = QueuedText;
    type Made = Vec<f32>;

    fn tokens(text: &QueuedText) -> usize {
        text.tokens.len()
    }

    fn compute(&self, texts: &[QueuedText]) -> Result<Vec<Vec<f32>>, String> {
        let texts = texts.iter().map(|text| EmbedText {
            tokens: &text.tokens,
            adapter: text.adapter.as_ref(),
        });
        self.embed_adapted(&texts.collect::<Vec<_>>())
            .map_err(|error| error.to_string())
    }
}

impl LocalEmbedder {
    /// Blocks.
    pub(crate) fn open(
        folder: &ModelFolder,
        precision: WeightPrecision,
        options: EmbedderOptions,
        max_context: usize,
        places: QueueBounds,
    ) -> anyhow::Result<Self> {
        let mut model = Embedder::load(folder, precision, options)
            .context("the embedding model cannot be loaded")?;
        model.limit_context(max_context);
        Ok(Self(TextQueue::new(model, places)))
    }
}

impl EmbeddingRuntime for LocalEmbedder {
    fn dimensions(&self) -> usize {
        self.0.model().dimensions()
    }

    fn context_length(&self) -> usize {
        self.0.model().context()
    }

    fn embed<'a>(
        &'a self,
        texts: Vec<Vec<u32>>,
        adapter: Option<Arc<Adapter>>,
        share: &'a Share,
    ) -> EmbeddingFuture<'a> {
        let texts = texts.into_iter().map(|tokens| QueuedText {
            tokens,
            adapter: adapter.clone(),
        });
        Box::pin(self.0.run(texts.collect(), share))
    }

    fn adapter_base(&self) -> AdapterBase {
        let base = self.0.model().adapter_base();
        base.ok_or("it is an encoder, and adapters are those of decoders")
    }

    fn load(&self) -> EngineLoad {
        self.0.load()
    }
}
