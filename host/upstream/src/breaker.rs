//! Circuit breaker of one upstream: after failures in a row nothing is sent to it for a pause, which
//! doubles each time that a probe fails. While one tenant alone has met them, its requests may be the reason, and those of
//! others pass.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mortise_engine::CircuitState;

use crate::limits::MAX_PAUSE;

/// Failures in a row that open the circuit.
const FAILURES: u32 = 5;
/// First pause.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// State of the circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Closed: requests are sent to the upstream.
    Closed {
        /// Failures since the last success.
        failures: u32,
    },
    /// Open: no request is sent to the upstream.
    Open {
        /// Time from which on a probe may be sent.
        until: Instant,
    },
    /// Half open: one request is sent as a probe, and its outcome closes or opens the circuit.
    HalfOpen,
}

/// Tenants whose requests have failed since an answer to one closed the circuit.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FailedTenants {
    /// No tenant.
    None,
    /// One tenant.
    One(Arc<str>),
    /// Several tenants.
    Several,
}

impl FailedTenants {
    fn add(&mut self, tenant: &Arc<str>) {
        match self {
            Self::None => *self = Self::One(Arc::clone(tenant)),
            Self::One(known) if known != tenant => *self = Self::Several,
            Self::One(_) | Self::Several => {}
        }
    }

    /// Whether only others have failed, and of those one.
    fn are_one_other_than(&self, tenant: &Arc<str>) -> bool {
        matches!(self, Self::One(known) if known != tenant)
    }
}

#[derive(Debug)]
struct Circuit {
    state: State,
    failed: FailedTenants,
    /// Length of the pause that comes next.
    pause: Duration,
    /// Times that the circuit opened.
    opened: u64,
}

/// Circuit breaker of one upstream.
#[derive(Debug)]
pub(crate) struct UpstreamBreaker(Mutex<Circuit>);

/// Outcome of a request, as far as it tells about the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttemptOutcome {
    /// The upstream began to answer.
    Begun,
    /// The upstream answered.
    Answered,
    /// The upstream failed.
    Failed,
    /// The outcome tells nothing about the upstream.
    Unknown,
}

/// Change of the circuit that is worth a line in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CircuitChange {
    /// Opened: no request is sent for this time.
    Opened(Duration),
    /// Closed: requests are sent again.
    Closed,
}

impl Default for UpstreamBreaker {
    fn default() -> Self {
        Self(Mutex::new(Circuit {
            state: State::Closed { failures: 0 },
            failed: FailedTenants::None,
            pause: FIRST_PAUSE,
            opened: 0,
        }))
    }
}

impl UpstreamBreaker {
    fn circuit(&self) -> MutexGuard<'_, Circuit> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// State, and the times that it opened.
    pub(crate) fn state(&self) -> (CircuitState, u64) {
        let circuit = self.circuit();
        let state = match circuit.state {
            State::Closed { .. } => CircuitState::Closed,
            State::HalfOpen => CircuitState::HalfOpen,
            State::Open { .. } => CircuitState::Open,
        };
        (state, circuit.opened)
    }

    /// Let a request of a tenant pass, or say how long to wait.
    pub(crate) fn pass(&self, tenant: &Arc<str>, now: Instant) -> Result<(), Duration> {
        let mut circuit = self.circuit();
        match circuit.state {
            _ if circuit.failed.are_one_other_than(tenant) => Ok(()),
            State::Closed { .. } => Ok(()),
            State::Open { until } if now >= until => {
                circuit.state = State::HalfOpen;
                Ok(())
            }
            State::Open { until } => Err(until - now),
            State::HalfOpen => Err(FIRST_PAUSE),
        }
    }

