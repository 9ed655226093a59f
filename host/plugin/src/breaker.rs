//! Circuit breaker of a binding: a plugin that keeps failing is not called for a while, so that its callers
//! are told at once, and other requests keep the processor.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::BreakerLimits;
use crate::stats::PluginCounters;

/// The state of one binding.
pub(crate) struct BindingBreaker {
    limits: BreakerLimits,
    state: Mutex<State>,
    counters: Arc<PluginCounters>,
}

enum State {
    /// Calls are made. The times of the latest failures.
    Closed(VecDeque<Instant>),
    /// No call is made until then; after that, one as a trial.
    Open {
        until: Instant,
        pause: Duration,
        /// A trial is under way.
        trying: bool,
    },
}

/// Change that the end of a call made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakerChange {
    /// No call is made for this time.
    Suspended(Duration),
    /// A trial went well: calls are made again.
    Resumed,
}

impl BindingBreaker {
    pub(crate) fn new(limits: BreakerLimits, counters: Arc<PluginCounters>) -> Self {
        Self {
            limits,
            state: Mutex::new(State::Closed(VecDeque::new())),
            counters,
        }
    }

    /// Whether a call may be made now; if not, when to ask again.
    pub(crate) fn admit(&self, now: Instant) -> Result<(), Duration> {
        let mut state = self.lock();
        let State::Open {
            until,
            pause,
            trying,
        } = &mut *state
        else {
            return Ok(());
        };
        if now < *until {
            return Err(*until - now);
        }
        // A trial that is given up says nothing; another one may start after the same pause.
        *trying = true;
        *until = now + *pause;
        Ok(())
    }

    /// Let the next call be made in any case: it is to tell what the one before did not.
    pub(crate) fn let_try(&self, now: Instant) {
        if let State::Open { until, .. } = &mut *self.lock() {
            *until = now;
        }
    }

