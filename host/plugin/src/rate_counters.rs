//! Counters that policies draw from, wherever they are kept: in this process ([`Ledger`](crate::Ledger)), or with others.

use std::future::Future;
use std::pin::Pin;

/// Longest period, a century: longer ones would overflow the 64 bits of nanoseconds of a state.
const MAX_PERIOD_MS: u64 = 100 * 365 * 24 * 3_600_000;

/// A count under way.
pub type Counting<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Token buckets by name. A home that cannot be reached answers as its operator chose; it never fails.
pub trait RateCounters: Send + Sync {
    /// Take `cost` if the bucket has it; atomic. A cost of 0 asks whether the bucket is overdrawn.
    fn take<'a>(&'a self, bucket: &'a str, cost: u64, rate: Rate) -> Counting<'a, Verdict>;

    /// Answer that [`take`](Self::take) would give. The bucket stays as it is.
    fn peek<'a>(&'a self, bucket: &'a str, cost: u64, rate: Rate) -> Counting<'a, Verdict>;

    /// Charge more (positive) or give back (negative); the bucket may become overdrawn.
    fn adjust<'a>(&'a self, bucket: &'a str, delta: i64, rate: Rate) -> Counting<'a, ()>;
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

pub(crate) const REFUSED: Verdict = Verdict {
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
    pub(crate) fn period_ns(self) -> u128 {
        u128::from(self.period_ms.min(MAX_PERIOD_MS)) * 1_000_000
    }

    /// The time in which `amount` flows in, rounded up: a bucket never gives more than it has.
    pub(crate) fn time_for(self, amount: u64) -> u128 {
        match self.capacity {
            0 => 0,
            capacity => (u128::from(amount) * self.period_ns()).div_ceil(u128::from(capacity)),
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
