//! From the service's events to bytes: one JSON body, or server-sent events as they come.
//!
//! One task serves one answer. Dropping the body drops the service's answers, which cancels them.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::FutureExt as _;
use futures::stream::{self, BoxStream, SelectAll, StreamExt as _};
use http::{HeaderValue, StatusCode, header};
use mortise_http::{Notes, Problem as ApiError, TokenCounts, panicked, stopping};
use mortise_service::{
    Answer, AnswerEvent, Delta, FinishReason, ServiceError, TokenLogprob, Usage,
};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::error::error_body;
use crate::problem::problem_of;

/// Events that wait already are sent together, up to this many bytes.
const BATCH_BYTES: usize = 8 * 1024;

/// One step of an answer, with the choices of several prompts numbered through.
pub(crate) enum Step {
    Delta(u32, Delta, Vec<TokenLogprob>),
    Finished(u32, FinishReason),
    Completed(Usage),
    Failed(ApiError),
}

/// The service's answers to the prompts of one request, merged.
pub(crate) struct Answers {
    events: SelectAll<BoxStream<'static, (u32, AnswerEvent)>>,
    /// Choices for each prompt.
    n: u32,
    /// Prompts that are not complete.
    open: usize,
    usage: Usage,
    notes: Arc<Notes>,
    /// Turns true when the time to drain is over.
    cut: watch::Receiver<bool>,
}

impl Answers {
    pub(crate) fn new(
        answers: Vec<Answer>,
        n: u32,
        notes: Arc<Notes>,
        cut: watch::Receiver<bool>,
    ) -> Self {
        let open = answers.len();
        let events = answers.into_iter().zip(0_u32..).map(|(answer, prompt)| {
            // The state lives in the stream, so a poll that is given up loses nothing.
            stream::unfold(answer, move |mut answer| async move {
                let event = answer.next().await?;
                Some(((prompt, event), answer))
            })
            .boxed()
        });
        Self {
            events: stream::select_all(events),
            n,
            open,
            usage: Usage::default(),
            notes,
            cut,
        }
    }

    /// The next step. Nothing follows `Completed` and `Failed`. Cancel safe.
    pub(crate) async fn next(&mut self) -> Step {
        loop {
            let event = tokio::select! {
                biased;
                _ = self.cut.wait_for(|cut| *cut) => None,
                event = self.events.next() => Some(event),
            };
            let Some(event) = event else {
                return self.fail(stopping());
            };
            let Some((prompt, event)) = event else {
                let lost = ServiceError::Engine("the answer broke off".to_owned());
                return self.fail(problem_of(lost));
            };
            if let Some(step) = self.step(prompt, event) {
                return step;
            }
        }
    }

    fn step(&mut self, prompt: u32, event: AnswerEvent) -> Option<Step> {
        match event {
            AnswerEvent::Delta {
                choice,
                delta,
                logprobs,
            } => {
                self.notes.first_token();
                Some(Step::Delta(prompt * self.n + choice, delta, logprobs))
            }
            AnswerEvent::Finished { choice, reason } => {
                self.notes.finish(super::reply::finish_name(reason, false));
                Some(Step::Finished(prompt * self.n + choice, reason))
            }
            AnswerEvent::Completed { usage } => {
                self.usage.prompt_tokens += usage.prompt_tokens;
                self.usage.cached_tokens += usage.cached_tokens;
                self.usage.completion_tokens += usage.completion_tokens;
                self.usage.reasoning_tokens += usage.reasoning_tokens;
                self.open -= 1;
                self.notes.usage(TokenCounts {
                    prompt: self.usage.prompt_tokens,
                    cached: self.usage.cached_tokens,
                    completion: self.usage.completion_tokens,
                });
                (self.open == 0).then_some(Step::Completed(self.usage))
            }
            AnswerEvent::Failed(error) => Some(self.fail(problem_of(error))),
        }
    }

    fn fail(&self, error: ApiError) -> Step {
        self.notes.error(&error.code);
        Step::Failed(error)
    }
}

