//! Spans of a request's parts, by the conventions for generative AI. Texts of callers and models are in none.

use std::future::Future;
use std::time::{Duration, Instant};

use mortise_models::Usage;
use mortise_plugin::{Finish, ParserEvent, PluginError};
use mortise_trace::{Span, SpanRole, Value, collected, short};

use crate::error::ServiceError;
use crate::observer::Outcome;
use crate::plugins::{ParseSession, PluginFuture};
use crate::request::{Prompt, RequestFields};

/// Run a part of the current span that a request may fail in.
pub(crate) async fn part<T>(
    name: &'static str,
    work: impl Future<Output = Result<T, ServiceError>>,
) -> Result<T, ServiceError> {
    mortise_trace::traced(name, Vec::new(), ServiceError::kind, work).await
}

/// Span of the answer to one prompt, which begins now.
pub(crate) fn of_prompt(fields: &RequestFields) -> Span {
    let operation = match fields.prompt {
        Prompt::Chat(_) => "chat",
        Prompt::Text(_) | Prompt::Tokens(_) => "text_completion",
    };
    let span = of_operation(operation, &fields.model);
    if !span.is_recorded() {
        return span;
    }
    for (name, number) in [
        ("gen_ai.request.temperature", fields.temperature),
        ("gen_ai.request.top_p", fields.top_p),
        ("gen_ai.request.frequency_penalty", fields.frequency_penalty),
        ("gen_ai.request.presence_penalty", fields.presence_penalty),
    ] {
        if let Some(number) = number {
            span.set(name, number);
        }
    }
    for (name, number) in [
        ("gen_ai.request.max_tokens", fields.max_tokens),
        ("gen_ai.request.top_k", fields.top_k),
        ("gen_ai.request.choice.count", fields.n.filter(|n| *n != 1)),
    ] {
        if let Some(number) = number {
            span.set(name, i64::from(number));
        }
    }
    if let Some(seed) = fields.seed {
        span.set("gen_ai.request.seed", seed);
    }
    span
}

/// Span of an operation on a model, as the caller named it.
pub(crate) fn of_operation(operation: &'static str, model: &str) -> Span {
    if !collected() {
        return Span::current();
    }
    let model = short(model);
    let attributes = vec![
        ("gen_ai.operation.name", Value::from(operation)),
        ("gen_ai.provider.name", Value::from("mortise")),
        ("gen_ai.request.model", Value::from(model.clone())),
    ];
    let name = format!("{operation} {model}");
    Span::current().child(name, SpanRole::Internal, attributes)
}

/// End the span of an answer.
pub(crate) fn end(span: &Span, model: &str, outcome: Outcome, usage: Usage) {
    if span.is_recorded() {
        span.set("gen_ai.response.model", model.to_owned());
        span.set("gen_ai.usage.input_tokens", i64::from(usage.prompt_tokens));
        span.set(
            "gen_ai.usage.cache_read.input_tokens",
            i64::from(usage.cached_tokens),
        );
        span.set(
            "gen_ai.usage.output_tokens",
            i64::from(usage.completion_tokens),
        );
        match outcome {
            Outcome::Finished(reason) => {
                let reasons = vec![reason.name().into()];
                span.set(
                    "gen_ai.response.finish_reasons",
                    Value::Array(mortise_trace::Array::String(reasons)),
                );
            }
            Outcome::Cancelled => span.set("error.type", "cancelled"),
            Outcome::Failed => span.fail("error"),
        }
    }
    span.end();
}

/// Phases of a choice, as its tokens tell: queue, prefill, decode.
#[derive(Debug)]
pub(crate) struct Phases {
    span: Span,
    submitted: Instant,
    /// When its first step began, where that is known.
    stepped: Option<Instant>,
    /// Times of its first and last token.
    tokens: Option<(Instant, Instant)>,
    count: i64,
}

impl Phases {
    /// Span of the answer that the choice is part of.
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// A choice that was submitted just now.
    pub(crate) fn begin(span: Span) -> Self {
        Self {
            span,
            submitted: Instant::now(),
            stepped: None,
            tokens: None,
            count: 0,
        }
    }

    /// Its sequence left the queue.
    pub(crate) fn admitted(&mut self, queued: Duration) {
        if self.stepped.is_none() {
            let stepped = self.submitted + queued;
            self.stepped = Some(stepped);
            self.span.past("queue", self.submitted, stepped, Vec::new());
        }
    }

    /// A token came.
    pub(crate) fn token(&mut self, now: Instant) {
        self.count += 1;
        match &mut self.tokens {
            Some((_, last)) => *last = now,
            None => {
                self.tokens = Some((now, now));
                if let Some(stepped) = self.stepped {
                    self.span.past("prefill", stepped, now, Vec::new());
                }
            }
        }
    }
}

impl Drop for Phases {
    fn drop(&mut self) {
        if let Some((first, last)) = self.tokens {
            let tokens = vec![("mortise.tokens", Value::from(self.count))];
            self.span.past("decode", first, last, tokens);
        }
    }
}

/// A parser's session that records how long it was asked.
struct TracedSession {
    session: Box<dyn ParseSession>,
    asked: Asked,
}

/// Calls into a session. The span is recorded when it ends.
struct Asked {
    span: Span,
    opened: Instant,
    calls: i64,
    busy: Duration,
}

impl Drop for Asked {
    fn drop(&mut self) {
        let attributes = vec![
            ("mortise.plugin.calls", Value::from(self.calls)),
            ("mortise.plugin.seconds", self.busy.as_secs_f64().into()),
        ];
        self.span
            .past("parser", self.opened, Instant::now(), attributes);
    }
}

/// Record what a session does, if the span of the answer is recorded.
pub(crate) fn session(span: &Span, session: Box<dyn ParseSession>) -> Box<dyn ParseSession> {
    if !span.is_sampled() {
        return session;
    }
    Box::new(TracedSession {
        session,
        asked: Asked {
            span: span.clone(),
            opened: Instant::now(),
            calls: 0,
            busy: Duration::ZERO,
        },
    })
}

impl ParseSession for TracedSession {
    fn feed<'a>(
        &'a mut self,
        text: &'a str,
        tokens: &'a [u32],
    ) -> PluginFuture<'a, Result<Vec<ParserEvent>, PluginError>> {
        Box::pin(async move {
            let began = Instant::now();
            let fed = self.session.feed(text, tokens).await;
            self.asked.calls += 1;
            self.asked.busy += began.elapsed();
            fed
        })
    }

    fn close(
        self: Box<Self>,
        finish: Finish,
    ) -> PluginFuture<'static, Result<Vec<ParserEvent>, PluginError>> {
        let Self { session, asked } = *self;
        Box::pin(async move {
            // As a whole: it is recorded when it is dropped.
            let mut asked = asked;
            let began = Instant::now();
            let closed = session.close(finish).await;
            asked.calls += 1;
            asked.busy += began.elapsed();
            closed
        })
    }
}

/// Record a run of a tool of the server.
pub(crate) fn tool_ran(span: &Span, tool: &str, failure: Option<&'static str>, took: Duration) {
    let now = Instant::now();
    let mut attributes = vec![
        ("gen_ai.operation.name", Value::from("execute_tool")),
        ("gen_ai.tool.name", Value::from(short(tool))),
    ];
    attributes.extend(failure.map(|failure| ("error.type", Value::from(failure))));
    let began = now.checked_sub(took).unwrap_or(now);
    let name = format!("execute_tool {}", short(tool));
    span.past(name, began, now, attributes);
}
