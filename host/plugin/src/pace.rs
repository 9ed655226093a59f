//! How fast guests may run that take long. Together they get a share of the processors and no more, so
//! that a guest that loops slows nobody else's answers down. Calls that end soon never wait.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Epochs after which a call counts as long. The default plugins' calls take microseconds; compiling a
/// large schema takes this.
pub(crate) const LONG_CALL_EPOCHS: u64 = 4;

/// What long calls get of the processors, together, is one over this: the less, the longer they have
/// run. A schema takes tens of milliseconds to compile, and a loop has no end.
fn share_divisor(epochs: u64) -> u32 {
    match epochs {
        ..32 => 4,
        32..128 => 8,
        128.. => 16,
    }
}

/// The longest slice that is charged. A guest that was itself kept from running did not run.
const MAX_CHARGE: Duration = Duration::from_millis(5);

/// The turns of long calls, over all plugins of a host.
#[derive(Debug)]
pub(crate) struct Pace {
    processors: u32,
    /// Instances that serve a call, a session or a matcher now.
    in_use: AtomicUsize,
    /// When the share is free again, if nobody else takes it.
    free_at: Mutex<Instant>,
}

impl Pace {
    pub(crate) fn new() -> Arc<Self> {
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Arc::new(Self::of(u32::try_from(processors).unwrap_or(u32::MAX)))
    }

    fn of(processors: u32) -> Self {
        Self {
            processors,
            in_use: AtomicUsize::new(0),
            free_at: Mutex::new(Instant::now()),
        }
    }

    /// Count an instance as in use until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> InUse {
        self.in_use.fetch_add(1, Ordering::Relaxed);
        InUse(Arc::clone(self))
    }

    /// Charge a slice of a call that has run for so many epochs, and say until when it must rest. `None` while nobody else
    /// uses a plugin: then nobody is slowed.
    ///
    /// Slices queue one behind the other, each as long as the share takes to serve it; hence calls
    /// take turns, and all of them together stay below the share.
    pub(crate) fn rest_until(&self, now: Instant, ran: Duration, epochs: u64) -> Option<Instant> {
        if self.in_use.load(Ordering::Relaxed) <= 1 {
            return None;
        }
        let cost = ran.min(MAX_CHARGE) * share_divisor(epochs) / self.processors;
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        *free_at = (*free_at).max(now) + cost;
        Some(*free_at)
    }
}

/// An instance in use.
#[derive(Debug)]
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
    fn long_calls_together_get_a_quarter_of_the_processors_and_less_later() {
        for (processors, pause_us) in [(1, 4000), (2, 2000), (16, 250)] {
            let pace = Arc::new(Pace::of(processors));
            let _users = [pace.enter(), pace.enter(), pace.enter()];
            let now = Instant::now() + Duration::from_secs(1);
            for turn in 1..=100 {
                let until = pace.rest_until(now, SLICE, 5);
                assert_eq!(until, Some(now + Duration::from_micros(pause_us) * turn));
            }
            let (before, after) = (
                pace.rest_until(now, SLICE, 5),
                pace.rest_until(now, SLICE, 500),
            );
            let pause = before.zip(after).map(|(before, after)| after - before);
            assert_eq!(
                pause,
                Some(Duration::from_micros(pause_us) * 4),
                "a sixteenth"
            );
        }
    }

    #[test]
    fn time_in_which_nobody_ran_is_not_saved_up_or_owed() {
        let pace = Arc::new(Pace::of(4));
        let _users = [pace.enter(), pace.enter()];
        let later = Instant::now() + Duration::from_secs(60);
        assert_eq!(pace.rest_until(later, SLICE, 5), Some(later + SLICE));
        let suspended = Duration::from_secs(3600);
        assert_eq!(
            pace.rest_until(later, suspended, 5),
            Some(later + SLICE + MAX_CHARGE)
        );
    }

    #[test]
    fn who_is_alone_does_not_rest() {
        let pace = Arc::new(Pace::of(2));
        let first = pace.enter();
        assert_eq!(pace.rest_until(Instant::now(), SLICE, 5), None);
        let second = pace.enter();
        assert!(pace.rest_until(Instant::now(), SLICE, 5).is_some());
        drop(second);
        assert_eq!(pace.rest_until(Instant::now(), SLICE, 5), None);
        drop(first);
    }
}
