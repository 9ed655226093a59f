//! Rest of a policy that broke down when it was asked for limits.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time for which a policy that broke down is not asked for limits again: longer than the window of its breaker, so that
/// whoever looks at limits suspends no policy.
const REST: Duration = Duration::from_secs(60);

/// Time of the last breakdown in telling limits.
#[derive(Debug, Default)]
pub(crate) struct QuotasRest(Mutex<Option<Instant>>);

impl QuotasRest {
    /// A breakdown happened.
    pub(crate) fn begin(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// True while the policy is not asked.
    pub(crate) fn lasts(&self) -> bool {
        let began = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        began.is_some_and(|began| began.elapsed() < REST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_breakdown_is_followed_by_a_rest() {
        let rest = QuotasRest::default();
        assert!(!rest.lasts());
        rest.begin();
        assert!(rest.lasts());
    }
}