/// Turns steps into server-sent events of one dialect.
pub(crate) trait Writer: Send + 'static {
    /// What is sent before the first step.
    fn opening(&mut self, out: &mut Vec<u8>);
    fn delta(&mut self, choice: u32, delta: Delta, logprobs: Vec<TokenLogprob>, out: &mut Vec<u8>);
    fn finished(&mut self, choice: u32, reason: FinishReason, out: &mut Vec<u8>);
    fn completed(&mut self, usage: Usage, out: &mut Vec<u8>);
}

/// A streamed answer.
struct EventStream<W> {
    answers: Answers,
    writer: W,
    heartbeat: Interval,
    opened: bool,
    ended: bool,
}

impl<W: Writer> EventStream<W> {
    /// The next bytes to send; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        let mut out = Vec::with_capacity(512);
        if !self.opened {
            self.opened = true;
            self.writer.opening(&mut out);
            if !out.is_empty() {
                return Some(out.into());
            }
        }
        let step = tokio::select! {
            biased;
            step = self.answers.next() => step,
            _ = self.heartbeat.tick() => return Some(Bytes::from_static(b": keep-alive\n\n")),
        };
        self.write(step, &mut out);
        while !self.ended && out.len() < BATCH_BYTES {
            match self.answers.next().now_or_never() {
                Some(step) => self.write(step, &mut out),
                None => break,
            }
        }
        self.heartbeat.reset();
        Some(out.into())
    }

    fn write(&mut self, step: Step, out: &mut Vec<u8>) {
        match step {
            Step::Delta(choice, delta, logprobs) => {
                self.writer.delta(choice, delta, logprobs, out);
            }
            Step::Finished(choice, reason) => self.writer.finished(choice, reason, out),
            Step::Completed(usage) => {
                self.writer.completed(usage, out);
                out.extend_from_slice(b"data: [DONE]\n\n");
                self.ended = true;
            }
            Step::Failed(error) => {
                write_event(out, &error_body(&error));
                self.ended = true;
            }
        }
    }
}

/// A response that streams the answer.
pub(crate) fn stream_response<W: Writer>(
    answers: Answers,
    writer: W,
    heartbeat: Duration,
) -> Response {
    let notes = Arc::clone(&answers.notes);
    let mut heartbeat = tokio::time::interval_at(Instant::now() + heartbeat, heartbeat);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let state = EventStream {
        answers,
        writer,
        heartbeat,
        opened: false,
        ended: false,
    };
    let frames = stream::unfold(state, |mut state| async move {
        let frame = state.next().await?;
        Some((frame, state))
    });
    // A panic ends this stream with an error that the client can read, and nothing else.
    let frames = AssertUnwindSafe(frames).catch_unwind().map(move |frame| {
        Ok::<_, Infallible>(frame.unwrap_or_else(|_| {
            let error = panicked();
            notes.error(&error.code);
            let mut out = Vec::new();
            write_event(&mut out, &error_body(&error));
            out.into()
        }))
    });
    let mut response = Response::new(Body::from_stream(frames));
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // Proxies that buffer know this name.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    *response.status_mut() = StatusCode::OK;
    response
}

/// Append one server-sent event. JSON has no raw line ends, so one `data:` line holds it.
pub(crate) fn write_event(out: &mut Vec<u8>, body: &impl Serialize) {
    out.extend_from_slice(b"data: ");
    let before = out.len();
    if serde_json::to_writer(&mut *out, body).is_err() {
        // Only a map with keys that are not strings fails, and no body has one.
        out.truncate(before);
        out.extend_from_slice(b"{}");
    }
    out.extend_from_slice(b"\n\n");
}

/// Random letters that bring a piece of `text_bytes` to a multiple of 32 bytes.
pub(crate) fn padding(text_bytes: usize) -> String {
    let mut random = uuid::Uuid::new_v4().simple().to_string();
    random.truncate(32 - text_bytes % 32);
    random
}
