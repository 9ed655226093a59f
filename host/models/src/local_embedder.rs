//! An embedding model on the processor: batches are computed one at a time, on threads that may block.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use anyhow::Context as _;
use mortise_engine::EngineLoad;
use mortise_model::{Embedder, EmbedderOptions, ModelFolder, WeightPrecision};
use tokio::sync::Semaphore;

use crate::embedding_runtime::{EmbedError, EmbeddingFuture, EmbeddingRuntime};

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
    counters: Counters,
}

/// Load counters. They are independent of one another: no memory order is needed.
#[derive(Default)]
struct Counters {
    /// Tokens of texts that were taken on and whose vectors are not made yet.
    waiting_tokens: AtomicUsize,
    /// Tokens whose vectors were made.
    done_tokens: AtomicU64,
    /// Batches that were computed.
    batches: AtomicU64,
    /// Time in which they were computed.
    busy_micros: AtomicU64,
    /// Requests that have ended, however they did.
    finished: AtomicU64,
}

/// A request's tokens among those that wait. When it is dropped, nothing more will be made of them.
struct Waiting<'a> {
    counters: &'a Counters,
    tokens: usize,
}

impl<'a> Waiting<'a> {
    fn new(counters: &'a Counters, tokens: usize) -> Self {
        counters.waiting_tokens.fetch_add(tokens, Relaxed);
        Self { counters, tokens }
    }

    /// A batch of so many of them was computed.
    fn done(&mut self, tokens: usize) {
        self.tokens -= tokens;
        self.counters.waiting_tokens.fetch_sub(tokens, Relaxed);
        self.counters.done_tokens.fetch_add(tokens as u64, Relaxed);
        self.counters.batches.fetch_add(1, Relaxed);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let left = self.tokens;
        self.counters.waiting_tokens.fetch_sub(left, Relaxed);
        self.counters.finished.fetch_add(1, Relaxed);
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
        Ok(Self {
            model: Arc::new(model),
            turn: Semaphore::new(1),
            queue: Semaphore::new(max_queue),
            max_queue,
            counters: Counters::default(),
        })
    }

    async fn batch(&self, texts: Vec<Vec<u32>>) -> Result<Vec<Vec<f32>>, EmbedError> {
        let Ok(_turn) = self.turn.acquire().await else {
            return Err(EmbedError::Stopped);
        };
        let model = Arc::clone(&self.model);
        let run = move || {
            let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
            model.embed(&texts)
        };
        let begun = Instant::now();
        let made = tokio::task::spawn_blocking(run).await;
        let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.counters.busy_micros.fetch_add(micros, Relaxed);
        made.map_err(|error| EmbedError::Failed(error.to_string()))?
            .map_err(|error| EmbedError::Failed(error.to_string()))
    }
}

impl EmbeddingRuntime for LocalEmbedder {
    fn dimensions(&self) -> usize {
        self.model.dimensions()
    }

    fn context_length(&self) -> usize {
        self.model.context()
    }

    fn embed(&self, texts: Vec<Vec<u32>>) -> EmbeddingFuture<'_> {
        Box::pin(async move {
            let Ok(_place) = self.queue.try_acquire() else {
                return Err(EmbedError::QueueFull {
                    limit: self.max_queue,
                });
            };
            let mut waiting = Waiting::new(&self.counters, tokens(&texts));
            let mut vectors = Vec::with_capacity(texts.len());
            for batch in batches(texts) {
                let size = tokens(&batch);
                vectors.extend(self.batch(batch).await?);
                waiting.done(size);
            }
            Ok(vectors)
        })
    }

    fn load(&self) -> EngineLoad {
        let waiting = self.max_queue - self.queue.available_permits();
        let running = 1 - self.turn.available_permits();
        let counters = &self.counters;
        EngineLoad {
            running,
            max_running: 1,
            waiting: waiting.saturating_sub(running),
            waiting_tokens: counters.waiting_tokens.load(Relaxed),
            finished: counters.finished.load(Relaxed),
            busy_ms: counters.busy_micros.load(Relaxed) / 1000,
            steps: counters.batches.load(Relaxed),
            prefill_tokens: counters.done_tokens.load(Relaxed),
            ..EngineLoad::default()
        }
    }
}

fn tokens(texts: &[Vec<u32>]) -> usize {
    texts.iter().map(Vec::len).sum()
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

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn what_waits_is_what_was_taken_on_and_is_not_done() {
        let counters = Counters::default();
        let load = || {
            let load = [&counters.done_tokens, &counters.batches, &counters.finished];
            let load = load.map(|counter| counter.load(Relaxed));
            (counters.waiting_tokens.load(Relaxed), load)
        };
        let mut first = Waiting::new(&counters, 10);
        let second = Waiting::new(&counters, 5);
        assert_eq!(load(), (15, [0, 0, 0]));
        first.done(4);
        assert_eq!(load(), (11, [4, 1, 0]));
        // Its caller has gone.
        drop(second);
        assert_eq!(load(), (6, [4, 1, 1]));
        first.done(6);
        drop(first);
        assert_eq!(load(), (0, [10, 2, 2]));
    }
}
