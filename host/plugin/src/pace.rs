//! How fast guests may run that take long. Together they get a share of the processors and no more, so
//! that a guest that loops slows nobody else's answers down. Calls that end soon never wait.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Epochs after which a call counts as long. The default plugins' calls take microseconds; compiling a
/// large schema takes this.
pub(crate) const LONG_CALL_EPOCHS: u64 = 4;

/// Epochs after which a long call changes to the next lane. A schema takes tens of milliseconds to
/// compile, and a loop has no end.
const SLOW_CALL_EPOCHS: u64 = 32;

/// Lanes of long calls. All calls of a lane together get one over this of the processors, so that
/// those of a plugin that misbehaves wait for each other and not ahead of those of a good one.
const LANES: [u32; 4] = [8, 16, 32, 64];

/// The longest slice that is charged. A guest that was itself kept from running did not run.
const MAX_CHARGE: Duration = Duration::from_millis(5);

/// How long a breakdown is remembered.
const MEMORY: Duration = Duration::from_secs(10);

/// How a plugin has behaved of late: it may go on breaking down, however often, and each time takes a
/// moment before it counts as long.
#[derive(Debug, Default)]
pub(crate) struct Conduct {
    /// The latest breakdowns; as many as there are lanes to change to.
    broke_at: Mutex<[Option<Instant>; LANES.len() - 1]>,
}

impl Conduct {
    /// A call broke down.
    pub(crate) fn note(&self, now: Instant) {
        let mut broke_at = self.broke_at.lock().unwrap_or_else(PoisonError::into_inner);
        broke_at.rotate_right(1);
        broke_at[0] = Some(now);
    }

    /// How many of the latest calls that broke down are still remembered.
    pub(crate) fn breakdowns(&self, now: Instant) -> usize {
        let broke_at = self.broke_at.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = |at: &&Instant| now.saturating_duration_since(**at) < MEMORY;
        broke_at.iter().flatten().filter(recent).count()
    }
}

/// Tells how many requests are being answered.
type Requests = Box<dyn Fn() -> usize + Send + Sync>;

/// The turns of long calls, over all plugins of a host.
pub(crate) struct Pace {
    processors: u32,
    /// Instances that serve a call, a session or a matcher now.
    in_use: AtomicUsize,
    requests: OnceLock<Requests>,
    /// For each lane, when its share is free again, if nobody else takes it.
    free_at: [Mutex<Instant>; LANES.len()],
}

impl Pace {
    pub(crate) fn new() -> Arc<Self> {
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Arc::new(Self::of(u32::try_from(processors).unwrap_or(u32::MAX)))
    }

    fn of(processors: u32) -> Self {
        let now = Instant::now();
        Self {
            processors,
            in_use: AtomicUsize::new(0),
            requests: OnceLock::new(),
            free_at: std::array::from_fn(|_| Mutex::new(now)),
        }
    }

    /// Learn where to ask how many requests are being answered; only the first time counts.
    pub(crate) fn count_requests(&self, requests: impl Fn() -> usize + Send + Sync + 'static) {
        let _ = self.requests.set(Box::new(requests));
    }

    /// Count an instance as in use until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> InUse {
        self.in_use.fetch_add(1, Ordering::Relaxed);
        InUse(Arc::clone(self))
    }

    /// Charge a slice of a call that has run for so many epochs, of a plugin that broke down so often
    /// lately, and say until when it must rest. `None` while nobody else is served: then nobody is
    /// slowed.
    ///
    /// Slices of a lane queue one behind the other, each as long as the share takes to serve it; hence
    /// calls take turns, and all of them together stay below the share.
    pub(crate) fn rest_until(
        &self,
        now: Instant,
        ran: Duration,
        epochs: u64,
        breakdowns: usize,
    ) -> Option<Instant> {
        let requests = self.requests.get().map_or(0, |requests| requests());
        if requests.max(self.in_use.load(Ordering::Relaxed)) <= 1 {
            return None;
        }
        let lane = (usize::from(epochs >= SLOW_CALL_EPOCHS) + breakdowns).min(LANES.len() - 1);
        let cost = ran.min(MAX_CHARGE) * LANES[lane] / self.processors;
        let free_at = self.free_at[lane].lock();
        let mut free_at = free_at.unwrap_or_else(PoisonError::into_inner);
        *free_at = (*free_at).max(now) + cost;
        Some(*free_at)
    }
}

/// An instance in use.
pub(crate) struct InUse(Arc<Pace>);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.in_use.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: Duration = Duration::from_millis(1);

    #[test]
    fn long_calls_together_get_an_eighth_of_the_processors_and_less_later() {
        for (processors, pause_us) in [(1, 8000), (2, 4000), (16, 500)] {
            let pace = Arc::new(Pace::of(processors));
            let _users = [pace.enter(), pace.enter(), pace.enter()];
            let now = Instant::now() + Duration::from_secs(1);
            let pause = Duration::from_micros(pause_us);
            for turn in 1..=100 {
                assert_eq!(pace.rest_until(now, SLICE, 5, 0), Some(now + pause * turn));
            }
            // Slow ones, and those of plugins that break down, do not queue with the others.
            let lanes = [(500, 0, 2), (5, 2, 4), (500, 2, 8), (5, 3, 8), (500, 3, 8)];
            let mut turns = [0; 9];
            for (epochs, breakdowns, times) in lanes {
                turns[times] += 1;
                let until = now + pause * (times as u32) * turns[times];
                assert_eq!(pace.rest_until(now, SLICE, epochs, breakdowns), Some(until));
            }
        }
    }

    #[test]
    fn time_in_which_nobody_ran_is_not_saved_up_or_owed() {
        let pace = Arc::new(Pace::of(8));
        let _users = [pace.enter(), pace.enter()];
        let later = Instant::now() + Duration::from_secs(60);
        assert_eq!(pace.rest_until(later, SLICE, 5, 0), Some(later + SLICE));
        let suspended = Duration::from_secs(3600);
        assert_eq!(
            pace.rest_until(later, suspended, 5, 0),
            Some(later + SLICE + MAX_CHARGE)
        );
    }

    #[test]
    fn who_is_alone_does_not_rest() {
        let pace = Arc::new(Pace::of(2));
        let rests = || pace.rest_until(Instant::now(), SLICE, 5, 0).is_some();
        let first = pace.enter();
        assert!(!rests());
        let second = pace.enter();
        assert!(rests());
        drop(second);
        assert!(!rests());
        // Those who are served without a plugin count too.
        let requests = Arc::new(AtomicUsize::new(1));
        let counted = Arc::clone(&requests);
        pace.count_requests(move || counted.load(Ordering::Relaxed));
        assert!(!rests());
        requests.store(2, Ordering::Relaxed);
        assert!(rests());
        drop(first);
    }

    #[test]
    fn breakdowns_are_remembered_for_a_while() {
        let (conduct, now) = (Conduct::default(), Instant::now());
        assert_eq!(conduct.breakdowns(now), 0);
        for second in 0..5 {
            conduct.note(now + Duration::from_secs(second));
        }
        let at = |second| conduct.breakdowns(now + Duration::from_secs(second));
        assert_eq!([at(4), at(12), at(13), at(14)], [3, 2, 1, 0]);
    }
}
