//! A plugin's matcher as the engine's constraint: masks are computed on threads of their own while the
//! engine runs its forward pass, and wake the engine when they are ready.
//!
//! A mask is copied once, from the plugin's memory into a buffer that the worker, the constraint and the
//! sampler then share. Exactly one allowed token is recognised here and nowhere else: the worker goes on
//! behind it, and the engine commits it without a step of its own.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use mortise_engine::{Constraint, ConstraintError, MaskStep};
use mortise_plugin::{MatchStatus, MatchStep, PluginError};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc;

use crate::plugins::MatchTokens;

/// Advances that may wait for a matcher. The engine asks for a mask after each, so one is usual.
const QUEUED_ADVANCES: usize = 8;

/// Most forced tokens that a worker runs ahead of the engine.
const FORCED_MAX: usize = 32;

/// The threads that compute masks.
#[derive(Debug)]
pub(crate) struct MaskThreads {
    /// Taken when dropped: a runtime must not be dropped where blocking is forbidden.
    runtime: Option<Runtime>,
    handle: Handle,
    deadline: Duration,
}

impl MaskThreads {
    /// Start `threads` threads. A mask that takes longer than `deadline` fails its sequence.
    pub(crate) fn start(threads: usize, deadline: Duration) -> std::io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads.max(1))
            .thread_name("mask")
            .enable_all()
            .build()?;
        Ok(Self {
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
            deadline,
        })
    }

    /// A constraint that takes masks of `words` words from `matcher`, and a slot for the plugin's fault
    /// if it fails: the engine passes on texts only.
    pub(crate) fn constrain(
        &self,
        matcher: Box<dyn MatchTokens>,
        words: usize,
    ) -> (Box<dyn Constraint>, MatcherFault) {
        let (work, inbox) = mpsc::channel(QUEUED_ADVANCES);
        let results = Arc::new(Results::default());
        let fault = MatcherFault::default();
        let worker = Worker {
            results: Arc::clone(&results),
            fault: fault.clone(),
            words,
            deadline: self.deadline,
        };
        self.handle.spawn(worker.run(matcher, inbox));
        let constraint = Box::new(PluginConstraint {
            work,
            results,
            asked: 0,
            forced: Vec::new(),
            mask: Arc::default(),
            outcome: None,
        });
        (constraint, fault)
    }
}

impl Drop for MaskThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The fault that ended a matcher, once there is one.
#[derive(Debug, Clone, Default)]
pub(crate) struct MatcherFault(Arc<OnceLock<PluginError>>);

impl MatcherFault {
    pub(crate) fn get(&self) -> Option<&PluginError> {
        self.0.get()
    }
}

/// The latest outcome of a worker, shared with the engine's thread.
#[derive(Default)]
struct Results(Mutex<Slot>);

#[derive(Default)]
struct Slot {
    /// Advances that have been answered.
    answered: u64,
    outcome: Option<Outcome>,
    /// The worker has ended.
    closed: bool,
    /// Wakes the engine, if it found no outcome.
    waker: Option<Waker>,
}

/// The outcome of an advance.
struct Outcome {
    /// Tokens that must come first.
    forced: Vec<u32>,
    /// The mask behind them, or `None` if the text is complete there.
    then: Result<Option<Vec<u32>>, ConstraintError>,
}

