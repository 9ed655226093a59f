//! Circuit breaker of one engine: after failures in a row it takes no requests for a pause, which doubles each time
//! that a probe fails.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// First pause.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Longest pause of an engine that fails again and again.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(30);

/// State of the breaker of an engine, as load figures tell it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CircuitState {
    /// Requests pass.
    #[default]
    Closed,
    /// One request passed as a probe, whose outcome is not known yet.
    HalfOpen,
    /// Requests are refused.
    Open,
}

impl CircuitState {
    /// Its name in events.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half_open",
            Self::Open => "open",
        }
    }
}

#[derive(Debug)]
struct State {
    /// Failures since the last sequence that ended well.
    failures: u32,
    circuit: CircuitState,
    /// End of the present pause.
    until: Option<Instant>,
    /// Length of the pause that comes next.
    pause: Duration,
    /// Times that it opened.
    opened: u64,
}

/// Breaker of an engine.
#[derive(Debug)]
pub(crate) struct Circuit {
    /// Name of the model in the log.
    model: Arc<str>,
    /// Failures in a row that open it; 0 never does.
    failures: u32,
    /// Time of one turn of the loop from which on the engine counts as stuck.
    stall: Option<Duration>,
    state: Mutex<State>,
}

impl Circuit {
    pub(crate) fn new(model: Arc<str>, failures: u32, stall: Option<Duration>) -> Self {
        Self {
            model,
            failures,
            stall,
            state: Mutex::new(State {
                failures: 0,
                circuit: CircuitState::Closed,
                until: None,
                pause: FIRST_PAUSE,
                opened: 0,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Plain values: those that a panic left behind are as good as any.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// State, and the times that the circuit opened. An engine that is stuck, its present turn having taken `turn`,
    /// takes no requests either.
    pub(crate) fn state(&self, turn: Option<Duration>) -> (CircuitState, u64) {
        let state = self.lock();
        match self.is_stuck(turn) {
            true => (CircuitState::Open, state.opened),
            false => (state.circuit, state.opened),
        }
    }

    fn is_stuck(&self, turn: Option<Duration>) -> bool {
        self.stall
            .zip(turn)
            .is_some_and(|(stall, turn)| turn >= stall)
    }

    /// Let a request pass, or say how long to wait. `turn` is the time of the loop's present turn.
    ///
    /// A probe whose outcome stays unknown, since its caller left, makes room for another after a pause.
    pub(crate) fn pass(&self, now: Instant, turn: Option<Duration>) -> Result<(), Duration> {
        if self.is_stuck(turn) {
            return Err(FIRST_PAUSE);
        }
        let mut state = self.lock();
        match (state.circuit, state.until) {
            (CircuitState::Closed, _) => Ok(()),
            (_, Some(until)) if now < until => Err(until - now),
            _ => {
                state.circuit = CircuitState::HalfOpen;
                state.until = Some(now + state.pause);
                Ok(())
            }
        }
    }

    /// A sequence ended well.
    pub(crate) fn succeeded(&self) {
        let mut state = self.lock();
        state.failures = 0;
        // What was admitted before it opened says nothing of now.
        if state.circuit == CircuitState::HalfOpen {
            state.circuit = CircuitState::Closed;
            state.until = None;
            state.pause = FIRST_PAUSE;
            drop(state);
            let model = &*self.model;
            tracing::info!(model, "the engine answers again, and takes all requests");
        }
    }

    /// The loop panicked, or a sequence could not be computed.
    pub(crate) fn failed(&self, now: Instant) {
        let mut state = self.lock();
        state.failures = state.failures.saturating_add(1);
        let opens = match state.circuit {
            CircuitState::Closed => self.failures > 0 && state.failures >= self.failures,
            CircuitState::HalfOpen => true,
            CircuitState::Open => false,
        };
        if opens {
            let pause = state.pause;
            state.circuit = CircuitState::Open;
            state.until = Some(now + pause);
            state.pause = (2 * pause).min(MAX_PAUSE);
            state.opened += 1;
            let (failures, pause_ms) = (state.failures, pause.as_millis());
            drop(state);
            tracing::error!(
                model = &*self.model,
                failures,
                pause_ms,
                "the engine failed again and again, and takes no requests for a pause"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_secs(9);

    fn circuit(failures: u32, stall: Option<Duration>) -> Circuit {
        Circuit::new(Arc::from("m"), failures, stall)
    }

    fn fail(circuit: &Circuit, times: u32, now: Instant) {
        (0..times).for_each(|_| circuit.failed(now));
    }

    #[test]
    fn feature_z10_failures_in_a_row_open_it_and_a_probe_decides() {
        let circuit = circuit(3, None);
        let mut now = Instant::now();
        fail(&circuit, 2, now);
        circuit.succeeded();
        fail(&circuit, 2, now);
        assert_eq!(circuit.pass(now, None), Ok(()), "not in a row");
        fail(&circuit, 1, now);
        assert_eq!(circuit.state(None), (CircuitState::Open, 1));
        assert_eq!(circuit.pass(now, None), Err(FIRST_PAUSE));
        // Sequences that were admitted before end well or badly, and change nothing.
        circuit.succeeded();
        fail(&circuit, 5, now);
        assert_eq!(circuit.state(None), (CircuitState::Open, 1));
        now += FIRST_PAUSE;
        assert_eq!(circuit.pass(now, None), Ok(()), "the probe");
        assert!(circuit.pass(now, None).is_err(), "no second one");
        fail(&circuit, 1, now);
        assert_eq!(circuit.pass(now, None), Err(2 * FIRST_PAUSE));
        now += 2 * FIRST_PAUSE;
        assert_eq!(circuit.pass(now, None), Ok(()));
        circuit.succeeded();
        assert_eq!(circuit.state(None), (CircuitState::Closed, 2));
        fail(&circuit, 3, now);
        assert_eq!(circuit.pass(now, None), Err(FIRST_PAUSE), "begun anew");
    }

    #[test]
    fn a_probe_that_nobody_hears_of_makes_room_for_another() {
        let circuit = circuit(1, None);
        let mut now = Instant::now();
        fail(&circuit, 1, now);
        now += FIRST_PAUSE;
        assert_eq!(circuit.pass(now, None), Ok(()));
        assert_eq!(circuit.pass(now, None), Err(2 * FIRST_PAUSE));
        now += 2 * FIRST_PAUSE;
        assert_eq!(circuit.pass(now, None), Ok(()));
    }

    #[test]
    fn pauses_have_a_bound_and_zero_failures_never_open_it() {
        let (circuit, never) = (circuit(1, None), circuit(0, None));
        let mut now = Instant::now();
        fail(&circuit, 1, now);
        fail(&never, 1000, now);
        assert_eq!(never.pass(now, None), Ok(()));
        for _ in 0..20 {
            now += MAX_PAUSE;
            assert_eq!(circuit.pass(now, None), Ok(()));
            fail(&circuit, 1, now);
        }
        assert_eq!(circuit.pass(now, None), Err(MAX_PAUSE));
    }

    #[test]
    fn a_stuck_engine_takes_nothing_until_it_goes_on() {
        let circuit = circuit(3, Some(STALL));
        let now = Instant::now();
        assert!(circuit.pass(now, Some(STALL)).is_err());
        assert_eq!(circuit.state(Some(STALL)).0, CircuitState::Open);
        assert_eq!(circuit.pass(now, Some(STALL / 2)), Ok(()));
        assert_eq!(circuit.pass(now, None), Ok(()));
    }
}
