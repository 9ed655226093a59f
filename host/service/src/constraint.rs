//! A plugin's matcher as the engine's constraint: masks are computed on threads of their own
//! while the engine runs its forward pass.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use mortise_engine::{Constraint, ConstraintError, MaskStep};
use mortise_plugin::{MatchStatus, MatchStep, PluginError};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc;

use crate::plugins::MatchTokens;

/// Advances that may wait for a matcher. The engine asks for a mask after each, so one is usual.
const QUEUED_ADVANCES: usize = 8;

/// Tokens without a choice that a worker runs ahead of the engine.
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
    /// Start `threads` threads. A mask that is not there after `deadline` fails its sequence.
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

    /// A constraint that asks `matcher` for masks of `words` words, and where to read the fault of the
    /// plugin if it fails: the engine passes on texts only.
    pub(crate) fn constrain(
        &self,
        matcher: Box<dyn MatchTokens>,
        words: usize,
    ) -> (Box<dyn Constraint>, MatcherFault) {
        let (work, inbox) = mpsc::channel(QUEUED_ADVANCES);
        let board = Arc::new(Board::default());
        let fault = MatcherFault::default();
        let worker = Worker {
            board: Arc::clone(&board),
            fault: fault.clone(),
            words,
        };
        self.handle.spawn(worker.run(matcher, inbox));
        let constraint = Box::new(PluginConstraint {
            work,
            board,
            asked: 0,
            forced: Vec::new(),
            mask: Vec::new(),
            outcome: None,
            deadline: self.deadline,
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

/// Where a worker leaves its latest outcome for the engine.
#[derive(Default)]
struct Board {
    slot: Mutex<Slot>,
    changed: Condvar,
}

#[derive(Default)]
struct Slot {
    /// Advances that have been answered.
    answered: u64,
    outcome: Option<Outcome>,
    /// The worker has ended.
    closed: bool,
}

/// What may follow.
struct Outcome {
    /// First exactly these tokens.
    forced: Vec<u32>,
    /// Then what a mask allows, nothing if the text is complete, or nobody knows.
    then: Result<Option<Vec<u32>>, ConstraintError>,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, Slot> {
        // A slot is whole after each statement, so a panic elsewhere leaves nothing half done.
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Work {
    tokens: Vec<u32>,
    /// The buffer of the mask before the last, to be written anew.
    buffer: Vec<u32>,
}

struct Worker {
    board: Arc<Board>,
    fault: MatcherFault,
    words: usize,
}

impl Worker {
    async fn run(self, mut matcher: Box<dyn MatchTokens>, mut inbox: mpsc::Receiver<Work>) {
        while let Some(work) = inbox.recv().await {
            let mut forced = Vec::new();
            let then = self.follow(matcher.as_mut(), work, &mut forced).await;
            let then = then.map_err(|error| {
                let message = error.to_string();
                // A worker fails once, so nothing stands there yet.
                let _ = self.fault.0.set(error);
                ConstraintError { message }
            });
            let failed = then.is_err();
            let mut slot = self.board.lock();
            slot.answered += 1;
            slot.outcome = Some(Outcome { forced, then });
            drop(slot);
            self.board.changed.notify_all();
            if failed {
                return;
            }
        }
    }

    /// Advance the matcher, and go on over tokens about which there is no choice: they cost the
    /// engine no step of their own if it learns of all of them at once.
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
            tokens = must_follow(step, &buffer);
            if tokens.is_empty() || forced.len() + tokens.len() > FORCED_MAX {
                return Ok(Some(buffer));
            }
            forced.extend(&tokens);
        }
    }
}

/// Tokens about which there is no choice. Where the text may end, an end token is one.
fn must_follow(step: MatchStep, mask: &[u32]) -> Vec<u32> {
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
    /// However the worker ends, the engine must not wait for it.
    fn drop(&mut self) {
        self.board.lock().closed = true;
        self.board.changed.notify_all();
    }
}

/// The engine's end.
struct PluginConstraint {
    work: mpsc::Sender<Work>,
    board: Arc<Board>,
    /// Advances so far.
    asked: u64,
    /// Tokens that come before the outcome.
    forced: Vec<u32>,
    mask: Vec<u32>,
    /// The outcome of the last advance: the mask is in `mask`.
    outcome: Option<Result<Step, ConstraintError>>,
    deadline: Duration,
}

#[derive(Clone, Copy)]
enum Step {
    Allow,
    Finished,
}

impl PluginConstraint {
    fn take(&mut self) {
        if self.outcome.is_some() {
            return;
        }
        let mut slot = self.board.lock();
        let taken = if slot.answered == self.asked {
            slot.outcome.take()
        } else {
            None
        };
        // A failure ends the worker, whatever was asked after it.
        let taken = match taken {
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
        drop(slot);
        let Some(Outcome { forced, then }) = taken else {
            return;
        };
        self.forced = forced;
        self.outcome = Some(then.map(|mask| match mask {
            Some(mask) => {
                self.mask = mask;
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
            // The worker is there already.
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
            buffer: std::mem::take(&mut self.mask),
        };
        match self.work.try_send(work) {
            // A closed inbox shows in the outcome.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
            Err(mpsc::error::TrySendError::Full(_)) => self.fail(format!(
                "the grammar plugin is {QUEUED_ADVANCES} steps behind the engine"
            )),
        }
    }

    fn poll(&mut self) -> Option<Result<MaskStep<'_>, ConstraintError>> {
        self.take();
        let outcome = self.outcome.as_ref()?;
        if !self.forced.is_empty() {
            return Some(Ok(MaskStep::Forced(&self.forced)));
        }
        match outcome {
            Ok(Step::Allow) => Some(Ok(MaskStep::Allow(&self.mask))),
            Ok(Step::Finished) => Some(Ok(MaskStep::Finished)),
            Err(error) => Some(Err(error.clone())),
        }
    }

    fn wait(&mut self) {
        if self.outcome.is_some() {
            return;
        }
        let waiting = |slot: &mut Slot| slot.answered != self.asked && !slot.closed;
        let guard = self.board.lock();
        let (guard, timeout) = self
            .board
            .changed
            .wait_timeout_while(guard, self.deadline, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        drop(guard);
        if timeout.timed_out() {
            let limit = self.deadline.as_millis();
            self.fail(format!("the grammar plugin gave no mask within {limit} ms"));
        }
    }
}

#[cfg(test)]
mod tests;