    /// Learn how a call ended, and say whether that suspends the plugin or ends its suspension.
    pub(crate) fn record(&self, now: Instant, failed: bool) -> Option<BreakerChange> {
        let mut state = self.lock();
        match &mut *state {
            State::Closed(failures) if failed && self.limits.failures > 0 => {
                let window = Duration::from_millis(self.limits.window_ms);
                failures.push_back(now);
                failures.retain(|at| now.saturating_duration_since(*at) <= window);
                if failures.len() >= self.limits.failures as usize {
                    let pause = Duration::from_millis(self.limits.pause_ms);
                    *state = State::Open {
                        until: now + pause,
                        pause,
                        trying: false,
                    };
                    self.counters.suspensions.fetch_add(1, Relaxed);
                    self.counters.suspended.fetch_add(1, Relaxed);
                    return Some(BreakerChange::Suspended(pause));
                }
            }
            State::Open {
                until,
                pause,
                trying: trying @ true,
            } if failed => {
                let longest = Duration::from_millis(self.limits.max_pause_ms);
                *pause = (*pause * 2).min(longest);
                *until = now + *pause;
                *trying = false;
                return Some(BreakerChange::Suspended(*pause));
            }
            State::Open { trying: true, .. } => {
                *state = State::Closed(VecDeque::new());
                self.counters.suspended.fetch_sub(1, Relaxed);
                return Some(BreakerChange::Resumed);
            }
            // Calls that began before the suspension.
            State::Closed(_) | State::Open { .. } => {}
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BindingBreaker {
    fn drop(&mut self) {
        if matches!(*self.lock(), State::Open { .. }) {
            self.counters.suspended.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    const LIMITS: BreakerLimits = BreakerLimits {
        failures: 3,
        window_ms: 1000,
        pause_ms: 100,
        max_pause_ms: 300,
    };

    struct Clock {
        breaker: BindingBreaker,
        start: Instant,
        counters: Arc<PluginCounters>,
    }

    impl Clock {
        fn new(limits: BreakerLimits) -> Self {
            let counters = Arc::new(PluginCounters::new(Kind::Policy, false));
            Self {
                breaker: BindingBreaker::new(limits, Arc::clone(&counters)),
                start: Instant::now(),
                counters,
            }
        }

        fn at(&self, ms: u64) -> Instant {
            self.start + Duration::from_millis(ms)
        }

        fn fail(&self, ms: u64) -> Option<BreakerChange> {
            self.breaker.record(self.at(ms), true)
        }

        fn admit(&self, ms: u64) -> Result<(), u128> {
            let admitted = self.breaker.admit(self.at(ms));
            admitted.map_err(|wait| wait.as_millis())
        }

        fn suspended(&self) -> u64 {
            self.counters.suspended.load(Relaxed)
        }
    }

    #[test]
    fn failures_within_the_window_suspend_and_a_good_trial_ends_it() {
        let clock = Clock::new(LIMITS);
        clock.fail(0);
        clock.fail(500);
        clock.fail(1400);
        assert_eq!(clock.admit(1400), Ok(()), "the first failure is too old");
        let turn = clock.fail(1450);
        assert_eq!(
            turn,
            Some(BreakerChange::Suspended(Duration::from_millis(100)))
        );
        assert_eq!(clock.admit(1450), Err(100));
        assert_eq!((clock.suspended(), clock.admit(1549)), (1, Err(1)));
        assert_eq!(clock.admit(1550), Ok(()), "a trial");
        assert_eq!(clock.admit(1560), Err(90), "one trial at a time");
        let turn = clock.breaker.record(clock.at(1570), false);
        assert_eq!(turn, Some(BreakerChange::Resumed));
        assert_eq!((clock.suspended(), clock.admit(1571)), (0, Ok(())));
    }

    #[test]
    fn failed_trials_make_the_pause_longer_up_to_its_limit() {
        let clock = Clock::new(LIMITS);
        for _ in 0..3 {
            clock.fail(0);
        }
        let mut now = 100;
        for pause in [200, 300, 300] {
            assert_eq!(clock.admit(now), Ok(()));
            let turn = clock.fail(now);
            assert_eq!(
                turn,
                Some(BreakerChange::Suspended(Duration::from_millis(pause)))
            );
            assert_eq!(clock.admit(now), Err(u128::from(pause)));
            now += pause;
        }
    }

    #[test]
    fn a_trial_that_is_given_up_does_not_keep_the_door_shut() {
        let clock = Clock::new(LIMITS);
        for _ in 0..3 {
            clock.fail(0);
        }
        assert_eq!(clock.admit(100), Ok(()));
        assert_eq!(clock.admit(199), Err(1));
        assert_eq!(clock.admit(200), Ok(()));
    }

    #[test]
    fn a_call_that_is_to_tell_more_is_let_through() {
        let clock = Clock::new(LIMITS);
        clock.breaker.let_try(clock.at(0));
        (0..3).for_each(|_| {
            clock.fail(0);
        });
        assert_eq!(clock.admit(10), Err(90));
        clock.breaker.let_try(clock.at(10));
        assert_eq!((clock.admit(10), clock.admit(10)), (Ok(()), Err(100)));
        clock.breaker.record(clock.at(11), false);
        assert_eq!(clock.suspended(), 0);
    }

    #[test]
    fn late_results_of_earlier_calls_change_nothing() {
        let clock = Clock::new(LIMITS);
        for _ in 0..3 {
            clock.fail(0);
        }
        assert_eq!(clock.breaker.record(clock.at(10), false), None);
        assert_eq!(clock.fail(20), None);
        assert_eq!(clock.admit(30), Err(70));
        drop(clock.breaker);
        assert_eq!(clock.counters.suspended.load(Relaxed), 0);
    }

    #[test]
    fn zero_failures_never_suspend() {
        let clock = Clock::new(BreakerLimits {
            failures: 0,
            ..LIMITS
        });
        assert!((0..100).all(|_| clock.fail(0).is_none()));
        assert_eq!(clock.admit(0), Ok(()));
    }
}