impl Results {
    fn lock(&self) -> MutexGuard<'_, Slot> {
        // A slot is consistent after each statement, so a panic elsewhere does not break it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Change the slot, then wake the engine if it waits.
    fn update(&self, change: impl FnOnce(&mut Slot)) {
        let mut slot = self.lock();
        change(&mut slot);
        let waker = slot.waker.take();
        drop(slot);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

struct Work {
    tokens: Vec<u32>,
    /// The buffer of an earlier mask, to be overwritten.
    buffer: Vec<u32>,
}

struct Worker {
    results: Arc<Results>,
    fault: MatcherFault,
    words: usize,
    deadline: Duration,
}

impl Worker {
    async fn run(self, mut matcher: Box<dyn MatchTokens>, mut inbox: mpsc::Receiver<Work>) {
        while let Some(work) = inbox.recv().await {
            let mut forced = Vec::new();
            let then = self.follow(matcher.as_mut(), work, &mut forced);
            let then = match tokio::time::timeout(self.deadline, then).await {
                Ok(then) => then.map_err(|error| {
                    let message = error.to_string();
                    // A worker fails once, so the slot is empty.
                    let _ = self.fault.0.set(error);
                    ConstraintError { message }
                }),
                Err(_) => {
                    let limit = self.deadline.as_millis();
                    let message = format!("the grammar plugin gave no mask within {limit} ms");
                    Err(ConstraintError { message })
                }
            };
            let failed = then.is_err();
            self.results.update(|slot| {
                slot.answered += 1;
                slot.outcome = Some(Outcome { forced, then });
            });
            if failed {
                return;
            }
        }
    }

    /// Advance the matcher, also over forced tokens: they cost the engine no step of their own if it
    /// learns of all of them at once.
    async fn follow(
        &self,
        matcher: &mut dyn MatchTokens,
        work: Work,
        forced: &mut Vec<u32>,
    ) -> Result<Option<Vec<u32>>, PluginError> {
        let Work {
            mut tokens,
            mut buffer,
        } = work;
        loop {
            buffer.clear();
            buffer.resize(self.words, 0);
            let step = if tokens.is_empty() {
                MatchStep {
                    status: matcher.mask(&mut buffer).await?,
                    forced: Vec::new(),
                }
            } else {
                matcher.advance(&tokens, &mut buffer).await?
            };
            if step.status == MatchStatus::Finished {
                return Ok(None);
            }
            tokens = forced_tokens(step, &buffer);
            if tokens.is_empty() || forced.len() + tokens.len() > FORCED_MAX {
                return Ok(Some(buffer));
            }
            forced.extend(&tokens);
        }
    }
}

/// The tokens that must follow: those that the plugin names, or the only one that its mask allows. Where
/// the text may end, an end token is allowed too, and nothing is forced.
fn forced_tokens(step: MatchStep, mask: &[u32]) -> Vec<u32> {
    if step.status != MatchStatus::Active || !step.forced.is_empty() {
        return step.forced;
    }
    let mut bits = mask.iter().enumerate().filter(|(_, word)| **word != 0);
    match (bits.next(), bits.next()) {
        (Some((index, word)), None) if word.count_ones() == 1 => {
            vec![index as u32 * 32 + word.trailing_zeros()]
        }
        _ => Vec::new(),
    }
}

impl Drop for Worker {
    /// Tell the engine, however the worker ends, that no outcome will follow.
    fn drop(&mut self) {
        self.results.update(|slot| slot.closed = true);
    }
}

/// The engine's end.
struct PluginConstraint {
    work: mpsc::Sender<Work>,
    results: Arc<Results>,
    /// Advances so far.
    asked: u64,
    /// Forced tokens before the outcome.
    forced: Vec<u32>,
    mask: Arc<Vec<u32>>,
    /// The outcome of the last advance. The mask of `Allow` is in `mask`.
    outcome: Option<Result<Step, ConstraintError>>,
}

#[derive(Clone, Copy)]
enum Step {
    Allow,
    Finished,
}

impl PluginConstraint {
    /// Take the worker's outcome, or leave the waker to be called when there is one.
    fn receive(&mut self, waker: &Waker) {
        if self.outcome.is_some() {
            return;
        }
        let mut slot = self.results.lock();
        let received = if slot.answered == self.asked {
            slot.outcome.take()
        } else {
            None
        };
        // A failure ends the worker, whatever was asked after it.
        let received = match received {
            None if slot.closed => {
                let failed = slot.outcome.take().filter(|outcome| outcome.then.is_err());
                let message = "the grammar plugin's worker ended".to_owned();
                let ended = Outcome {
                    forced: Vec::new(),
                    then: Err(ConstraintError { message }),
                };
                Some(failed.unwrap_or(ended))
            }
            other => other,
        };
        let Some(Outcome { forced, then }) = received else {
            match &mut slot.waker {
                Some(known) => known.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
            return;
        };
        drop(slot);
        self.forced = forced;
        self.outcome = Some(then.map(|mask| match mask {
            Some(mask) => {
                self.mask = Arc::new(mask);
                Step::Allow
            }
            None => Step::Finished,
        }));
    }

    fn fail(&mut self, message: String) {
        self.outcome = Some(Err(ConstraintError { message }));
    }
}

impl Constraint for PluginConstraint {
    fn advance(&mut self, committed: &[u32]) {
        if !self.forced.is_empty() {
            // The worker has advanced over them already.
            if std::mem::take(&mut self.forced) != committed {
                self.fail("tokens were committed that were not forced".to_owned());
            }
            return;
        }
        if matches!(self.outcome, Some(Err(_))) {
            // A failed matcher stays failed.
            return;
        }
        self.outcome = None;
        self.asked += 1;
        let work = Work {
            tokens: committed.to_vec(),
            // The sampler has dropped its reference by now; if not, the worker takes a new buffer.
            buffer: Arc::try_unwrap(std::mem::take(&mut self.mask)).unwrap_or_default(),
        };
        match self.work.try_send(work) {
            // A closed inbox shows in the outcome.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
            Err(mpsc::error::TrySendError::Full(_)) => self.fail(format!(
                "the grammar plugin is {QUEUED_ADVANCES} steps behind the engine"
            )),
        }
    }

    fn poll(&mut self, waker: &Waker) -> Poll<Result<MaskStep<'_>, ConstraintError>> {
        self.receive(waker);
        let Some(outcome) = &self.outcome else {
            return Poll::Pending;
        };
        if !self.forced.is_empty() {
            return Poll::Ready(Ok(MaskStep::Forced(&self.forced)));
        }
        Poll::Ready(match outcome {
            Ok(Step::Allow) => Ok(MaskStep::Allow(&self.mask)),
            Ok(Step::Finished) => Ok(MaskStep::Finished),
            Err(error) => Err(error.clone()),
        })
    }
}

#[cfg(test)]
mod tests;
