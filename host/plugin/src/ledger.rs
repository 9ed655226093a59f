//! Token buckets that policies draw from. They live here and not in a guest, so that they hold
//! over all instances of a binding and outlive traps and reloads.
//!
//! The clock and the state of a bucket are governor's; the step is our own, since a policy charges
//! and gives back after the fact, and governor's limiters can only be asked. A bucket's state is
//! its *theoretical arrival time*: how far that lies ahead of now says how much is drawn.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use governor::clock::{Clock, DefaultClock, Reference};
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed, StateStore};

/// Buckets kept at once. Full ones are forgotten first, which changes no answer.
const MAX_BUCKETS: usize = 100_000;

/// Longest name of a bucket.
const MAX_BUCKET_NAME_BYTES: usize = 256;

/// Longest period, a century: longer ones would overflow the 64 bits of nanoseconds of a state.
const MAX_PERIOD_MS: u64 = 100 * 365 * 24 * 3_600_000;

/// The outcome of a withdrawal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the cost was taken.
    pub allowed: bool,
    /// Amount left in the bucket.
    pub remaining: u64,
    /// Time until the same withdrawal could succeed; `u64::MAX` if never.
    pub retry_after_ms: u64,
}

const REFUSED: Verdict = Verdict {
    allowed: false,
    remaining: 0,
    retry_after_ms: u64::MAX,
};

/// Capacity of a bucket and the time in which it fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// At most so much.
    pub capacity: u64,
    /// From empty to full.
    pub period_ms: u64,
}

impl Rate {
    fn period_ns(self) -> u128 {
        u128::from(self.period_ms.min(MAX_PERIOD_MS)) * 1_000_000
    }

    /// The time in which `amount` flows in, rounded up: a bucket never gives more than it has.
    fn time_for(self, amount: u64) -> u128 {
        match self.capacity {
            0 => 0,
            capacity => (u128::from(amount) * self.period_ns()).div_ceil(u128::from(capacity)),
        }
    }

    /// Amount that flows in during `nanoseconds`.
    fn amount_in(self, nanoseconds: u128) -> u64 {
        match self.period_ns() {
            0 => self.capacity,
            period => {
                u64::try_from(nanoseconds * u128::from(self.capacity) / period).unwrap_or(u64::MAX)
            }
        }
    }
}

/// Token buckets by name. Give one to each binding of a policy, and the same one to the binding
/// that replaces it.
pub struct Ledger {
    buckets: Buckets<DefaultClock>,
}

impl Ledger {
    /// No buckets yet; each comes to be, full, when it is first named.
    pub fn new() -> Self {
        Self {
            buckets: Buckets::new(DefaultClock::default()),
        }
    }

    /// Take `cost` if the bucket has it. A cost of 0 asks whether the bucket is overdrawn.
    pub fn take(&self, bucket: &str, cost: u64, rate: Rate) -> Verdict {
        self.buckets.take(bucket, cost, rate)
    }

    /// What [`take`](Self::take) would answer. The bucket stays as it is.
    pub fn peek(&self, bucket: &str, cost: u64, rate: Rate) -> Verdict {
        self.buckets.peek(bucket, cost, rate)
    }

    /// Charge more (positive) or give back (negative); the bucket may become overdrawn.
    pub fn adjust(&self, bucket: &str, delta: i64, rate: Rate) {
        self.buckets.adjust(bucket, delta, rate);
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Ledger").finish_non_exhaustive()
    }
}

struct Buckets<C: Clock> {
    clock: C,
    start: C::Instant,
    states: Mutex<HashMap<String, InMemoryState>>,
}

impl<C: Clock> Buckets<C> {
    fn new(clock: C) -> Self {
        let start = clock.now();
        Self {
            clock,
            start,
            states: Mutex::new(HashMap::new()),
        }
    }

    fn take(&self, bucket: &str, cost: u64, rate: Rate) -> Verdict {
        if cost > rate.capacity {
            return REFUSED;
        }
        let step = |ahead| withdrawal(ahead, cost, rate);
        self.update(bucket, step).unwrap_or(REFUSED)
    }

    fn peek(&self, bucket: &str, cost: u64, rate: Rate) -> Verdict {
        if cost > rate.capacity || bucket.len() > MAX_BUCKET_NAME_BYTES {
            return REFUSED;
        }
        let now = self.now();
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let until = states.get(bucket).map_or(now, drawn_until);
        withdrawal(u128::from(until.saturating_sub(now)), cost, rate).0
    }

    /// One nanosecond on, since governor reads a state of zero as none.
    fn now(&self) -> u64 {
        self.clock.now().duration_since(self.start).as_u64() + 1
    }

    fn adjust(&self, bucket: &str, delta: i64, rate: Rate) {
        let time = rate.time_for(delta.unsigned_abs());
        // A bucket that cannot be made needs no charge: it refuses all withdrawals.
        let _ = self.update(bucket, |ahead| match delta {
            0.. => ((), ahead + time),
            _ => ((), ahead.saturating_sub(time)),
        });
    }

