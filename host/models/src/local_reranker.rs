//! A model on the processor that scores pairs of texts.

use anyhow::Context as _;
use mortise_engine::{EngineLoad, QueueBounds, Share};
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

/// Way in which a model scores.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    /// An encoder's head.
    Encoder,
    /// A decoder's head.
    Classifier,
    /// The tokens of two answers, that of `yes` first.
    Answers((u32, u32)),
}

impl LocalReranker {
    /// Open a model of a kind; one that answers has the tokens of its answers. Blocks.
    pub(crate) fn open(
        folder: &ModelFolder,
        precision: WeightPrecision,
        way: Way,
        max_context: usize,
        places: QueueBounds,
    ) -> anyhow::Result<Self> {
        let model = match way {
            Way::Encoder => Reranker::load(folder, precision),
            Way::Classifier => Reranker::load_classifier(folder, precision),
            Way::Answers(answers) => Reranker::load_decoder(folder, precision, answers),
        };
        let mut model = model.context("the model that ranks cannot be loaded")?;
        model.limit_context(max_context);
        Ok(Self(TextQueue::new(model, places)))
    }
}

impl RerankRuntime for LocalReranker {
    fn context_length(&self) -> usize {
        self.0.model().context()
    }

    fn score<'a>(&'a self, pairs: Vec<EncodedPair>, share: &'a Share) -> ScoreFuture<'a> {
        Box::pin(self.0.run(pairs, share))
    }

    fn load(&self) -> EngineLoad {
        self.0.load()
    }
}
