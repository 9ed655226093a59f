//! Time that a submission waits in the queue before its first step.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Queue time of one submission. The queue place records it when the place is freed; the streams of
/// the submission report it.
#[derive(Debug, Clone)]
pub(crate) struct QueueTimer {
    submitted: Instant,
    waited: Arc<OnceLock<Duration>>,
}

impl QueueTimer {
    /// Start the clock.
    pub(crate) fn start() -> Self {
        Self {
            submitted: Instant::now(),
            waited: Arc::default(),
        }
    }

    /// Stop the clock. Only the first call counts.
    pub(crate) fn stop(&self) {
        self.waited.get_or_init(|| self.submitted.elapsed());
    }

    /// Queue time, once the submission has left the queue.
    pub(crate) fn get(&self) -> Option<Duration> {
        self.waited.get().copied()
    }
}
