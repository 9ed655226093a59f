//! Rate limit of what a plugin writes to the server's log over all its calls. A flood costs those who read the
//! log more than it costs the guest.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

use crate::limits::{LOG_BYTES_PER_SECOND, MAX_LOG_BYTES_PER_CALL};

/// The rate of one binding.
pub(crate) struct LogRate {
    bytes: DefaultDirectRateLimiter,
    /// Lines that say how many lines were dropped.
    reports: DefaultDirectRateLimiter,
    /// Lines that were dropped and not reported.
    dropped: AtomicU64,
}

impl LogRate {
    pub(crate) fn new() -> Self {
        // A call that was quiet so far may write all that a call may.
        let call = u32::try_from(MAX_LOG_BYTES_PER_CALL).map_or(NonZeroU32::MAX, at_least_one);
        let bytes = Quota::per_second(at_least_one(LOG_BYTES_PER_SECOND)).allow_burst(call);
        Self {
            bytes: RateLimiter::direct(bytes),
            reports: RateLimiter::direct(Quota::per_second(NonZeroU32::MIN)),
            dropped: AtomicU64::new(0),
        }
    }

    /// Whether a line of so many bytes may be written now.
    pub(crate) fn admits(&self, bytes: usize) -> bool {
        let bytes = u32::try_from(bytes).map_or(NonZeroU32::MAX, at_least_one);
        matches!(self.bytes.check_n(bytes), Ok(Ok(())))
    }

    /// Learn that a call dropped so many lines, and say how many to report now: at most once a second.
    pub(crate) fn to_report(&self, dropped: u64) -> Option<u64> {
        if dropped == 0 {
            return None;
        }
        self.dropped.fetch_add(dropped, Ordering::Relaxed);
        let now = self.reports.check().is_ok();
        now.then(|| self.dropped.swap(0, Ordering::Relaxed))
    }
}

fn at_least_one(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_may_write_what_a_call_may_and_then_little() {
        let rate = LogRate::new();
        assert!(rate.admits(MAX_LOG_BYTES_PER_CALL));
        assert!(!rate.admits(MAX_LOG_BYTES_PER_CALL));
        assert!(!LogRate::new().admits(usize::MAX));
    }

    #[test]
    fn dropped_lines_are_reported_together() {
        let rate = LogRate::new();
        assert_eq!(rate.to_report(0), None);
        assert_eq!(rate.to_report(3), Some(3));
        assert_eq!(rate.to_report(4), None);
        assert_eq!(rate.dropped.load(Ordering::Relaxed), 4);
    }
}
