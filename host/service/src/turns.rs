//! Fair queue for work on a few threads: turns go to the tenant that has had least, slice by slice.
//!
//! A job holds a turn while it runs. Between slices it hands the turn on if a tenant that has had less
//! waits, and waits itself, so that no tenant waits behind the whole of another's work.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Jobs that have begun and not ended, at most: each has a thread, even while it waits between slices.
const STARTED_MAX: usize = 64;
/// Tenants remembered at most when they have nothing to do.
const IDLE_TENANTS_MAX: usize = 1024;

/// The queue.
pub(crate) struct EncodingTurns {
    state: Mutex<State>,
}

struct State {
    free: usize,
    started: usize,
    /// Virtual time: what the tenant whose turn came last had had by then.
    clock: u64,
    tenants: HashMap<Arc<str>, Tenant>,
}

#[derive(Default)]
struct Tenant {
    /// Work done, and at least the clock of when the tenant last had nothing to do.
    had: u64,
    /// Turns held.
    running: usize,
    /// Jobs that wait between slices.
    paused: VecDeque<oneshot::Sender<EncodingTurn>>,
    /// Jobs that have not begun.
    waiting: VecDeque<oneshot::Sender<EncodingTurn>>,
}

impl Tenant {
    fn is_idle(&self) -> bool {
        self.running == 0 && self.paused.is_empty() && self.waiting.is_empty()
    }
}

/// The right to run, until it is dropped.
pub(crate) struct EncodingTurn {
    turns: Arc<EncodingTurns>,
    tenant: Arc<str>,
    /// The turn counts as held; not so once it was handed on, or never reached its job.
    held: bool,
}

impl EncodingTurns {
    /// A queue with so many turns at a time.
    pub(crate) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                free: count.max(1),
                started: 0,
                clock: 0,
                tenants: HashMap::new(),
            }),
        })
    }

    /// Wait for a turn. `None` never happens while the queue lives.
    pub(crate) async fn take(self: &Arc<Self>, tenant: &Arc<str>) -> Option<EncodingTurn> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.state();
            state.forget_idle();
            let clock = state.clock;
            let entry = state.tenants.entry(Arc::clone(tenant)).or_default();
            entry.had = entry.had.max(clock);
            entry.waiting.push_back(sender);
            self.hand_out(&mut state);
        }
        receiver.await.ok()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Give free turns to those who wait.
    fn hand_out(self: &Arc<Self>, state: &mut State) {
        while state.free > 0 {
            let may_start = state.started < STARTED_MAX;
            let Some(name) = state.next(may_start) else {
                return;
            };
            let Some(tenant) = state.tenants.get_mut(&name) else {
                return;
            };
            let paused = tenant.paused.pop_front();
            let begins = paused.is_none();
            let Some(sender) = paused.or_else(|| tenant.waiting.pop_front()) else {
                return;
            };
            let turn = EncodingTurn {
                turns: Arc::clone(self),
                tenant: Arc::clone(&name),
                held: true,
            };
            let had = tenant.had;
            match sender.send(turn) {
                Ok(()) => {
                    tenant.running += 1;
                    state.free -= 1;
                    state.started += usize::from(begins);
                    state.clock = state.clock.max(had);
                }
                // Whoever waited has gone.
                Err(mut turn) => turn.held = false,
            }
        }
    }
}

impl State {
    /// The tenant that has had least, of those who wait.
    fn next(&self, may_start: bool) -> Option<Arc<str>> {
        let waits = |tenant: &Tenant| {
            !tenant.paused.is_empty() || (may_start && !tenant.waiting.is_empty())
        };
        let tenants = self.tenants.iter().filter(|(_, tenant)| waits(tenant));
        let least = tenants.min_by(|(name, one), (other_name, other)| {
            one.had.cmp(&other.had).then_with(|| name.cmp(other_name))
        });
        least.map(|(name, _)| Arc::clone(name))
    }

    fn forget_idle(&mut self) {
        let crowded = self.tenants.len() > IDLE_TENANTS_MAX;
        let clock = self.clock;
        self.tenants
            .retain(|_, tenant| !tenant.is_idle() || (tenant.had > clock && !crowded));
    }
}

impl EncodingTurn {
    /// Count work that was done, and let tenants that have had less go first. Blocks until it is this
    /// job's turn again.
    pub(crate) fn pause(&mut self, work: usize) {
        let receiver = {
            let turns = Arc::clone(&self.turns);
            let mut state = turns.state();
            let may_start = state.started < STARTED_MAX;
            let Some(own) = state.tenants.get_mut(&self.tenant) else {
                return;
            };
            own.had = own.had.saturating_add(work as u64);
            let had = own.had;
            let other = state.next(may_start).filter(|other| *other != self.tenant);
            let behind = other.and_then(|other| state.tenants.get(&other));
            if behind.is_none_or(|other| other.had >= had) {
                return;
            }
            let (sender, receiver) = oneshot::channel();
            if let Some(own) = state.tenants.get_mut(&self.tenant) {
                own.running -= 1;
                own.paused.push_back(sender);
            }
            state.free += 1;
            self.held = false;
            turns.hand_out(&mut state);
            receiver
        };
        if let Ok(mut turn) = receiver.blocking_recv() {
            // This one goes on being the job's.
            turn.held = false;
            self.held = true;
        }
    }
}

impl Drop for EncodingTurn {
    fn drop(&mut self) {
        if !self.held {
            return;
        }
        let turns = Arc::clone(&self.turns);
        let mut state = turns.state();
        state.free += 1;
        state.started -= 1;
        if let Some(own) = state.tenants.get_mut(&self.tenant) {
            own.running -= 1;
        }
        turns.hand_out(&mut state);
    }
}

#[cfg(test)]
mod tests;
