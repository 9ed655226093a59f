//! Token buckets that policies draw from. They live here and not in a guest, so that they hold
//! over all instances of a binding and outlive traps and reloads.
//!
//! The clock and the state of a bucket are governor's; the step is our own, since a policy charges
//! and gives back after the fact, and governor's limiters can only be asked. A bucket's state is
//! its *theoretical arrival time*: how far that lies ahead of now says how much is drawn.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use governor::clock::{Clock, DefaultClock, Reference};
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed, StateStore};

use crate::rate_counters::{
    CountersLost, Counting, Level, Rate, RateCounters, UNDER_WAY, Verdict, Withdrawal,
};

/// Buckets kept at once. Full ones are forgotten first, which changes no answer.
const MAX_BUCKETS: usize = 100_000;

/// Longest name of a bucket.
const MAX_BUCKET_NAME_BYTES: usize = 256;

/// Shortest period of a bucket that is kept over a restart, an hour: a shorter one is full again before long.
const MIN_KEPT_PERIOD_MS: u64 = 3_600_000;

/// Token buckets by name, in this process. Give one to each binding of a policy, and the same one to the binding
/// that replaces it.
pub struct Ledger {
    buckets: Buckets<DefaultClock>,
}

impl Ledger {
    /// Ledger without buckets. A bucket is made, full, when it is first named.
    pub fn new() -> Self {
        Self {
            buckets: Buckets::new(DefaultClock::default()),
        }
    }

    /// Take `cost` if the bucket has it. A cost of 0 asks whether the bucket is overdrawn.
    pub fn take(&self, bucket: &str, cost: u64, rate: Rate) -> Verdict {
        self.buckets.take(bucket, cost, rate)
    }

    /// Answer as [`take`](Self::take) would; the bucket stays as it is.
    pub fn peek(&self, bucket: &str, cost: u64, rate: Rate) -> Verdict {
        self.buckets.peek(bucket, cost, rate)
    }

    /// Make all withdrawals, or none; see [`RateCounters::take_all`].
    pub fn take_all(&self, withdrawals: &[Withdrawal], takes: bool) -> Vec<Verdict> {
        self.buckets.take_all(withdrawals, takes)
    }

    /// State of each of several buckets; see [`RateCounters::levels`].
    pub fn levels(&self, buckets: &[(String, Rate)]) -> Vec<Level> {
        self.buckets.levels(buckets)
    }

    /// Charge more (positive) or give back (negative); the bucket may become overdrawn.
    pub fn adjust(&self, bucket: &str, delta: i64, rate: Rate) {
        self.buckets.adjust(bucket, delta, rate);
    }

    /// Buckets of long periods that were drawn from since they were last asked for.
    pub fn changed(&self) -> Vec<KeptBucket> {
        self.buckets.changed(unix_ns())
    }

    /// Set how far a bucket that is kept elsewhere is drawn ahead of now, in nanoseconds, as last heard of.
    pub fn mirror(&self, bucket: &str, ahead: u128) {
        self.buckets.mirror(bucket, ahead);
    }

    /// Draw from a bucket what was drawn from it before a restart.
    pub fn restore(&self, kept: &KeptBucket) {
        self.buckets.restore(kept, unix_ns());
    }
}

impl RateCounters for Ledger {
    fn take<'a>(
        &'a self,
        bucket: &'a str,
        cost: u64,
        rate: Rate,
    ) -> Counting<'a, Result<Verdict, CountersLost>> {
        Box::pin(std::future::ready(Ok(self.take(bucket, cost, rate))))
    }

    fn peek<'a>(
        &'a self,
        bucket: &'a str,
        cost: u64,
        rate: Rate,
    ) -> Counting<'a, Result<Verdict, CountersLost>> {
        Box::pin(std::future::ready(Ok(self.peek(bucket, cost, rate))))
    }

    fn take_all<'a>(
        &'a self,
        withdrawals: &'a [Withdrawal],
        takes: bool,
    ) -> Counting<'a, Result<Vec<Verdict>, CountersLost>> {
        Box::pin(std::future::ready(Ok(self.take_all(withdrawals, takes))))
    }

    fn levels<'a>(
        &'a self,
        buckets: &'a [(String, Rate)],
    ) -> Counting<'a, Result<Vec<Level>, CountersLost>> {
        Box::pin(std::future::ready(Ok(self.levels(buckets))))
    }

    fn adjust<'a>(&'a self, bucket: &'a str, delta: i64, rate: Rate) -> Counting<'a, ()> {
        self.adjust(bucket, delta, rate);
        Box::pin(std::future::ready(()))
    }
}