    /// Take note of an outcome for a tenant. Each request that has passed reports at least one; `Begun` may come before
    /// another.
    pub(crate) fn note(
        &self,
        outcome: AttemptOutcome,
        tenant: &Arc<str>,
        now: Instant,
    ) -> Option<CircuitChange> {
        let mut circuit = self.circuit();
        let is_closed = matches!(circuit.state, State::Closed { .. });
        // Beside a circuit that is open for one tenant alone: the probe is that tenant's.
        if !is_closed
            && circuit.failed.are_one_other_than(tenant)
            && outcome != AttemptOutcome::Failed
        {
            return None;
        }
        match outcome {
            AttemptOutcome::Failed => circuit.failed.add(tenant),
            AttemptOutcome::Answered if !matches!(circuit.state, State::Open { .. }) => {
                circuit.failed = FailedTenants::None;
            }
            _ => {}
        }
        match (circuit.state, outcome) {
            (State::Closed { .. }, AttemptOutcome::Answered) => {
                circuit.state = State::Closed { failures: 0 };
                circuit.pause = FIRST_PAUSE;
                None
            }
            // One more failure opens it again: a beginning is no answer yet.
            (State::HalfOpen, AttemptOutcome::Begun) => {
                circuit.state = State::Closed {
                    failures: FAILURES - 1,
                };
                Some(CircuitChange::Closed)
            }
            (State::HalfOpen, AttemptOutcome::Answered) => {
                circuit.state = State::Closed { failures: 0 };
                circuit.pause = FIRST_PAUSE;
                Some(CircuitChange::Closed)
            }
            (State::Closed { failures }, AttemptOutcome::Failed) if failures + 1 < FAILURES => {
                let failures = failures + 1;
                circuit.state = State::Closed { failures };
                None
            }
            (State::Closed { .. } | State::HalfOpen, AttemptOutcome::Failed) => {
                let pause = circuit.pause;
                circuit.pause = (2 * pause).min(MAX_PAUSE);
                circuit.state = State::Open { until: now + pause };
                circuit.opened += 1;
                Some(CircuitChange::Opened(pause))
            }
            // The next request probes.
            (State::HalfOpen, AttemptOutcome::Unknown) => {
                circuit.state = State::Open { until: now };
                None
            }
            (State::Closed { .. }, AttemptOutcome::Begun | AttemptOutcome::Unknown) => None,
            // Of requests that passed before it opened.
            (State::Open { .. }, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    #[test]
    fn what_one_tenant_alone_meets_keeps_no_other_waiting() {
        let breaker = UpstreamBreaker::default();
        let now = Instant::now();
        let note = |outcome, name: &str| breaker.note(outcome, &tenant(name), now);
        let pass = |name: &str| breaker.pass(&tenant(name), now).is_ok();
        for _ in 1..FAILURES {
            note(AttemptOutcome::Failed, "a");
        }
        let opened = Some(CircuitChange::Opened(FIRST_PAUSE));
        assert_eq!(note(AttemptOutcome::Failed, "a"), opened);
        assert!(!pass("a") && pass("b") && pass("c"));
        // An answer to another tells nothing of what the one sends.
        assert_eq!(note(AttemptOutcome::Answered, "b"), None);
        assert!(!pass("a") && pass("b"));
        // The upstream fails for others too.
        assert_eq!(note(AttemptOutcome::Failed, "b"), None);
        assert!(!pass("a") && !pass("b") && !pass("c"));
        // It is back, for all.
        let later = now + FIRST_PAUSE;
        assert_eq!(breaker.pass(&tenant("c"), later), Ok(()));
        let closed = breaker.note(AttemptOutcome::Answered, &tenant("c"), later);
        assert_eq!(closed, Some(CircuitChange::Closed));
        assert!(pass("a") && pass("b"));
    }

    #[test]
    fn failures_in_a_row_open_it_and_a_probe_decides() {
        let breaker = UpstreamBreaker::default();
        let note = |outcome, now| breaker.note(outcome, &tenant("a"), now);
        let pass = |now| breaker.pass(&tenant("a"), now);
        let mut now = Instant::now();
        // A success in between begins the row anew.
        for outcome in [AttemptOutcome::Failed; 4]
            .into_iter()
            .chain([AttemptOutcome::Answered])
        {
            assert_eq!(note(outcome, now), None);
        }
        for _ in 1..FAILURES {
            assert_eq!(note(AttemptOutcome::Failed, now), None);
            assert_eq!(pass(now), Ok(()));
        }
        assert_eq!(
            note(AttemptOutcome::Failed, now),
            Some(CircuitChange::Opened(FIRST_PAUSE))
        );
        assert_eq!(pass(now), Err(FIRST_PAUSE));
        assert_eq!(breaker.state(), (CircuitState::Open, 1));
        // Late news change nothing.
        assert_eq!(note(AttemptOutcome::Failed, now), None);
        assert_eq!(note(AttemptOutcome::Answered, now), None);
        now += FIRST_PAUSE;
        assert_eq!(pass(now), Ok(()), "the probe");
        assert_eq!(breaker.state(), (CircuitState::HalfOpen, 1));
        assert!(pass(now).is_err(), "no second one");
        // A probe that tells nothing makes room for another.
        assert_eq!(note(AttemptOutcome::Unknown, now), None);
        assert_eq!(pass(now), Ok(()));
        assert_eq!(
            note(AttemptOutcome::Failed, now),
            Some(CircuitChange::Opened(2 * FIRST_PAUSE))
        );
        now += 2 * FIRST_PAUSE;
        assert_eq!(pass(now), Ok(()));
        assert_eq!(
            note(AttemptOutcome::Begun, now),
            Some(CircuitChange::Closed)
        );
        assert_eq!(pass(now), Ok(()));
        // It broke off: one failure is enough now, and the pause has grown.
        assert_eq!(
            note(AttemptOutcome::Failed, now),
            Some(CircuitChange::Opened(4 * FIRST_PAUSE))
        );
        now += 4 * FIRST_PAUSE;
        assert_eq!(pass(now), Ok(()));
        assert_eq!(
            note(AttemptOutcome::Begun, now),
            Some(CircuitChange::Closed)
        );
        assert_eq!(note(AttemptOutcome::Answered, now), None);
        for _ in 1..FAILURES {
            assert_eq!(note(AttemptOutcome::Failed, now), None);
        }
        assert_eq!(
            note(AttemptOutcome::Failed, now),
            Some(CircuitChange::Opened(FIRST_PAUSE))
        );
    }

    #[test]
    fn pauses_have_a_bound() {
        let breaker = UpstreamBreaker::default();
        let mut now = Instant::now();
        for _ in 0..FAILURES {
            breaker.note(AttemptOutcome::Failed, &tenant("a"), now);
        }
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            now += MAX_PAUSE;
            assert_eq!(breaker.pass(&tenant("a"), now), Ok(()));
            if let Some(CircuitChange::Opened(pause)) =
                breaker.note(AttemptOutcome::Failed, &tenant("a"), now)
            {
                longest = longest.max(pause);
            }
        }
        assert_eq!(longest, MAX_PAUSE);
    }
}
