//! Spans: work of a request with a beginning, an end and attributes.

use std::borrow::Cow;
use std::future::Future;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

use futures::future::Either;
use http::HeaderMap;
use opentelemetry::trace::{
    FutureExt as _, SpanKind, SpanRef, Status, TraceContextExt as _, TraceId, Tracer as _,
};
use opentelemetry::{Context, ContextGuard, KeyValue};
use opentelemetry_sdk::trace::SdkTracer;

pub use opentelemetry::{Array, Value};

use crate::headers;
use crate::limits::MAX_VALUE_CHARS;

/// Maker of spans; none without a collector.
static TRACER: OnceLock<SdkTracer> = OnceLock::new();

/// Make spans from now on.
pub(crate) fn record_with(tracer: SdkTracer) {
    // A process has one collector, which it is given at its start.
    let _ = TRACER.set(tracer);
}

/// True if there is a collector, so that attributes are worth their making.
pub fn collected() -> bool {
    TRACER.get().is_some()
}

/// Part of a span in an exchange between servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanRole {
    /// Work of this process.
    Internal,
    /// A request that another server answers.
    Client,
}

/// A span, and the trace that it is part of. Clones are the same span, which ends with the last of them if it has
/// not ended before. Where there is neither a collector nor a caller that names a trace, there is nothing to hand on.
#[derive(Debug, Clone, Default)]
pub struct Span(Option<Context>);

impl Span {
    /// The span that runs now; one of no trace if there is none.
    pub fn current() -> Self {
        let held = |context: &Context| context.has_active_span().then(|| context.clone());
        Self(Context::map_current(held))
    }

    /// The span of a request that arrived with these headers.
    pub fn of_request(name: impl Into<Cow<'static, str>>, headers: &HeaderMap) -> Self {
        let parent = Some(headers::context_of(headers));
        let parent = parent.filter(|parent| parent.span().span_context().is_valid());
        Self::start(parent.as_ref(), name.into(), SpanKind::Server, Vec::new())
    }

    /// A part of this one that begins now.
    pub fn child(
        &self,
        name: impl Into<Cow<'static, str>>,
        kind: SpanRole,
        attributes: Vec<(&'static str, Value)>,
    ) -> Self {
        let kind = match kind {
            SpanRole::Internal => SpanKind::Internal,
            SpanRole::Client => SpanKind::Client,
        };
        Self::start(self.0.as_ref(), name.into(), kind, attributes)
    }

    fn start(
        parent: Option<&Context>,
        name: Cow<'static, str>,
        kind: SpanKind,
        attributes: Vec<(&'static str, Value)>,
    ) -> Self {
        let Some(tracer) = TRACER.get() else {
            return Self(parent.cloned());
        };
        let builder = tracer.span_builder(name).with_kind(kind);
        let builder = builder.with_attributes(pairs(attributes));
        let parent = parent.cloned().unwrap_or_default();
        Self(Some(
            parent.with_span(builder.start_with_context(tracer, &parent)),
        ))
    }

    fn span(&self) -> Option<SpanRef<'_>> {
        self.0.as_ref().map(Context::span)
    }

    /// Record a part of this one that has been.
    pub fn past(
        &self,
        name: impl Into<Cow<'static, str>>,
        from: Instant,
        to: Instant,
        attributes: Vec<(&'static str, Value)>,
    ) {
        use opentelemetry::trace::Span as _;
        let (Some(tracer), Some(context), true) = (TRACER.get(), &self.0, self.is_sampled()) else {
            return;
        };
        // In this order, a pause in between makes the part later, and never begin before the span that it is a part of.
        let read = Instant::now();
        let now = SystemTime::now();
        let wall = |instant: Instant| {
            let ago = read.saturating_duration_since(instant);
            now.checked_sub(ago).unwrap_or(now)
        };
        let builder = tracer.span_builder(name).with_start_time(wall(from));
        let builder = builder.with_attributes(pairs(attributes));
        let mut span = builder.start_with_context(tracer, context);
        span.end_with_timestamp(wall(to.max(from)));
    }

    /// True if attributes of the span are kept.
    pub fn is_recorded(&self) -> bool {
        self.span().is_some_and(|span| span.is_recording())
    }

    /// True if parts of the span are recorded, even when it has ended.
    pub fn is_sampled(&self) -> bool {
        let sampled = |span: SpanRef<'_>| span.span_context().is_sampled();
        TRACER.get().is_some() && self.span().is_some_and(sampled)
    }

    /// Set an attribute.
    pub fn set(&self, name: &'static str, value: impl Into<Value>) {
        if let Some(span) = self.span().filter(SpanRef::is_recording) {
            span.set_attribute(KeyValue::new(name, value));
        }
    }

    /// The work failed with an error of this type, which is one of few.
    pub fn fail(&self, error_type: &str) {
        if let Some(span) = self.span().filter(SpanRef::is_recording) {
            span.set_attribute(KeyValue::new("error.type", short(error_type)));
            // Messages may quote what callers wrote.
            span.set_status(Status::error(""));
        }
    }

    /// The work has ended. Only the first call counts.
    pub fn end(&self) {
        if let Some(span) = self.span() {
            span.end();
        }
    }

    /// Id of the trace in hexadecimal, if there is one.
    pub fn trace_id(&self) -> Option<String> {
        let id = self.span()?.span_context().trace_id();
        (id != TraceId::INVALID).then(|| id.to_string())
    }

    /// Name the span in the headers of a request to another server.
    pub fn name_in(&self, headers: &mut HeaderMap) {
        if let Some(context) = &self.0 {
            headers::name(context, headers);
        }
    }

    /// Run a future as part of the span.
    pub fn run<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        match &self.0 {
            Some(context) => Either::Left(future.with_context(context.clone())),
            None => Either::Right(future),
        }
    }

    /// Make the span current until the guard is dropped, on this thread.
    pub fn enter(&self) -> Option<ContextGuard> {
        self.0.clone().map(Context::attach)
    }
}

fn pairs(attributes: Vec<(&'static str, Value)>) -> Vec<KeyValue> {
    let pairs = attributes.into_iter();
    pairs
        .map(|(name, value)| KeyValue::new(name, value))
        .collect()
}

/// First characters of a text that a caller chose, as the value of an attribute.
pub fn short(text: &str) -> String {
    text.chars().take(MAX_VALUE_CHARS).collect()
}

/// Run a part of the current span; `error_type` names its failure.
pub async fn traced<T, E>(
    name: &'static str,
    attributes: Vec<(&'static str, Value)>,
    error_type: fn(&E) -> &'static str,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let span = Span::current().child(name, SpanRole::Internal, attributes);
    let result = span.run(work).await;
    if TRACER.get().is_some() {
        if let Err(error) = &result {
            span.fail(error_type(error));
        }
        span.end();
    }
    result
}
