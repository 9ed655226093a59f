//! Pace of the queue: how often a place is freed while others wait. A queue that nobody waits in has no pace, so
//! that a quiet time does not count as a slow one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Places that must have been freed before a wait is told.
const LEAST: u64 = 8;
/// Time after which what was measured counts half.
const MEMORY: Duration = Duration::from_secs(10);

/// Measured by whoever frees places, without a lock. Of figures that are read while they change, an estimate is made all the same.
#[derive(Debug)]
pub(crate) struct Pace {
    begun: Instant,
    /// When a place was freed last while others waited, in microseconds since the beginning, plus 1; 0 if nobody did.
    last: AtomicU64,
    /// Places freed while others had waited, and the time that took.
    freed: AtomicU64,
    micros: AtomicU64,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            last: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            micros: AtomicU64::new(0),
        }
    }

    fn micros(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.begun).as_micros();
        u64::try_from(elapsed).map_or(u64::MAX, |micros| micros.saturating_add(1))
    }

    /// A place was freed.
    pub(crate) fn freed(&self, others_wait: bool, now: Instant) {
        let now = self.micros(now);
        let last = self.last.swap(if others_wait { now } else { 0 }, Relaxed);
        if last == 0 {
            return;
        }
        self.freed.fetch_add(1, Relaxed);
        let took = now.saturating_sub(last);
        let all = self.micros.fetch_add(took, Relaxed).saturating_add(took);
        if u128::from(all) > MEMORY.as_micros() {
            self.micros.store(all / 2, Relaxed);
            self.freed.store(self.freed.load(Relaxed) / 2, Relaxed);
        }
    }

    /// Time until a place is freed for whoever has `ahead` others before it; `None` if too little is known.
    pub(crate) fn wait(&self, ahead: usize, now: Instant) -> Option<Duration> {
        let freed = self.freed.load(Relaxed);
        if ahead == 0 || freed < LEAST {
            return None;
        }
        // The present pause counts too, so that an engine that stands still is not taken for a quick one.
        let pause = match self.last.load(Relaxed) {
            0 => 0,
            last => self.micros(now).saturating_sub(last),
        };
        let each = self.micros.load(Relaxed).saturating_add(pause) / (freed + 1);
        Some(Duration::from_micros(each.saturating_mul(ahead as u64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feature_q4_the_wait_is_measured_while_others_wait_and_not_in_quiet_times() {
        let pace = Pace::new();
        let at = |milliseconds: u64| pace.begun + Duration::from_millis(milliseconds);
        // One every 10 s, and nobody else waits: that is no pace.
        for second in 0..20 {
            pace.freed(false, at(second * 10_000));
        }
        assert_eq!(pace.wait(5, at(200_000)), None);
        // One every 100 ms, while others wait.
        for place in 0..=50 {
            pace.freed(true, at(300_000 + place * 100));
        }
        let wait = |ahead, now| pace.wait(ahead, at(now)).expect("a wait").as_millis();
        assert!(
            (450..=500).contains(&wait(5, 305_000)),
            "{}",
            wait(5, 305_000)
        );
        assert_eq!(pace.wait(0, at(305_000)), None, "nobody is before it");
        // It stands still.
        assert!(wait(5, 365_000) > 5_000);
        // And goes on four times as fast: the past is forgotten.
        pace.freed(false, at(365_000));
        for place in 0..2_000 {
            pace.freed(true, at(400_000 + place * 25));
        }
        assert!(wait(5, 450_000) < 250, "{}", wait(5, 450_000));
    }
}