/// State of a bucket, as it is kept over a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptBucket {
    /// Name of the bucket.
    pub bucket: String,
    /// Time at which the bucket is full again, in nanoseconds since 1970.
    pub full_at: u64,
}

fn unix_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
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

type States = HashMap<String, Bucket>;

struct Buckets<C: Clock> {
    clock: C,
    start: C::Instant,
    states: Mutex<States>,
}

#[derive(Default)]
struct Bucket {
    state: InMemoryState,
    /// Flag of a bucket that is kept over a restart and has changed since it was last kept.
    changed: bool,
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
            return Verdict::NEVER;
        }
        let step = |ahead| withdrawal(ahead, cost, rate);
        self.update(bucket, rate, step).unwrap_or(Verdict::NEVER)
    }

    fn peek(&self, bucket: &str, cost: u64, rate: Rate) -> Verdict {
        if cost > rate.capacity || bucket.len() > MAX_BUCKET_NAME_BYTES {
            return Verdict::NEVER;
        }
        let now = self.now();
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let until = states.get(bucket);
        let until = until.map_or(now, |bucket| drawn_until(&bucket.state));
        withdrawal(u128::from(until.saturating_sub(now)), cost, rate).0
    }

    /// One nanosecond on, since governor reads a state of zero as none.
    fn now(&self) -> u64 {
        self.clock.now().duration_since(self.start).as_u64() + 1
    }

    fn adjust(&self, bucket: &str, delta: i64, rate: Rate) {
        let time = rate.time_for(delta.unsigned_abs());
        // A bucket that cannot be made needs no charge: it refuses all withdrawals.
        let _ = self.update(bucket, rate, |ahead| match delta {
            0.. => ((), ahead + time),
            _ => ((), ahead.saturating_sub(time)),
        });
    }

    /// Replace how far ahead of now the bucket is drawn. `None` if there is no room for another
    /// bucket or its name is too long.
    fn update<T>(&self, bucket: &str, rate: Rate, step: impl Fn(u128) -> (T, u128)) -> Option<T> {
        let now = self.now();
        let mut states = self.lock();
        if !has_room(&mut states, bucket, 0, now) {
            return None;
        }
        Some(step_of(&mut states, bucket, rate, now, step))
    }

    fn lock(&self) -> MutexGuard<'_, States> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_all(&self, withdrawals: &[Withdrawal], takes: bool) -> Vec<Verdict> {
        let now = self.now();
        let mut states = self.lock();
        // How far each bucket is drawn ahead of now, before and after.
        let mut drawn: HashMap<&str, (u128, u128)> = HashMap::new();
        let mut verdicts = Vec::with_capacity(withdrawals.len());
        for Withdrawal { bucket, cost, rate } in withdrawals {
            let new = drawn.len();
            if *cost > rate.capacity || !has_room(&mut states, bucket, new, now) {
                verdicts.push(Verdict::NEVER);
                continue;
            }
            let until = states
                .get(bucket)
                .map_or(now, |known| drawn_until(&known.state));
            let ahead = u128::from(until.saturating_sub(now));
            let (_, after) = drawn.entry(bucket).or_insert((ahead, ahead));
            let (verdict, ahead) = withdrawal(*after, *cost, *rate);
            *after = ahead;
            verdicts.push(verdict);
        }
        let allowed = verdicts.iter().all(|verdict| verdict.allowed);
        for (verdict, Withdrawal { bucket, rate, .. }) in verdicts.iter_mut().zip(withdrawals) {
            let Some((before, after)) = drawn.get(bucket.as_str()) else {
                continue;
            };
            if !allowed {
                verdict.remaining = rate.verdict(0, true, *before).remaining;
            } else if takes {
                step_of(&mut states, bucket, *rate, now, |_| ((), *after));
            }
        }
        verdicts
    }

    fn levels(&self, buckets: &[(String, Rate)]) -> Vec<Level> {
        let now = self.now();
        let states = self.lock();
        let levels = buckets.iter().map(|(name, rate)| {
            let until = states
                .get(name)
                .map_or(now, |known| drawn_until(&known.state));
            let level = rate.level(u128::from(until.saturating_sub(now)));
            match name.starts_with(UNDER_WAY) {
                true => Level::of_places(level.used, rate.capacity),
                false => level,
            }
        });
        levels.collect()
    }

    fn changed(&self, unix_ns: u64) -> Vec<KeptBucket> {
        let now = self.now();
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = states.iter_mut().filter(|(_, bucket)| bucket.changed);
        let kept = changed.map(|(name, bucket)| {
            bucket.changed = false;
            let ahead = drawn_until(&bucket.state).saturating_sub(now);
            KeptBucket {
                bucket: name.clone(),
                full_at: unix_ns.saturating_add(ahead),
            }
        });
        kept.collect()
    }

    fn mirror(&self, bucket: &str, ahead: u128) {
        // The period does not matter: the state is a time.
        let rate = Rate {
            capacity: 1,
            period_ms: 0,
        };
        let _ = self.update(bucket, rate, |_| ((), ahead));
    }

    fn restore(&self, kept: &KeptBucket, unix_ns: u64) {
        let ahead = kept.full_at.saturating_sub(unix_ns);
        let until = Nanos::from(self.now().saturating_add(ahead));
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        if ahead == 0 || states.len() >= MAX_BUCKETS || kept.bucket.len() > MAX_BUCKET_NAME_BYTES {
            return;
        }
        let bucket = states.entry(kept.bucket.clone()).or_default();
        let restored = bucket
            .state
            .measure_and_replace(&NotKeyed::NonKey, |_| Ok::<_, Infallible>(((), until)));
        match restored {
            Ok(()) => {}
        }
    }
}

