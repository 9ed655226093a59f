//! Access records: what is known of a request for its line in the access log and for the metrics. The line is
//! written when the last byte has been handed over or the client has gone, whichever is first.
//!
//! Neither prompts nor answers nor keys come through here.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};
use mortise_trace::{Span, short};

use crate::figures::{RequestFigures, RequestSums};

/// Longest name of a model or caller in a log line.
const MAX_NAME_CHARS: usize = 128;
/// Longest labels of a log line, all together.
const MAX_LABELS_CHARS: usize = 512;
/// Status in the log when the client went away before there was one.
const CLIENT_GONE: u16 = 499;

/// Figures of an answer, all of its prompts and choices together, as the service measured them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AnswerRecord {
    /// Tokens of prompts.
    pub prompt_tokens: u32,
    /// Prompt tokens found in the prefix cache.
    pub cached_tokens: u32,
    /// The answer came from the response cache.
    pub replayed: bool,
    /// Tokens generated.
    pub completion_tokens: u32,
    /// Queue time, if the request left the queue.
    pub queued: Option<Duration>,
    /// Time from arrival to the first token, if there was one.
    pub first_token: Option<Duration>,
    /// Name of the outcome.
    pub finish: &'static str,
    /// Cost of the request in millionths of the currency, if the model has a price.
    pub cost_micros: Option<u64>,
}

/// First characters of a name.
fn named(name: &str) -> String {
    name.chars().take(MAX_NAME_CHARS).collect()
}

/// Facts of a request whose body has been read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestStart {
    /// The model as the caller named it.
    pub model: Option<String>,
    /// A stream is asked for.
    pub stream: bool,
    /// Most tokens that the answer may have, as the caller gave it.
    pub max_tokens: Option<u32>,
    /// The caller's own name for its user.
    pub user: Option<String>,
}

/// Counts requests and writes their lines to the access log.
pub trait AccessObserver: Send + Sync {
    /// A request has arrived.
    fn request_began(&self);

    /// The body of a request has been read, and it is taken up.
    fn request_taken_up(&self, id: &str, route: &'static str, peer: IpAddr, begun: &RequestStart);

    /// A response has begun to be streamed.
    fn stream_began(&self);

    /// A streamed response has ended.
    fn stream_ended(&self);

    /// A request has ended: its last byte was handed over, or the client has gone.
    fn request_ended(&self, access: &EndedRequest<'_>);

    /// Figures of all requests so far.
    fn figures(&self) -> RequestFigures {
        RequestFigures::default()
    }

    /// Sums of the requests of one account, by the public names of the models that they named.
    fn sums(&self, _account: &str) -> BTreeMap<String, RequestSums> {
        BTreeMap::new()
    }
}

/// The record of a request that has ended.
#[derive(Debug, Clone, Copy)]
pub struct EndedRequest<'a> {
    /// The request's id.
    pub id: &'a str,
    /// The method, its first 16 characters.
    pub method: &'a str,
    /// One of a fixed set of labels.
    pub route: &'static str,
    /// 499 if the client went away before there was one.
    pub status: u16,
    /// The address of the client.
    pub peer: &'a str,
    /// The model as the caller named it, until it is known which one that is.
    pub model: Option<&'a str>,
    /// `model` is the public name of a model.
    pub known_model: bool,
    /// A stream was asked for.
    pub stream: bool,
    /// Most tokens that an answer may have, as the caller gave it.
    pub max_tokens: Option<u32>,
    /// Caller of the request.
    pub principal: Option<&'a str>,
    /// Tenant of the caller.
    pub tenant: Option<&'a str>,
    /// The account that the request counts for, whole: names above are cut.
    pub account: Option<&'a str>,
    /// Labels that policies gave, `name=value` with commas between them.
    pub labels: Option<&'a str>,
    /// The caller's own name for its user, as it gave it.
    pub user: Option<&'a str>,
    /// Figures of the answer, if there was one.
    pub answer: Option<AnswerRecord>,
    /// Time from arrival to the end.
    pub elapsed: Duration,
    /// Outcome of the answer, or `error`, or `cancelled`.
    pub finish: Option<&'a str>,
    /// The code of the error.
    pub error: Option<&'a str>,
    /// Id of the trace that the request is part of.
    pub trace_id: Option<&'a str>,
    /// The trace is recorded.
    pub sampled: bool,
}

/// Record of a request that is being served: its facts as they become known.
#[derive(Debug)]
pub struct AccessRecord {
    arrived: Instant,
    facts: Mutex<Facts>,
}

#[derive(Debug, Clone, Default)]
struct Facts {
    model: Option<String>,
    known_model: bool,
    max_tokens: Option<u32>,
    principal: Option<String>,
    tenant: Option<String>,
    account: Option<Arc<str>>,
    labels: Option<String>,
    user: Option<String>,
    stream: bool,
    answer: Option<AnswerRecord>,
    error: Option<String>,
}

impl AccessRecord {
    /// A request that has arrived.
    pub fn new(arrived: Instant) -> Self {
        Self {
            arrived,
            facts: Mutex::default(),
        }
    }

