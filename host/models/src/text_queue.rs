//! A queue of texts before a model that computes batches of them. Tenants share it by weight, as they share an engine, and keys
//! what their tenant gets; the requests of a key have one text each in turn.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use mortise_engine::{EngineLoad, FairQueue, Queue, QueueBounds, Share, VirtualTime};
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
    places: Queue,
}

struct Shared<M: ComputeBatch> {
    model: M,
    waiting: Mutex<Waiting<M>>,
    counters: Counters,
}

/// Requests by whose turn it is.
struct Waiting<M: ComputeBatch> {
    fair: FairQueue,
    /// Requests with texts that are not computed yet, of each key of each tenant, in the order of their turns.
    turns: BTreeMap<Account, VecDeque<u64>>,
    requests: HashMap<u64, Request<M>>,
    next: u64,
}

/// A tenant, and a key within it.
type Account = (Arc<str>, Arc<str>);

/// A request whose results are not all made.
struct Request<M: ComputeBatch> {
    share: Share,
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
        if let Some(request) = waiting.remove(self.id) {
            self.shared.forget(&request);
        }
        self.shared.counters.finished.fetch_add(1, Relaxed);
    }
}

impl<M: ComputeBatch> TextQueue<M> {
    /// A queue of so many places for requests.
    pub(crate) fn new(model: M, places: QueueBounds) -> Self {
        Self {
            shared: Arc::new(Shared {
                model,
                waiting: Mutex::new(Waiting {
                    fair: FairQueue::default(),
                    turns: BTreeMap::new(),
                    requests: HashMap::new(),
                    next: 0,
                }),
                counters: Counters::default(),
            }),
            turn: Arc::new(Semaphore::new(1)),
            places: Queue::new(places),
        }
    }

    /// The model.
    pub(crate) fn model(&self) -> &M {
        &self.shared.model
    }

    /// One result for each text, in order. Dropping the future gives up what has not begun.
    pub(crate) async fn run(
        &self,
        texts: Vec<M::Text>,
        share: &Share,
    ) -> Result<Vec<M::Made>, EmbedError> {
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        let _held = self.places.enter(&share.tenant, 0)?;
        let (id, mut answer) = self.shared.push(texts, share);
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
        let (waiting, _) = self.places.waiting();
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

    fn push(&self, texts: Vec<M::Text>, share: &Share) -> (u64, oneshot::Receiver<Results<M>>) {
        let (answer, receiver) = oneshot::channel();
        let tokens = texts.iter().map(M::tokens).sum();
        self.counters.waiting_tokens.fetch_add(tokens, Relaxed);
        let mut waiting = self.lock();
        let id = waiting.next;
        waiting.next += 1;
        waiting.fair.enter(share);
        waiting
            .turns
            .entry(account(share))
            .or_default()
            .push_back(id);
        let request = Request {
            share: share.clone(),
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
                    let failed = self.lock().remove(id);
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
                && let Some(request) = waiting.remove(taken.request)
            {
                let all = request.made.into_iter().flatten().collect();
                let _ = request.answer.send(Ok(all));
            }
        }
    }
}

fn account(share: &Share) -> Account {
    (Arc::clone(&share.tenant), Arc::clone(&share.key))
}

impl<M: ComputeBatch> Waiting<M> {
    /// A request that ends.
    fn remove(&mut self, id: u64) -> Option<Request<M>> {
        let request = self.requests.remove(&id)?;
        self.fair.leave(&request.share);
        Some(request)
    }

    /// Texts for a batch, each of the account that has had least. A text that is longer than a batch is alone.
    fn take(&mut self) -> Vec<Taken<M>> {
        let (mut batch, mut tokens) = (Vec::new(), 0);
        // Lowest first. Virtual times only grow, so that one that is stale is found at the head and put back.
        let mut order: BinaryHeap<Reverse<(VirtualTime, Account)>> = BinaryHeap::new();
        let accounts: Vec<Account> = self.turns.keys().cloned().collect();
        for account in accounts {
            order.extend(self.time_of(&account).map(|time| Reverse((time, account))));
        }
        while let Some(Reverse((time, account))) = order.pop() {
            let Some(now) = self.time_of(&account) else {
                continue;
            };
            if now > time {
                order.push(Reverse((now, account)));
                continue;
            }
            let Some((id, next)) = self.next_of(&account) else {
                continue;
            };
            tokens += next;
            if tokens > BATCH_TOKENS && !batch.is_empty() {
                break;
            }
            batch.extend(self.take_one(&account, id));
            order.extend(self.time_of(&account).map(|time| Reverse((time, account))));
        }
        batch
    }

    /// Virtual time of an account with texts that wait; `None` of others, which are forgotten.
    fn time_of(&mut self, account: &Account) -> Option<VirtualTime> {
        let Some((id, _)) = self.next_of(account) else {
            self.turns.remove(account);
            return None;
        };
        let request = self.requests.get(&id)?;
        Some(self.fair.virtual_time(&request.share))
    }

    /// The request of an account whose turn is next, and the tokens of its next text.
    fn next_of(&mut self, account: &Account) -> Option<(u64, usize)> {
        let turns = self.turns.get_mut(account)?;
        while let Some(id) = turns.front().copied() {
            let request = self.requests.get(&id);
            match request.and_then(|request| request.texts.front()) {
                Some(text) => return Some((id, M::tokens(text))),
                None => turns.pop_front(),
            };
        }
        None
    }

    /// Take the next text of a request, whose account then has had it.
    fn take_one(&mut self, account: &Account, id: u64) -> Option<Taken<M>> {
        let turns = self.turns.get_mut(account)?;
        let request = self.requests.get_mut(&id)?;
        turns.pop_front();
        let index = request.made.len() - request.texts.len();
        let text = request.texts.pop_front()?;
        if !request.texts.is_empty() {
            turns.push_back(id);
        }
        self.fair.charge(&request.share, M::tokens(&text));
        Some(Taken {
            request: id,
            index,
            text,
        })
    }
}

#[cfg(test)]
mod tests;