/// True if a bucket is known or can be made, beside `more` that are yet to be made.
fn has_room(states: &mut States, bucket: &str, more: usize, now: u64) -> bool {
    if bucket.len() > MAX_BUCKET_NAME_BYTES {
        return false;
    }
    if states.contains_key(bucket) {
        return true;
    }
    if states.len() + more >= MAX_BUCKETS {
        states.retain(|_, bucket| drawn_until(&bucket.state) > now);
    }
    states.len() + more < MAX_BUCKETS
}

/// Replace how far ahead of now a bucket is drawn, for which there is room.
fn step_of<T>(
    states: &mut States,
    bucket: &str,
    rate: Rate,
    now: u64,
    step: impl Fn(u128) -> (T, u128),
) -> T {
    let kept = rate.period_ms >= MIN_KEPT_PERIOD_MS && !bucket.starts_with(UNDER_WAY);
    let bucket = states.entry(bucket.to_owned()).or_default();
    bucket.changed |= kept;
    let replaced = bucket
        .state
        .measure_and_replace(&NotKeyed::NonKey, |until| {
            let until = until.map_or(now, Nanos::as_u64).max(now);
            let (outcome, ahead) = step(u128::from(until - now));
            let until = u64::try_from(u128::from(now) + ahead).unwrap_or(u64::MAX);
            Ok::<_, Infallible>((outcome, Nanos::from(until)))
        });
    match replaced {
        Ok(outcome) => outcome,
    }
}

