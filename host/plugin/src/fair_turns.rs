//! Fair queue for a few places: turns go to the owner that holds fewest, and among those to the one that has had least.
//!
//! A job holds a turn while it runs. Work in slices hands its turn on between them if an owner that has had less waits, and
//! waits itself, so that no owner waits behind the whole of another's work. Places that are held for long are kept for
//! others in part: an owner that holds some does not take the last.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::oneshot;

/// Idle owners that are remembered at most.
const IDLE_OWNERS_MAX: usize = 1024;
/// Owners from which on idle ones are looked for.
const FEW_OWNERS: usize = 64;
/// Part of the turns that an owner with as many leaves to others, where some are kept: one in so many.
const TURNS_KEPT: usize = 8;

/// Bounds of a queue.
#[derive(Debug, Clone, Copy)]
pub struct TurnBounds {
    /// Turns at once.
    pub turns: usize,
    /// Jobs that have begun and not ended, at most; those that wait between slices count.
    pub started: usize,
    /// Turns that are kept for owners that hold fewer.
    pub kept: usize,
    /// Count the time for which a turn was held as work done.
    pub timed: bool,
}

impl TurnBounds {
    /// Bounds of so many places, each held as long as its holder likes; the last are kept for others, one at least where
    /// there are two.
    pub fn places(count: usize) -> Self {
        Self {
            turns: count,
            started: usize::MAX,
            kept: match count {
                0 | 1 => 0,
                count => count.div_ceil(TURNS_KEPT),
            },
            timed: false,
        }
    }

    /// Bounds of so many instances. None is kept of fewer than eight.
    pub fn instances(count: usize) -> Self {
        Self {
            kept: count / TURNS_KEPT,
            timed: true,
            ..Self::places(count)
        }
    }
}

/// The queue.
pub struct FairTurns {
    state: Mutex<State>,
    started_max: usize,
    kept: usize,
    timed: bool,
}

struct State {
    free: usize,
    started: usize,
    /// Virtual time: what the owner that had had least, of those with anything to do, had had when a turn was last given.
    clock: u64,
    owners: HashMap<Arc<str>, Owner>,
}

#[derive(Default)]
struct Owner {
    /// Work done, and at least the clock of when the owner last had nothing to do.
    had: u64,
    /// Turns held.
    running: usize,
    /// Jobs that wait between slices.
    paused: VecDeque<oneshot::Sender<FairTurn>>,
    /// Jobs that have not begun.
    waiting: VecDeque<oneshot::Sender<FairTurn>>,
}

impl Owner {
    fn is_idle(&self) -> bool {
        self.running == 0 && self.paused.is_empty() && self.waiting.is_empty()
    }

    /// Rank among those that wait, lowest first.
    fn rank(&self) -> (usize, u64) {
        (self.running, self.had)
    }
}

/// The right to run, until it is dropped.
pub struct FairTurn {
    turns: Arc<FairTurns>,
    owner: Arc<str>,
    /// The turn counts as held; not so once it was handed on, or never reached its job.
    held: bool,
    /// When it was given, or work was last counted.
    since: Instant,
}

impl std::fmt::Debug for FairTurns {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("FairTurns")
    }
}

impl std::fmt::Debug for FairTurn {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_tuple("FairTurn")
            .field(&self.owner)
            .finish()
    }
}

impl FairTurns {
    /// A queue within these bounds, of one turn at least.
    pub fn new(bounds: TurnBounds) -> Arc<Self> {
        let count = bounds.turns.max(1);
        Arc::new(Self {
            state: Mutex::new(State {
                free: count,
                started: 0,
                clock: 0,
                owners: HashMap::new(),
            }),
            started_max: bounds.started,
            kept: bounds.kept.min(count - 1),
            timed: bounds.timed,
        })
    }

