//! Times after which stored records are gone.

use std::time::Duration;

/// Times after which stored records are gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// Responses, stored completions, files and batches; `None` keeps them.
    pub answers: Option<Duration>,
    /// Answers to requests with an idempotency key; zero leaves the keys out of account.
    pub idempotency: Duration,
}

impl Retention {
    /// When an answer made at `created` is gone, in seconds since 1970.
    pub(crate) fn answer_expires(self, created: i64) -> Option<i64> {
        self.answers.map(|time| after(created, time))
    }
}

/// A time after another, both in seconds since 1970.
pub(crate) fn after(created: i64, time: Duration) -> i64 {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    created.saturating_add(seconds)
}
