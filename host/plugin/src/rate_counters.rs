//! Counters that policies draw from, wherever they are kept: in this process ([`Ledger`](crate::Ledger)), or with others.

use std::future::Future;
use std::pin::Pin;

/// Longest period, a century: longer ones would overflow the 64 bits of nanoseconds of a state.
const MAX_PERIOD_MS: u64 = 100 * 365 * 24 * 3_600_000;

/// A count under way.
pub type Counting<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Beginning of the names of buckets that count what is under way. A restart ends that, so they are not kept over one; where
/// hosts share counters, a host that dies gives its share back.
pub const UNDER_WAY: char = '~';

/// The home of the counters cannot be reached, and its operator chose that nothing is decided without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the counters that several hosts share cannot be reached")]
pub struct CountersLost;

/// Token buckets by name. A change that cannot be made at once is made later, by whoever keeps the counters.
pub trait RateCounters: Send + Sync {
    /// Take `cost` if the bucket has it; atomic. A cost of 0 asks whether the bucket is overdrawn.
    fn take<'a>(
        &'a self,
        bucket: &'a str,
        cost: u64,
        rate: Rate,
    ) -> Counting<'a, Result<Verdict, CountersLost>>;

    /// Answer that [`take`](Self::take) would give. The bucket stays as it is.
    fn peek<'a>(
        &'a self,
        bucket: &'a str,
        cost: u64,
        rate: Rate,
    ) -> Counting<'a, Result<Verdict, CountersLost>>;

    /// Make several withdrawals as if one after the other, or none: atomic. There is a verdict for each; where one is not
    /// allowed, the others tell what is left without any. With `takes` false, only tell what the answer would be.
    fn take_all<'a>(
        &'a self,
        withdrawals: &'a [Withdrawal],
        takes: bool,
    ) -> Counting<'a, Result<Vec<Verdict>, CountersLost>>;

    /// State of each of several buckets, by whoever keeps the counters. The buckets stay as they are.
    fn levels<'a>(
        &'a self,
        buckets: &'a [(String, Rate)],
    ) -> Counting<'a, Result<Vec<Level>, CountersLost>>;

    /// Charge more (positive) or give back (negative); the bucket may become overdrawn.
    fn adjust<'a>(&'a self, bucket: &'a str, delta: i64, rate: Rate) -> Counting<'a, ()>;
}

/// One of several withdrawals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Withdrawal {
    /// Name of the bucket.
    pub bucket: String,
    /// Amount to take.
    pub cost: u64,
    /// Capacity and period of the bucket.
    pub rate: Rate,
}

/// The outcome of a withdrawal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// True if the cost was taken.
    pub allowed: bool,
    /// Amount left in the bucket.
    pub remaining: u64,
    /// Time until the same withdrawal could succeed; `u64::MAX` if never.
    pub retry_after_ms: u64,
}

impl Verdict {
    /// Answer to a withdrawal that can never be made.
    pub const NEVER: Self = Self {
        allowed: false,
        remaining: 0,
        retry_after_ms: u64::MAX,
    };
}

/// State of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// Amount drawn that has not flowed in again; more than the capacity where the bucket is overdrawn.
    pub used: u64,
    /// Amount left.
    pub remaining: u64,
    /// Time until the bucket is full, in milliseconds; `None` where nobody knows: it counts what is under way.
    pub full_in_ms: Option<u64>,
}

impl Level {
    /// State of a bucket that counts what is under way.
    pub fn of_places(taken: u64, capacity: u64) -> Self {
        Self {
            used: taken,
            remaining: capacity.saturating_sub(taken),
            full_in_ms: None,
        }
    }
}

/// Capacity of a bucket and the time in which it fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// At most so much.
    pub capacity: u64,
    /// From empty to full.
    pub period_ms: u64,
}

impl Rate {
    pub(crate) fn period_ns(self) -> u128 {
        u128::from(self.period_ms.min(MAX_PERIOD_MS)) * 1_000_000
    }

    /// Nanoseconds in which `amount` flows in, rounded up: a bucket never gives more than it has.
    pub fn time_for(self, amount: u64) -> u128 {
        match self.capacity {
            0 => 0,
            capacity => (u128::from(amount) * self.period_ns()).div_ceil(u128::from(capacity)),
        }
    }

    /// Answer to a withdrawal. After it, if it is allowed, the bucket is drawn `after` nanoseconds ahead of now; if not, it is
    /// drawn so far without it.
    pub fn verdict(self, cost: u64, allowed: bool, after: u128) -> Verdict {
        let room = self.period_ns().saturating_sub(after);
        let wanted = after + self.time_for(cost);
        let wait = match allowed {
            true => 0,
            false => wanted.saturating_sub(self.period_ns()),
        };
        Verdict {
            allowed,
            remaining: self.amount_in(room).min(self.capacity),
            retry_after_ms: u64::try_from(wait.div_ceil(1_000_000)).unwrap_or(u64::MAX),
        }
    }

    /// State of a bucket that is drawn so many nanoseconds ahead of now.
    pub fn level(self, ahead: u128) -> Level {
        let period = self.period_ns();
        let remaining = self
            .amount_in(period.saturating_sub(ahead))
            .min(self.capacity);
        let overdrawn = match period {
            0 => 0,
            period => (ahead.saturating_sub(period) * u128::from(self.capacity)).div_ceil(period),
        };
        let used = u128::from(self.capacity - remaining) + overdrawn;
        Level {
            used: u64::try_from(used).unwrap_or(u64::MAX),
            remaining,
            full_in_ms: Some(u64::try_from(ahead.div_ceil(1_000_000)).unwrap_or(u64::MAX)),
        }
    }

    /// Amount that flows in during `nanoseconds`.
    pub(crate) fn amount_in(self, nanoseconds: u128) -> u64 {
        match self.period_ns() {
            0 => self.capacity,
            period => {
                u64::try_from(nanoseconds * u128::from(self.capacity) / period).unwrap_or(u64::MAX)
            }
        }
    }
}
