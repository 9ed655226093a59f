//! A queue of texts before a model that computes batches of them. A batch has texts of all requests that wait, one of each
//! in turn.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use mortise_engine::EngineLoad;
use tokio::sync::{Semaphore, oneshot};

use crate::embedding_runtime::EmbedError;

/// Tokens that are computed together: enough to keep all threads busy, and few enough that what
/// waits behind them does not wait long.
const BATCH_TOKENS: usize = 4096;

/// A model that computes batches. A result does not depend on the others of its batch.
pub(crate) trait ComputeBatch: Send + Sync + 'static {
    /// A text, or texts that are computed as one.
    type Text: Clone + Send + 'static;
    /// Result of one.
    type Made: Send + 'static;

    /// Tokens of a text.
    fn tokens(text: &Self::Text) -> usize;

    /// One result for each text, in order. Blocks.
    ///
    /// # Errors
    /// With what to tell who asked.
    fn compute(&self, texts: &[Self::Text]) -> Result<Vec<Self::Made>, String>;
}

/// Results of a request.
type Results<M> = Result<Vec<<M as ComputeBatch>::Made>, EmbedError>;

/// The queue of a model.
pub(crate) struct TextQueue<M: ComputeBatch> {
    shared: Arc<Shared<M>>,
    /// Of the batch that is computed.
    turn: Arc<Semaphore>,
    /// Of the requests that wait, or are computed.
    places: Semaphore,
    max_queue: usize,
}

struct Shared<M: ComputeBatch> {
    model: M,
    waiting: Mutex<Waiting<M>>,
    counters: Counters,
}

/// Requests in the order of their turns.
struct Waiting<M: ComputeBatch> {
    turns: VecDeque<u64>,
    requests: HashMap<u64, Request<M>>,
    next: u64,
}

/// A request whose results are not all made.
struct Request<M: ComputeBatch> {
    texts: VecDeque<M::Text>,
    made: Vec<Option<M::Made>>,
    answer: oneshot::Sender<Results<M>>,
}

/// Load counters. They are independent of one another: no memory order is needed.
#[derive(Default)]
struct Counters {
    /// Tokens of texts that were taken on and are not computed yet.
    waiting_tokens: AtomicUsize,
    /// Tokens that were computed.
    done_tokens: AtomicU64,
    /// Batches that were computed.
    batches: AtomicU64,
    /// Time in which they were computed.
    busy_micros: AtomicU64,
    /// Requests that have ended, however they did.
    finished: AtomicU64,
}

/// A text of a batch.
struct Taken<M: ComputeBatch> {
    request: u64,
    index: usize,
    text: M::Text,
}

/// A request among those that wait. When it is dropped, nothing more will be made of its texts.
struct Place<'a, M: ComputeBatch> {
    shared: &'a Shared<M>,
    id: u64,
}

impl<M: ComputeBatch> Drop for Place<'_, M> {
    fn drop(&mut self) {
        let mut waiting = self.shared.lock();
        if let Some(request) = waiting.requests.remove(&self.id) {
            self.shared.forget(&request);
        }
        self.shared.counters.finished.fetch_add(1, Relaxed);
    }
}