    /// Replace how far ahead of now the bucket is drawn. `None` if there is no room for another
    /// bucket or its name is too long.
    fn update<T>(&self, bucket: &str, step: impl Fn(u128) -> (T, u128)) -> Option<T> {
        if bucket.len() > MAX_BUCKET_NAME_BYTES {
            return None;
        }
        let now = self.now();
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        if !states.contains_key(bucket) {
            if states.len() >= MAX_BUCKETS {
                states.retain(|_, state| drawn_until(state) > now);
            }
            if states.len() >= MAX_BUCKETS {
                return None;
            }
        }
        let state = states.entry(bucket.to_owned()).or_default();
        let replaced = state.measure_and_replace(&NotKeyed::NonKey, |until| {
            let until = until.map_or(now, Nanos::as_u64).max(now);
            let (outcome, ahead) = step(u128::from(until - now));
            let until = u64::try_from(u128::from(now) + ahead).unwrap_or(u64::MAX);
            Ok::<_, Infallible>((outcome, Nanos::from(until)))
        });
        match replaced {
            Ok(outcome) => Some(outcome),
        }
    }
}

/// The answer to a withdrawal from a bucket that is drawn so far ahead of now, and how far it is drawn after it.
fn withdrawal(ahead: u128, cost: u64, rate: Rate) -> (Verdict, u128) {
    let wanted = ahead + rate.time_for(cost);
    let allowed = wanted <= rate.period_ns();
    let after = if allowed { wanted } else { ahead };
    let room = rate.period_ns().saturating_sub(after);
    let wait = if allowed {
        0
    } else {
        wanted - rate.period_ns()
    };
    let verdict = Verdict {
        allowed,
        remaining: rate.amount_in(room).min(rate.capacity),
        retry_after_ms: u64::try_from(wait.div_ceil(1_000_000)).unwrap_or(u64::MAX),
    };
    (verdict, after)
}

fn drawn_until(state: &InMemoryState) -> u64 {
    let read = state.measure_and_replace(&NotKeyed::NonKey, |until| {
        let until = until.unwrap_or(Nanos::from(0));
        Ok::<_, Infallible>((until.as_u64(), until))
    });
    match read {
        Ok(until) => until,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use governor::clock::FakeRelativeClock;

    use super::*;

    const RATE: Rate = Rate {
        capacity: 60,
        period_ms: 60_000,
    };

    fn buckets() -> (Buckets<FakeRelativeClock>, FakeRelativeClock) {
        let clock = FakeRelativeClock::default();
        (Buckets::new(clock.clone()), clock)
    }

    #[test]
    fn a_bucket_starts_full_and_refills_evenly() {
        let (buckets, clock) = buckets();
        let first = buckets.take("a", 50, RATE);
        assert_eq!((first.allowed, first.remaining), (true, 10));
        let second = buckets.take("a", 20, RATE);
        assert_eq!((second.allowed, second.remaining), (false, 10));
        assert_eq!(second.retry_after_ms, 10_000);
        clock.advance(Duration::from_millis(9_999));
        assert!(!buckets.take("a", 20, RATE).allowed);
        clock.advance(Duration::from_millis(1));
        assert!(buckets.take("a", 20, RATE).allowed);
        assert!(buckets.take("b", 60, RATE).allowed, "buckets are apart");
    }

    #[test]
    fn peeking_tells_what_taking_would_and_takes_nothing() {
        let (buckets, clock) = buckets();
        for cost in [0, 1, 30, 40, 61, 25, 5, 1] {
            let peeked = buckets.peek("a", cost, RATE);
            assert_eq!(buckets.peek("a", cost, RATE), peeked);
            assert_eq!(buckets.take("a", cost, RATE), peeked, "cost {cost}");
            clock.advance(Duration::from_millis(1500));
        }
        assert!(buckets.peek("unknown", 60, RATE).allowed);
        assert!(!buckets.states.lock().expect("lock").contains_key("unknown"));
    }

    #[test]
    fn a_bucket_never_holds_more_than_its_capacity() {
        let (buckets, clock) = buckets();
        clock.advance(Duration::from_secs(3600));
        assert_eq!(buckets.take("a", 0, RATE).remaining, 60);
        buckets.adjust("a", -1000, RATE);
        assert_eq!(buckets.take("a", 0, RATE).remaining, 60);
    }

    #[test]
    fn adjusting_overdraws_and_gives_back() {
        let (buckets, clock) = buckets();
        buckets.adjust("a", 90, RATE);
        let asked = buckets.take("a", 0, RATE);
        assert_eq!((asked.allowed, asked.remaining), (false, 0));
        assert_eq!(asked.retry_after_ms, 30_000);
        buckets.adjust("a", -40, RATE);
        assert_eq!(buckets.take("a", 0, RATE).remaining, 10);
        clock.advance(Duration::from_secs(5));
        assert_eq!(buckets.take("a", 0, RATE).remaining, 15);
    }

    #[test]
    fn what_can_never_be_had_says_so() {
        let (buckets, _) = buckets();
        assert_eq!(buckets.take("a", 61, RATE), REFUSED);
        assert_eq!(buckets.take(&"n".repeat(257), 1, RATE), REFUSED);
        let extreme = Rate {
            capacity: u64::MAX,
            period_ms: u64::MAX,
        };
        assert!(buckets.take("x", u64::MAX, extreme).allowed);
        buckets.adjust("x", i64::MAX, extreme);
        assert!(!buckets.take("x", 1, extreme).allowed);
        let nothing = Rate {
            capacity: 0,
            period_ms: 0,
        };
        assert!(buckets.take("y", 0, nothing).allowed);
        assert!(!buckets.take("y", 1, nothing).allowed);
    }
}
