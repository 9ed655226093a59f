//! Models that make embeddings behind the service: vectors are made on threads that may block, one batch at a time.

use std::sync::Arc;

use anyhow::Context as _;
use mortise_engine::{EngineLoad, SequenceRequest, SubmitError, TokenStream};
use mortise_model::{Embedder, EmbedderOptions, ModelFolder, WeightPrecision};
use mortise_registry::Backend;
use mortise_service::{BoxFuture, Embed, ServiceError};
use tokio::sync::Semaphore;

/// Tokens that are embedded together: enough to keep all threads busy, and few enough that what
/// waits behind them does not wait long.
const BATCH_TOKENS: usize = 4096;

/// A model that takes one batch after the other.
pub(crate) struct LocalEmbedder {
    model: Arc<Embedder>,
    /// Of the batch that is computed.
    turn: Semaphore,
    /// Of the requests that wait for it.
    queue: Semaphore,
    max_queue: usize,
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
        Ok(Self {
            model: Arc::new(model),
            turn: Semaphore::new(1),
            queue: Semaphore::new(max_queue),
            max_queue,
        })
    }

    async fn batch(&self, texts: Vec<Vec<u32>>) -> Result<Vec<Vec<f32>>, ServiceError> {
        let Ok(_turn) = self.turn.acquire().await else {
            return Err(ServiceError::Stopping);
        };
        let model = Arc::clone(&self.model);
        let run = move || {
            let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
            model.embed(&texts)
        };
        let failed = |error: String| ServiceError::Engine(error);
        tokio::task::spawn_blocking(run)
            .await
            .map_err(|error| failed(error.to_string()))?
            .map_err(|error| failed(error.to_string()))
    }
}

impl Embed for LocalEmbedder {
    fn dimensions(&self) -> usize {
        self.model.dimensions()
    }

    fn context_length(&self) -> usize {
        self.model.context()
    }

    fn embed(&self, texts: Vec<Vec<u32>>) -> BoxFuture<'_, Result<Vec<Vec<f32>>, ServiceError>> {
        Box::pin(async move {
            let Ok(_place) = self.queue.try_acquire() else {
                return Err(ServiceError::QueueFull {
                    limit: self.max_queue,
                    unit: "requests",
                    retry_after: None,
                });
            };
            let mut vectors = Vec::with_capacity(texts.len());
            for batch in batches(texts) {
                vectors.extend(self.batch(batch).await?);
            }
            Ok(vectors)
        })
    }
}

/// Texts in order, in groups of at most so many tokens; a longer text is alone.
fn batches(texts: Vec<Vec<u32>>) -> Vec<Vec<Vec<u32>>> {
    let mut batches: Vec<Vec<Vec<u32>>> = Vec::new();
    let mut tokens = 0;
    for text in texts {
        tokens += text.len();
        match batches.last_mut() {
            Some(batch) if tokens <= BATCH_TOKENS => batch.push(text),
            _ => {
                tokens = text.len();
                batches.push(vec![text]);
            }
        }
    }
    batches
}

/// Stands where a generating model has its engine.
pub(crate) struct NoGeneration {
    pub(crate) context: usize,
}

impl Backend for NoGeneration {
    fn submit(&self, _: SequenceRequest) -> Result<TokenStream, SubmitError> {
        Err(SubmitError::Invalid(
            "this model makes embeddings and generates no text".to_owned(),
        ))
    }

    fn context_length(&self) -> usize {
        self.context
    }

    fn load(&self) -> EngineLoad {
        EngineLoad::default()
    }
}

#[cfg(test)]
mod tests {
    use super::{BATCH_TOKENS, batches};

    #[test]
    fn batches_keep_the_order_and_the_bound() {
        let lengths = [BATCH_TOKENS - 1, 1, 1, 7, BATCH_TOKENS + 5, 3, 4];
        let texts: Vec<Vec<u32>> = lengths.iter().map(|length| vec![0; *length]).collect();
        let found: Vec<Vec<usize>> = batches(texts)
            .iter()
            .map(|batch| batch.iter().map(Vec::len).collect())
            .collect();
        let expected = [
            vec![BATCH_TOKENS - 1, 1],
            vec![1, 7],
            vec![BATCH_TOKENS + 5],
            vec![3, 4],
        ];
        assert_eq!(found, expected);
        assert!(batches(Vec::new()).is_empty());
    }
}