    /// Time at which the request arrived.
    pub fn arrived(&self) -> Instant {
        self.arrived
    }

    /// The model as the caller named it, until it is known which one that is.
    pub fn asked(&self, model: &str, stream: bool) {
        self.with(|facts| {
            facts.model = Some(model.chars().take(MAX_NAME_CHARS).collect());
            facts.stream = stream;
        });
    }

    /// The public name of the model that answers.
    pub fn answers(&self, model: &str) {
        self.with(|facts| {
            facts.model = Some(model.to_owned());
            facts.known_model = true;
        });
    }

    /// Most tokens that the answer may have, as the caller gave it.
    pub fn limited(&self, max_tokens: Option<u32>) {
        self.with(|facts| facts.max_tokens = max_tokens);
    }

    /// The caller's own name for its user.
    pub fn user(&self, user: &str) {
        self.with(|facts| facts.user = Some(named(user)));
    }

    /// Caller of the request: its name, its tenant, and the labels that policies gave.
    pub fn principal(&self, subject: &str, tenant: Option<&str>, labels: &[(String, String)]) {
        let labels = labels.iter().map(|(name, value)| format!("{name}={value}"));
        let labels = labels.collect::<Vec<_>>().join(",");
        self.with(|facts| {
            facts.principal = (!subject.is_empty()).then(|| named(subject));
            facts.tenant = tenant.map(named);
            facts.labels =
                (!labels.is_empty()).then(|| labels.chars().take(MAX_LABELS_CHARS).collect());
        });
    }

    /// The account that the request counts for.
    pub fn counts_for(&self, account: Arc<str>) {
        self.with(|facts| facts.account = Some(account));
    }

    /// Facts of a request whose answer is to begin.
    pub fn begun(&self) -> RequestStart {
        self.with(|facts| RequestStart {
            model: facts.model.clone(),
            stream: facts.stream,
            max_tokens: facts.max_tokens,
            user: facts.user.clone(),
        })
    }

    /// Figures of the answer, when it has ended.
    pub fn answered(&self, answer: AnswerRecord) {
        self.with(|facts| facts.answer = Some(answer));
    }

    /// The code of the error that the request met.
    pub fn error(&self, code: &str) {
        self.with(|facts| facts.error = Some(code.chars().take(MAX_NAME_CHARS).collect()));
    }

    /// Whether the request has met an error so far.
    pub fn has_failed(&self) -> bool {
        self.with(|facts| facts.error.is_some())
    }

    /// True if the caller is known.
    pub(crate) fn is_claimed(&self) -> bool {
        self.with(|facts| facts.account.is_some())
    }