/// The answer to a withdrawal from a bucket that is drawn so far ahead of now, and how far it is drawn after it.
fn withdrawal(ahead: u128, cost: u64, rate: Rate) -> (Verdict, u128) {
    let wanted = ahead + rate.time_for(cost);
    let allowed = wanted <= rate.period_ns();
    let after = if allowed { wanted } else { ahead };
    (rate.verdict(cost, allowed, after), after)
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

    fn draw(bucket: &str, cost: u64, capacity: u64) -> Withdrawal {
        Withdrawal {
            bucket: bucket.to_owned(),
            cost,
            rate: Rate {
                capacity,
                period_ms: 60_000,
            },
        }
    }

    #[test]
    fn several_withdrawals_are_made_or_none() {
        let (buckets, _) = buckets();
        let all = [draw("a", 20, 60), draw("b", 1, 2), draw("a", 20, 60)];
        let seen = buckets.take_all(&all, false);
        let remaining: Vec<u64> = seen.iter().map(|verdict| verdict.remaining).collect();
        assert_eq!(remaining, [40, 1, 20], "one after the other");
        assert_eq!(buckets.take_all(&all, true), seen, "asking took nothing");
        // The third is not allowed: nothing is taken, and all tell what is left.
        let refused =
            buckets.take_all(&[draw("b", 1, 2), draw("c", 1, 5), draw("a", 21, 60)], true);
        let told: Vec<(bool, u64)> = refused
            .iter()
            .map(|verdict| (verdict.allowed, verdict.remaining))
            .collect();
        assert_eq!(told, [(true, 1), (true, 5), (false, 20)]);
        assert_eq!(refused[2].retry_after_ms, 1_000);
        assert_eq!(buckets.peek("c", 5, draw("c", 5, 5).rate).remaining, 0);
        let never = buckets.take_all(&[draw("b", 1, 2), draw("a", 61, 60)], true);
        assert_eq!(never[1], Verdict::NEVER);
        assert!(
            buckets.take_all(&[draw("b", 1, 2)], true)[0].allowed,
            "it was left"
        );
        assert_eq!(buckets.take_all(&[], true), []);
    }

    #[test]
    fn levels_tell_what_is_used_and_make_no_bucket() {
        let (buckets, clock) = buckets();
        let asked = [
            ("a".to_owned(), RATE),
            ("~under way".to_owned(), RATE),
            ("unknown".to_owned(), RATE),
        ];
        let level = |used, remaining, full_in_ms| Level {
            used,
            remaining,
            full_in_ms,
        };
        buckets.take("a", 50, RATE);
        buckets.take("~under way", 2, RATE);
        let of_places = level(2, 58, None);
        let full = level(0, 60, Some(0));
        let now = buckets.levels(&asked);
        assert_eq!(now, [level(50, 10, Some(50_000)), of_places, full]);
        assert!(!buckets.lock().contains_key("unknown"));
        clock.advance(Duration::from_millis(1_500));
        assert_eq!(buckets.levels(&asked)[0], level(49, 11, Some(48_500)));
        // Beyond the capacity, once an answer was longer than what was reserved for it.
        buckets.adjust("a", 30, RATE);
        assert_eq!(buckets.levels(&asked)[0], level(79, 0, Some(78_500)));
        let nothing = Rate {
            capacity: 0,
            period_ms: 0,
        };
        assert_eq!(buckets.levels(&[("a".to_owned(), nothing)])[0].used, 0);
        assert_eq!(buckets.levels(&asked).len(), 3, "asking changed nothing");
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
    fn long_periods_are_kept_over_a_restart_and_nothing_else_is() {
        let day = Rate {
            capacity: 100,
            period_ms: 86_400_000,
        };
        let (before, clock) = buckets();
        before.take("day", 40, day);
        before.take("minute", 40, RATE);
        before.take("~under way", 40, day);
        let kept = before.changed(1_000);
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert_eq!(kept[0].full_at, 1_000 + 40 * 864 * 1_000_000_000);
        assert!(before.changed(1_000).is_empty(), "once is enough");
        before.take("day", 0, day);
        clock.advance(Duration::from_secs(864));
        let kept = before.changed(1_000);
        assert_eq!(kept[0].full_at, 1_000 + 39 * 864 * 1_000_000_000);

        // The process was down for the time in which nine flow in.
        let (after, _) = buckets();
        after.restore(&kept[0], 1_000 + 9 * 864 * 1_000_000_000);
        assert_eq!(after.peek("day", 0, day).remaining, 70);
        assert!(!after.take("day", 71, day).allowed);
        assert!(after.take("day", 70, day).allowed);
        // One that is full by now needs no room.
        let (late, _) = buckets();
        late.restore(&kept[0], u64::MAX);
        assert!(late.states.lock().expect("lock").is_empty());
    }

    #[test]
    fn what_can_never_be_had_says_so() {
        let (buckets, _) = buckets();
        assert_eq!(buckets.take("a", 61, RATE), Verdict::NEVER);
        assert_eq!(buckets.take(&"n".repeat(257), 1, RATE), Verdict::NEVER);
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
