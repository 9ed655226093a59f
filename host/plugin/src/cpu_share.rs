//! CPU share of long-running guests. All long calls together get a fixed share of the processors, so that
//! a guest that loops does not raise the latency of other requests. Short calls never wait.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Epochs after which a call counts as long. The default plugins' calls take microseconds; compiling a
/// large schema takes this long.
pub(crate) const LONG_CALL_EPOCHS: u64 = 4;

/// Epochs after which a long call moves to the next tier. Compiling a schema takes tens of milliseconds,
/// and a loop never ends.
const SLOW_CALL_EPOCHS: u64 = 32;

/// Tiers of long calls, as divisors of the processors: all calls of a tier together get one over its
/// divisor. Calls of a failing plugin queue in a higher tier, behind each other and not ahead of the calls
/// of a healthy one.
const TIERS: [u32; 4] = [8, 16, 32, 64];

/// Longest slice that is charged. A slice that took longer was descheduled by the operating system.
const MAX_CHARGE: Duration = Duration::from_millis(5);

/// Time for which a fault counts.
const FAULT_MEMORY: Duration = Duration::from_secs(10);

/// Fault history of one binding: each recent fault moves its long calls up by one tier.
#[derive(Debug, Default)]
pub(crate) struct FaultHistory {
    /// Times of the latest faults; as many as there are tiers to move up to.
    faulted_at: Mutex<[Option<Instant>; TIERS.len() - 1]>,
}

impl FaultHistory {
    /// Record a fault.
    pub(crate) fn note(&self, now: Instant) {
        let mut faulted_at = self.lock();
        faulted_at.rotate_right(1);
        faulted_at[0] = Some(now);
    }

    /// Number of recent faults, at most one for each tier.
    pub(crate) fn recent(&self, now: Instant) -> usize {
        let recent = |at: &&Instant| now.saturating_duration_since(**at) < FAULT_MEMORY;
        self.lock().iter().flatten().filter(recent).count()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, [Option<Instant>; TIERS.len() - 1]> {
        self.faulted_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Source of the number of requests being answered.
type Requests = Box<dyn Fn() -> usize + Send + Sync>;

/// CPU share of long calls, over all plugins of a host.
pub(crate) struct CpuShare {
    processors: u32,
    /// Instances that serve a call, a session or a matcher now.
    in_use: AtomicUsize,
    requests: OnceLock<Requests>,
    /// Virtual time of each tier: when its share is free again, if no further slice is charged.
    free_at: [Mutex<Instant>; TIERS.len()],
}

impl CpuShare {
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

    /// Set the source of the number of requests being answered; only the first call counts.
    pub(crate) fn count_requests(&self, requests: impl Fn() -> usize + Send + Sync + 'static) {
        let _ = self.requests.set(Box::new(requests));
    }

    /// Threads that may compile a plugin: half of the processors beside a server's requests, and as many as
    /// the compiler likes (`None`) where nobody counts any.
    pub(crate) fn compiling_threads(&self) -> Option<usize> {
        let half = usize::try_from(self.processors / 2).unwrap_or(1);
        self.requests.get().map(|_| half.max(1))
    }

    /// Count an instance as in use until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> InUse {
        self.in_use.fetch_add(1, Ordering::Relaxed);
        InUse(Arc::clone(self))
    }

    /// Charge a slice of a call that has run for `epochs`, of a plugin with `faults` recent faults, and
    /// return the time until which the call must sleep. `None` while no other request is served.
    ///
    /// Slices of a tier queue one behind the other, each for as long as the share takes to serve it: calls
    /// take turns, and all of them together stay below the share.
    pub(crate) fn rest_until(
        &self,
        now: Instant,
        ran: Duration,
        epochs: u64,
        faults: usize,
    ) -> Option<Instant> {
        let requests = self.requests.get().map_or(0, |requests| requests());
        if requests.max(self.in_use.load(Ordering::Relaxed)) <= 1 {
            return None;
        }
        let tier = (usize::from(epochs >= SLOW_CALL_EPOCHS) + faults).min(TIERS.len() - 1);
        let cost = ran.min(MAX_CHARGE) * TIERS[tier] / self.processors;
        let free_at = self.free_at[tier].lock();
        let mut free_at = free_at.unwrap_or_else(PoisonError::into_inner);
        *free_at = (*free_at).max(now) + cost;
        Some(*free_at)
    }
}

/// Guard that counts an instance as in use.
pub(crate) struct InUse(Arc<CpuShare>);

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
            let share = Arc::new(CpuShare::of(processors));
            let _users = [share.enter(), share.enter(), share.enter()];
            let now = Instant::now() + Duration::from_secs(1);
            let pause = Duration::from_micros(pause_us);
            for turn in 1..=100 {
                assert_eq!(share.rest_until(now, SLICE, 5, 0), Some(now + pause * turn));
            }
            // Slow calls, and those of plugins that fail, queue apart from the others.
            let tiers = [(500, 0, 2), (5, 2, 4), (500, 2, 8), (5, 3, 8), (500, 3, 8)];
            let mut turns = [0; 9];
            for (epochs, faults, times) in tiers {
                turns[times] += 1;
                let until = now + pause * (times as u32) * turns[times];
                assert_eq!(share.rest_until(now, SLICE, epochs, faults), Some(until));
            }
        }
    }

    #[test]
    fn time_in_which_nobody_ran_is_not_saved_up_or_owed() {
        let share = Arc::new(CpuShare::of(8));
        let _users = [share.enter(), share.enter()];
        let later = Instant::now() + Duration::from_secs(60);
        assert_eq!(share.rest_until(later, SLICE, 5, 0), Some(later + SLICE));
        let suspended = Duration::from_secs(3600);
        assert_eq!(
            share.rest_until(later, suspended, 5, 0),
            Some(later + SLICE + MAX_CHARGE)
        );
    }

    #[test]
    fn who_is_alone_does_not_rest() {
        let share = Arc::new(CpuShare::of(2));
        let rests = || share.rest_until(Instant::now(), SLICE, 5, 0).is_some();
        let first = share.enter();
        assert!(!rests());
        let second = share.enter();
        assert!(rests());
        drop(second);
        assert!(!rests());
        // Requests that no plugin serves count too.
        let requests = Arc::new(AtomicUsize::new(1));
        let counted = Arc::clone(&requests);
        share.count_requests(move || counted.load(Ordering::Relaxed));
        assert!(!rests());
        requests.store(2, Ordering::Relaxed);
        assert!(rests());
        drop(first);
    }

    #[test]
    fn faults_are_remembered_for_a_while() {
        let (history, now) = (FaultHistory::default(), Instant::now());
        assert_eq!(history.recent(now), 0);
        for second in 0..5 {
            history.note(now + Duration::from_secs(second));
        }
        let at = |second| history.recent(now + Duration::from_secs(second));
        assert_eq!([at(4), at(12), at(13), at(14)], [3, 2, 1, 0]);
    }
}
