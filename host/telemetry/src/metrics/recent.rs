//! Figures for those who watch a server live: tokens generated so far, and times to first token of late.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// First tokens that are kept.
const KEPT: usize = 512;

/// Time for which they count.
const WINDOW: Duration = Duration::from_secs(60);

/// Times to first token over the last minute, of the last requests at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstTokens {
    /// Requests.
    pub count: usize,
    /// Half of them took no longer.
    pub p50: Duration,
    /// 95 in 100 took no longer.
    pub p95: Duration,
}

#[derive(Debug, Default)]
pub(super) struct RecentWindow {
    generated: AtomicU64,
    first: Mutex<VecDeque<(Instant, Duration)>>,
}

impl RecentWindow {
    /// The first token of a request came.
    pub(super) fn first_token(&self, after: Duration) {
        self.generated.fetch_add(1, Relaxed);
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if first.len() >= KEPT {
            first.pop_front();
        }
        first.push_back((Instant::now(), after));
    }

    /// A further token came.
    pub(super) fn next_token(&self) {
        self.generated.fetch_add(1, Relaxed);
    }

    /// Tokens since the start.
    pub(super) fn generated(&self) -> u64 {
        self.generated.load(Relaxed)
    }

    /// Times to first token; `None` if no request got one of late.
    pub(super) fn first_tokens(&self) -> Option<FirstTokens> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let of_late = first.iter().filter(|(at, _)| at.elapsed() < WINDOW);
        let mut times: Vec<Duration> = of_late.map(|(_, after)| *after).collect();
        drop(first);
        times.sort_unstable();
        let quantile = |percent: usize| {
            let rank = (times.len() * percent).div_ceil(100).max(1);
            times.get(rank - 1).copied()
        };
        Some(FirstTokens {
            count: times.len(),
            p50: quantile(50)?,
            p95: quantile(95)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_counted_and_times_are_bounded() {
        let recent = RecentWindow::default();
        assert_eq!(recent.first_tokens(), None);
        for milliseconds in 1..=100 {
            recent.first_token(Duration::from_millis(milliseconds));
            recent.next_token();
        }
        assert_eq!(recent.generated(), 200);
        let found = recent.first_tokens().expect("times");
        assert_eq!(found.count, 100);
        assert_eq!(found.p50, Duration::from_millis(50));
        assert_eq!(found.p95, Duration::from_millis(95));
        for _ in 0..2 * KEPT {
            recent.first_token(Duration::ZERO);
        }
        assert_eq!(recent.first_tokens().expect("times").count, KEPT);
    }
}
