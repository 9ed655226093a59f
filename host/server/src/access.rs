//! What is remembered of a request for its line in the access log and for the metrics. The line is
//! written when the last byte has been handed over or the client has gone, whichever is first.
//!
//! Neither prompts nor answers nor keys come through here.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};
use mortise_service::Usage;

use crate::metrics::{Metrics, Outcome};

/// Longest name of a model or caller in a log line.
const MAX_NAME_CHARS: usize = 128;
/// Status in the log when the client went away before there was one.
const CLIENT_GONE: u16 = 499;

/// Facts that become known on the way.
#[derive(Debug)]
pub(crate) struct Notes {
    arrived: Instant,
    facts: Mutex<Facts>,
}

#[derive(Debug, Clone, Default)]
struct Facts {
    model: Option<String>,
    known_model: bool,
    principal: Option<String>,
    stream: bool,
    usage: Option<Usage>,
    first_token: Option<Duration>,
    finish: Option<&'static str>,
    error: Option<String>,
}

impl Notes {
    pub(crate) fn new(arrived: Instant) -> Self {
        Self {
            arrived,
            facts: Mutex::default(),
        }
    }

    pub(crate) fn arrived(&self) -> Instant {
        self.arrived
    }

    /// The model as the caller named it, until it is known which one that is.
    pub(crate) fn asked(&self, model: &str, stream: bool) {
        self.with(|facts| {
            facts.model = Some(model.chars().take(MAX_NAME_CHARS).collect());
            facts.stream = stream;
        });
    }

    /// The public name of the model that answers.
    pub(crate) fn answers(&self, model: &str) {
        self.with(|facts| {
            facts.model = Some(model.to_owned());
            facts.known_model = true;
        });
    }

    /// Who is asking.
    pub(crate) fn principal(&self, subject: &str) {
        if !subject.is_empty() {
            let subject = subject.chars().take(MAX_NAME_CHARS).collect();
            self.with(|facts| facts.principal = Some(subject));
        }
    }

    pub(crate) fn first_token(&self) {
        self.with(|facts| {
            facts
                .first_token
                .get_or_insert_with(|| self.arrived.elapsed());
        });
    }

    /// How the first choice ended.
    pub(crate) fn finish(&self, reason: &'static str) {
        self.with(|facts| {
            facts.finish.get_or_insert(reason);
        });
    }

    pub(crate) fn usage(&self, usage: Usage) {
        self.with(|facts| facts.usage = Some(usage));
    }

    pub(crate) fn error(&self, code: &str) {
        self.with(|facts| facts.error = Some(code.chars().take(MAX_NAME_CHARS).collect()));
    }

    fn with<T>(&self, change: impl FnOnce(&mut Facts) -> T) -> T {
        // Facts are plain values: one that a panic left behind is as good as any.
        change(&mut self.facts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Writes the line when it is dropped.
pub(crate) struct AccessGuard {
    pub(crate) id: Arc<str>,
    pub(crate) method: String,
    pub(crate) route: &'static str,
    pub(crate) peer: String,
    pub(crate) notes: Arc<Notes>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) status: u16,
    /// The whole response was handed over.
    pub(crate) complete: bool,
}

impl AccessGuard {
    pub(crate) fn begin(
        id: Arc<str>,
        method: String,
        route: &'static str,
        peer: String,
        notes: Arc<Notes>,
        metrics: Arc<Metrics>,
    ) -> Self {
        metrics.begin();
        Self {
            id,
            method,
            route,
            peer,
            notes,
            metrics,
            status: CLIENT_GONE,
            complete: false,
        }
    }
}

impl Drop for AccessGuard {
    fn drop(&mut self) {
        let facts = self.notes.with(|facts| facts.clone());
        let elapsed = self.notes.arrived.elapsed();
        let usage = facts.usage.unwrap_or_default();
        let finish = match (&facts.error, self.complete) {
            (Some(_), _) => Some("error"),
            (None, false) => Some("cancelled"),
            (None, true) => facts.finish,
        };
        self.metrics.end(&Outcome {
            route: self.route,
            status: self.status,
            model: facts.model.as_deref().filter(|_| facts.known_model),
            error: facts.error.as_deref(),
            elapsed,
            first_token: facts.first_token,
            usage,
        });
        tracing::info!(
            target: "mortise::access",
            id = &*self.id,
            method = self.method,
            route = self.route,
            status = self.status,
            peer = self.peer,
            model = facts.model,
            stream = facts.stream,
            principal = facts.principal,
            prompt_tokens = usage.prompt_tokens,
            cached_tokens = usage.cached_tokens,
            completion_tokens = usage.completion_tokens,
            ttft_ms = facts.first_token.map(milliseconds),
            total_ms = milliseconds(elapsed),
            finish,
            error = facts.error,
            "request"
        );
    }
}

fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}

/// A response body that keeps its guard until it ends.
pub(crate) struct GuardedBody {
    body: axum::body::Body,
    guard: AccessGuard,
    /// Keeps the count of streams, while this is one.
    stream: Option<Arc<Metrics>>,
}

impl GuardedBody {
    pub(crate) fn new(body: axum::body::Body, guard: AccessGuard, streams: bool) -> Self {
        let stream = streams.then(|| Arc::clone(&guard.metrics));
        if let Some(metrics) = &stream {
            metrics.stream_began();
        }
        Self {
            body,
            guard,
            stream,
        }
    }
}

impl Drop for GuardedBody {
    fn drop(&mut self) {
        // hyper does not poll a body past its last frame when it knows the length.
        if self.body.is_end_stream() {
            self.guard.complete = true;
        }
        if let Some(metrics) = &self.stream {
            metrics.stream_ended();
        }
    }
}

impl Body for GuardedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) {
            self.guard.complete = true;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The guarded body as the router's own type.
pub(crate) fn guarded(body: GuardedBody) -> axum::body::Body {
    axum::body::Body::new(body.boxed_unsync())
}