impl<M: ComputeBatch> TextQueue<M> {
    /// A queue of at most so many requests.
    pub(crate) fn new(model: M, max_queue: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                model,
                waiting: Mutex::new(Waiting {
                    turns: VecDeque::new(),
                    requests: HashMap::new(),
                    next: 0,
                }),
                counters: Counters::default(),
            }),
            turn: Arc::new(Semaphore::new(1)),
            places: Semaphore::new(max_queue),
            max_queue,
        }
    }

    /// The model.
    pub(crate) fn model(&self) -> &M {
        &self.shared.model
    }

    /// One result for each text, in order. Dropping the future gives up what has not begun.
    pub(crate) async fn run(&self, texts: Vec<M::Text>) -> Result<Vec<M::Made>, EmbedError> {
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        let Ok(_held) = self.places.try_acquire() else {
            return Err(EmbedError::QueueFull {
                limit: self.max_queue,
            });
        };
        let (id, mut answer) = self.shared.push(texts);
        let _place = Place {
            shared: &*self.shared,
            id,
        };
        loop {
            // Whoever waits and has the turn has a batch computed, of which its own texts need not be.
            tokio::select! {
                biased;
                made = &mut answer => return made.unwrap_or(Err(EmbedError::Stopped)),
                turn = Arc::clone(&self.turn).acquire_owned() => {
                    let Ok(turn) = turn else {
                        return Err(EmbedError::Stopped);
                    };
                    let shared = Arc::clone(&self.shared);
                    tokio::task::spawn_blocking(move || {
                        shared.batch();
                        drop(turn);
                    });
                }
            }
        }
    }

    /// Counters and gauges of the queue.
    pub(crate) fn load(&self) -> EngineLoad {
        let waiting = self.max_queue - self.places.available_permits();
        let running = 1 - self.turn.available_permits().min(1);
        let counters = &self.shared.counters;
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

impl<M: ComputeBatch> Shared<M> {
    fn lock(&self) -> MutexGuard<'_, Waiting<M>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, texts: Vec<M::Text>) -> (u64, oneshot::Receiver<Results<M>>) {
        let (answer, receiver) = oneshot::channel();
        let tokens = texts.iter().map(M::tokens).sum();
        self.counters.waiting_tokens.fetch_add(tokens, Relaxed);
        let mut waiting = self.lock();
        let id = waiting.next;
        waiting.next += 1;
        waiting.turns.push_back(id);
        let request = Request {
            made: texts.iter().map(|_| None).collect(),
            texts: texts.into(),
            answer,
        };
        waiting.requests.insert(id, request);
        (id, receiver)
    }

    /// Count the texts of a request as no longer waiting.
    fn forget(&self, request: &Request<M>) {
        let tokens = request.texts.iter().map(M::tokens).sum();
        self.counters.waiting_tokens.fetch_sub(tokens, Relaxed);
    }

    /// Compute a batch, and answer the requests that have all of their results. Blocks.
    fn batch(&self) {
        let batch = self.lock().take();
        if batch.is_empty() {
            return;
        }
        let texts: Vec<M::Text> = batch.iter().map(|taken| taken.text.clone()).collect();
        let tokens: usize = texts.iter().map(M::tokens).sum();
        let begun = Instant::now();
        let made = self.compute(&texts);
        let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        let counters = &self.counters;
        counters.busy_micros.fetch_add(micros, Relaxed);
        counters.waiting_tokens.fetch_sub(tokens, Relaxed);
        counters.done_tokens.fetch_add(tokens as u64, Relaxed);
        counters.batches.fetch_add(1, Relaxed);
        match made {
            Ok(made) => self.deliver(batch, made),
            // A failure is that of one request: each is computed alone.
            Err(_) => self.apart(batch),
        }
    }

    fn apart(&self, batch: Vec<Taken<M>>) {
        let mut requests: Vec<(u64, Vec<Taken<M>>)> = Vec::new();
        for taken in batch {
            match requests.iter_mut().find(|(id, _)| *id == taken.request) {
                Some((_, own)) => own.push(taken),
                None => requests.push((taken.request, vec![taken])),
            }
        }
        for (id, own) in requests {
            let texts: Vec<M::Text> = own.iter().map(|taken| taken.text.clone()).collect();
            match self.compute(&texts) {
                Ok(made) => self.deliver(own, made),
                Err(message) => {
                    let failed = self.lock().requests.remove(&id);
                    if let Some(request) = failed {
                        self.forget(&request);
                        // Whoever asked may have gone.
                        let _ = request.answer.send(Err(EmbedError::Failed(message)));
                    }
                }
            }
        }
    }

    fn compute(&self, texts: &[M::Text]) -> Result<Vec<M::Made>, String> {
        let run = AssertUnwindSafe(|| self.model.compute(texts));
        let made = catch_unwind(run).map_err(|_| "the model broke off".to_owned())??;
        match made.len() == texts.len() {
            true => Ok(made),
            false => Err(format!(
                "the model made {} results of {} texts",
                made.len(),
                texts.len()
            )),
        }
    }

    fn deliver(&self, batch: Vec<Taken<M>>, made: Vec<M::Made>) {
        let mut waiting = self.lock();
        for (taken, made) in batch.into_iter().zip(made) {
            let Some(request) = waiting.requests.get_mut(&taken.request) else {
                continue;
            };
            if let Some(place) = request.made.get_mut(taken.index) {
                *place = Some(made);
            }
            if request.made.iter().all(Option::is_some)
                && let Some(request) = waiting.requests.remove(&taken.request)
            {
                let all = request.made.into_iter().flatten().collect();
                let _ = request.answer.send(Ok(all));
            }
        }
    }
}

impl<M: ComputeBatch> Waiting<M> {
    /// Texts for a batch, one of each request in turn. A text that is longer than a batch is alone.
    fn take(&mut self) -> Vec<Taken<M>> {
        let (mut batch, mut tokens) = (Vec::new(), 0);
        while let Some(id) = self.turns.front().copied() {
            let Some(request) = self.requests.get_mut(&id) else {
                self.turns.pop_front();
                continue;
            };
            let Some(next) = request.texts.front().map(M::tokens) else {
                self.turns.pop_front();
                continue;
            };
            tokens += next;
            if tokens > BATCH_TOKENS && !batch.is_empty() {
                break;
            }
            self.turns.pop_front();
            let index = request.made.len() - request.texts.len();
            if let Some(text) = request.texts.pop_front() {
                batch.push(Taken {
                    request: id,
                    index,
                    text,
                });
            }
            if !request.texts.is_empty() {
                self.turns.push_back(id);
            }
        }
        batch
    }
}

#[cfg(test)]
mod tests;
