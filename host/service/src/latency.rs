//! Latency of a request: queue time, time to first token, inter-token latency.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use mortise_trace::Span;

use crate::observer::ModelObserver;
use crate::spans::Phases;

/// Figures of one request, shared by its choices.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    queued: OnceLock<Duration>,
    first_token: OnceLock<Duration>,
}

impl Latency {
    /// Time in the queue of the choice that left it first.
    pub(crate) fn queued(&self) -> Option<Duration> {
        self.queued.get().copied()
    }

    /// Time from the request's arrival to its first token.
    pub(crate) fn first_token(&self) -> Option<Duration> {
        self.first_token.get().copied()
    }
}

/// Measures the tokens of one choice and reports them.
pub(crate) struct TokenTimer {
    observer: Arc<dyn ModelObserver>,
    request: Arc<Latency>,
    arrived: Instant,
    /// Arrival of the last token; `None` before the first one and right after tools have run.
    last: Option<Instant>,
    phases: Phases,
}

impl TokenTimer {
    /// A timer for a choice of a request that arrived at `arrived`, which is part of the answer of `span`.
    pub(crate) fn new(
        observer: Arc<dyn ModelObserver>,
        request: Arc<Latency>,
        arrived: Instant,
        span: Span,
    ) -> Self {
        Self {
            observer,
            request,
            arrived,
            last: None,
            phases: Phases::begin(span),
        }
    }

    /// The choice's sequence has left the queue.
    pub(crate) fn admitted(&mut self, queued: Duration) {
        self.phases.admitted(queued);
        if self.request.queued.set(queued).is_ok() {
            self.observer.admitted(queued, self.phases.span());
        }
    }

    /// Whether no token has come yet.
    pub(crate) fn awaits_first(&self) -> bool {
        self.last.is_none()
    }

    /// A token came.
    pub(crate) fn token(&mut self) {
        let now = Instant::now();
        self.phases.token(now);
        if let Some(last) = self.last.replace(now) {
            self.observer.next_token(now.duration_since(last));
            return;
        }
        let after = now.duration_since(self.arrived);
        if self.request.first_token.set(after).is_ok() {
            self.observer.first_token(after, self.phases.span());
        }
    }
}