    /// Wait for a turn. `None` never happens while the queue lives.
    pub async fn take(self: &Arc<Self>, owner: &Arc<str>) -> Option<FairTurn> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.state();
            let waiting = &mut state.enter(owner).waiting;
            if waiting.len().is_power_of_two() {
                // Those who have gone.
                waiting.retain(|waiter| !waiter.is_closed());
            }
            waiting.push_back(sender);
            self.hand_out(&mut state);
        }
        receiver.await.ok()
    }

    /// A turn if one is free, and nobody waits for it.
    pub fn try_take(self: &Arc<Self>, owner: &Arc<str>) -> Option<FairTurn> {
        let mut state = self.state();
        let may_start = state.started < self.started_max;
        let free = state.free;
        let may_take = may_take(state.enter(owner), free, self.kept);
        if !may_start || !may_take || self.next(&state).is_some() {
            return None;
        }
        self.give(&mut state, owner, true);
        Some(FairTurn::of(self, owner))
    }

    /// Whether there is a turn that this owner may take.
    pub fn is_free(&self, owner: &Arc<str>) -> bool {
        let state = self.state();
        let nothing = Owner::default();
        let own = state.owners.get(owner).unwrap_or(&nothing);
        may_take(own, state.free, self.kept)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Give free turns to those who wait.
    fn hand_out(self: &Arc<Self>, state: &mut State) {
        while let Some(name) = self.next(state) {
            let Some(owner) = state.owners.get_mut(&name) else {
                return;
            };
            let paused = owner.paused.pop_front();
            let begins = paused.is_none();
            let Some(sender) = paused.or_else(|| owner.waiting.pop_front()) else {
                return;
            };
            match sender.send(FairTurn::of(self, &name)) {
                Ok(()) => self.give(state, &name, begins),
                // Whoever waited has gone.
                Err(mut turn) => turn.held = false,
            }
        }
    }

    /// Count a turn as given.
    fn give(&self, state: &mut State, name: &Arc<str>, begins: bool) {
        state.clock = state.clock.max(state.least());
        state.free -= 1;
        state.started += usize::from(begins);
        if let Some(owner) = state.owners.get_mut(name) {
            owner.running += 1;
        }
    }

    /// The owner whose turn is next, of those who wait and may take one.
    fn next(&self, state: &State) -> Option<Arc<str>> {
        if state.free == 0 {
            return None;
        }
        self.first(state, |owner| may_take(owner, state.free, self.kept))
    }

    /// The first in rank of those who wait and may go.
    fn first(&self, state: &State, may_go: impl Fn(&Owner) -> bool) -> Option<Arc<str>> {
        let may_start = state.started < self.started_max;
        let waits =
            |owner: &Owner| !owner.paused.is_empty() || (may_start && !owner.waiting.is_empty());
        let owners = state.owners.iter();
        let owners = owners.filter(|(_, owner)| waits(owner) && may_go(owner));
        let first = owners.min_by(|(name, one), (other_name, other)| {
            one.rank()
                .cmp(&other.rank())
                .then_with(|| name.cmp(other_name))
        });
        first.map(|(name, _)| Arc::clone(name))
    }
}

/// Whether an owner may take one of so many free turns, of which some are kept.
fn may_take(owner: &Owner, free: usize, kept: usize) -> bool {
    free > kept || (free > 0 && owner.running < kept)
}

impl State {
    /// An owner that has something to do from now on.
    fn enter(&mut self, name: &Arc<str>) -> &mut Owner {
        self.forget_idle();
        let clock = self.clock;
        let owner = self.owners.entry(Arc::clone(name)).or_default();
        owner.had = owner.had.max(clock);
        owner
    }

    /// Work done for the owner that has had least, of those with anything to do.
    fn least(&self) -> u64 {
        let busy = self.owners.values().filter(|owner| !owner.is_idle());
        busy.map(|owner| owner.had).min().unwrap_or(0)
    }

    fn forget_idle(&mut self) {
        if self.owners.len() < FEW_OWNERS {
            return;
        }
        let crowded = self.owners.len() > IDLE_OWNERS_MAX;
        let clock = self.clock;
        self.owners
            .retain(|_, owner| !owner.is_idle() || (owner.had > clock && !crowded));
    }
}

impl FairTurn {
    fn of(turns: &Arc<FairTurns>, owner: &Arc<str>) -> Self {
        Self {
            turns: Arc::clone(turns),
            owner: Arc::clone(owner),
            held: true,
            since: Instant::now(),
        }
    }

    /// Count the time since the turn was given as work done, in microseconds. Of a queue whose turns are counted so, all are.
    pub fn count_time(&mut self) {
        let took = u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.since = Instant::now();
        if let Some(own) = self.turns.state().owners.get_mut(&self.owner) {
            own.had = own.had.saturating_add(took);
        }
    }

    /// Count work that was done, and let owners that have had less go first. Blocks until it is this
    /// job's turn again.
    pub fn pause(&mut self, work: usize) {
        let receiver = {
            let turns = Arc::clone(&self.turns);
            let mut state = turns.state();
            let Some(own) = state.owners.get_mut(&self.owner) else {
                return;
            };
            own.had = own.had.saturating_add(work as u64);
            // As it would stand among those who wait.
            let rank = (own.running.saturating_sub(1), own.had);
            let other = turns
                .first(&state, |_| true)
                .filter(|other| *other != self.owner);
            let behind = other.and_then(|other| state.owners.get(&other));
            if behind.is_none_or(|other| other.rank() >= rank) {
                return;
            }
            let (sender, receiver) = oneshot::channel();
            if let Some(own) = state.owners.get_mut(&self.owner) {
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

impl Drop for FairTurn {
    fn drop(&mut self) {
        if !self.held {
            return;
        }
        if self.turns.timed {
            self.count_time();
        }
        let turns = Arc::clone(&self.turns);
        let mut state = turns.state();
        state.free += 1;
        state.started -= 1;
        if let Some(own) = state.owners.get_mut(&self.owner) {
            own.running -= 1;
        }
        turns.hand_out(&mut state);
    }
}

#[cfg(test)]
mod tests;
