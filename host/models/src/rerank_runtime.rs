//! Runtime of models that score pairs of texts.

use std::future::Future;
use std::pin::Pin;

use mortise_engine::{EngineLoad, Share};
use mortise_tokenizer::EncodedPair;

use crate::embedding_runtime::EmbedError;

/// Scores of pairs, once they are computed.
pub type ScoreFuture<'a> = Pin<Box<dyn Future<Output = Result<Vec<f32>, EmbedError>> + Send + 'a>>;

/// Scores pairs of texts.
pub trait RerankRuntime: Send + Sync {
    /// Tokens that a pair may have.
    fn context_length(&self) -> usize;

    /// Compute one logit for each pair, in order. The tokens count against a share. Dropping the future gives up what has
    /// not begun.
    fn score<'a>(&'a self, pairs: Vec<EncodedPair>, share: &'a Share) -> ScoreFuture<'a>;

    /// Counters and gauges of the runtime. Tokens of pairs count as prefill.
    fn load(&self) -> EngineLoad;
}