    fn with<T>(&self, change: impl FnOnce(&mut Facts) -> T) -> T {
        // Facts are plain values: one that a panic left behind is as good as any.
        change(&mut self.facts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Guard that writes the line of the access log when it is dropped.
pub(crate) struct AccessGuard {
    pub(crate) id: Arc<str>,
    pub(crate) method: String,
    pub(crate) route: &'static str,
    pub(crate) peer: String,
    pub(crate) record: Arc<AccessRecord>,
    pub(crate) observer: Arc<dyn AccessObserver>,
    pub(crate) status: u16,
    /// The whole response was handed over.
    pub(crate) complete: bool,
    /// Span of the request.
    pub(crate) span: Span,
}

impl AccessGuard {
    pub(crate) fn begin(
        id: Arc<str>,
        method: String,
        route: &'static str,
        peer: String,
        record: Arc<AccessRecord>,
        observer: Arc<dyn AccessObserver>,
        span: Span,
    ) -> Self {
        observer.request_began();
        Self {
            id,
            method,
            route,
            peer,
            record,
            observer,
            status: CLIENT_GONE,
            complete: false,
            span,
        }
    }

    /// End the span with what became of the request.
    fn end_span(&self, facts: &Facts, finish: Option<&str>) {
        let span = &self.span;
        span.set("http.response.status_code", i64::from(self.status));
        if let Some(model) = &facts.model {
            span.set("gen_ai.request.model", short(model));
        }
        if let Some(finish) = finish {
            span.set("mortise.finish", finish.to_owned());
        }
        match &facts.error {
            // A client's error is no failure of the server.
            Some(error) if (400..500).contains(&self.status) => {
                span.set("error.type", short(error));
            }
            Some(error) => span.fail(error),
            None => {}
        }
        span.end();
    }
}

impl Drop for AccessGuard {
    fn drop(&mut self) {
        let facts = self.record.with(|facts| facts.clone());
        let elapsed = self.record.arrived.elapsed();
        let finish = match (&facts.error, self.complete) {
            (Some(_), _) => Some("error"),
            (None, false) => Some("cancelled"),
            (None, true) => facts.answer.map(|answer| answer.finish),
        };
        self.end_span(&facts, finish);
        self.observer.request_ended(&EndedRequest {
            id: &self.id,
            method: &self.method,
            route: self.route,
            status: self.status,
            peer: &self.peer,
            model: facts.model.as_deref(),
            known_model: facts.known_model,
            stream: facts.stream,
            max_tokens: facts.max_tokens,
            principal: facts.principal.as_deref(),
            tenant: facts.tenant.as_deref(),
            account: facts.account.as_deref(),
            labels: facts.labels.as_deref(),
            user: facts.user.as_deref(),
            answer: facts.answer,
            elapsed,
            finish,
            error: facts.error.as_deref(),
            trace_id: self.span.trace_id().as_deref(),
            sampled: self.span.is_sampled(),
        });
    }
}

/// A response body that keeps its guard until it ends.
pub(crate) struct GuardedBody {
    body: axum::body::Body,
    guard: AccessGuard,
    /// Bytes of a body of known length that are still to come.
    left: Option<u64>,
    /// Keeps the count of streams, while this is one.
    stream: Option<Arc<dyn AccessObserver>>,
}

impl GuardedBody {
    /// `length` is what the headers promise, if they do.
    pub(crate) fn new(
        body: axum::body::Body,
        guard: AccessGuard,
        length: Option<u64>,
        streams: bool,
    ) -> Self {
        let stream = streams.then(|| Arc::clone(&guard.observer));
        if let Some(observer) = &stream {
            observer.stream_began();
        }
        Self {
            left: length.or_else(|| body.size_hint().exact()),
            body,
            guard,
            stream,
        }
    }
}

impl Drop for GuardedBody {
    fn drop(&mut self) {
        // hyper does not poll a body past its last byte when it knows the length.
        if self.left == Some(0) || self.body.is_end_stream() {
            self.guard.complete = true;
        }
        if let Some(observer) = &self.stream {
            observer.stream_ended();
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
        let _current = self.guard.span.enter();
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Ready(None) => self.guard.complete = true,
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                self.left = self.left.map(|left| left.saturating_sub(bytes));
            }
            _ => {}
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
