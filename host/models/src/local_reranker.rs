//! A model on the processor that scores pairs of texts.

use anyhow::Context as _;
use mortise_engine::EngineLoad;
use mortise_model::{EncoderText, ModelFolder, Reranker, WeightPrecision};
use mortise_tokenizer::EncodedPair;

use crate::rerank_runtime::{RerankRuntime, ScoreFuture};
use crate::text_queue::{ComputeBatch, TextQueue};

/// A model that takes one batch after the other.
pub(crate) struct LocalReranker(TextQueue<Reranker>);

impl ComputeBatch for Reranker {
    type Text = EncodedPair;
    type Made = f32;

    fn tokens(pair: &EncodedPair) -> usize {
        pair.tokens.len()
    }

    fn compute(&self, pairs: &[EncodedPair]) -> Result<Vec<f32>, String> {
        let pairs = pairs.iter().map(|pair| EncoderText {
            tokens: &pair.tokens,
            second: pair.second,
        });
        let pairs: Vec<EncoderText<'_>> = pairs.collect();
        self.score(&pairs).map_err(|error| error.to_string())
    }
}

impl LocalReranker {
    /// Open an encoder, or, with the tokens of its answers, a decoder. Blocks.
    pub(crate) fn open(
        folder: &ModelFolder,
        precision: WeightPrecision,
        answers: Option<(u32, u32)>,
        max_context: usize,
        max_queue: usize,
    ) -> anyhow::Result<Self> {
        let model = match answers {
            None => Reranker::load(folder, precision),
            Some(answers) => Reranker::load_decoder(folder, precision, answers),
        };
        let mut model = model.context("the model that ranks cannot be loaded")?;
        model.limit_context(max_context);
        Ok(Self(TextQueue::new(model, max_queue)))
    }
}

impl RerankRuntime for LocalReranker {
    fn context_length(&self) -> usize {
        self.0.model().context()
    }

    fn score(&self, pairs: Vec<EncodedPair>) -> ScoreFuture<'_> {
        Box::pin(self.0.run(pairs))
    }

    fn load(&self) -> EngineLoad {
        self.0.load()
    }
}
