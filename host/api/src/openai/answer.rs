//! Events of an answer as server-sent events.
//!
//! One task serves one answer. Dropping the body drops the answer, which cancels it.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::FutureExt as _;
use futures::stream::{self, StreamExt as _};
use http::{HeaderValue, StatusCode, header};
use mortise_http::panicked;
use mortise_service::{Delta, Event, FinishReason, ServerToolCall, TokenLogprob, Usage};
use serde::Serialize;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::error::error_body;
use crate::answering::Answering;
use crate::problem::problem_of;

/// Events that are ready are sent together, up to this many bytes.
const BATCH_BYTES: usize = 8 * 1024;

/// Writes the events of an answer as chunks of one route.
pub(crate) trait Writer: Send + 'static {
    /// Chunks before the first event.
    fn opening(&mut self, out: &mut Vec<u8>);
    fn delta(&mut self, choice: u32, delta: Delta, logprobs: Vec<TokenLogprob>, out: &mut Vec<u8>);
    fn server_tool_call(&mut self, choice: u32, call: &ServerToolCall, out: &mut Vec<u8>);
    fn finished(&mut self, choice: u32, reason: FinishReason, out: &mut Vec<u8>);
    fn completed(&mut self, usage: Usage, out: &mut Vec<u8>);
}

/// A streamed answer.
struct EventStream<W> {
    answers: Answering,
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
        let event = tokio::select! {
            biased;
            event = self.answers.next() => event,
            _ = self.heartbeat.tick() => return Some(Bytes::from_static(b": keep-alive\n\n")),
        };
        self.write(event, &mut out);
        while !self.ended && out.len() < BATCH_BYTES {
            match self.answers.next().now_or_never() {
                Some(event) => self.write(event, &mut out),
                None => break,
            }
        }
        self.heartbeat.reset();
        Some(out.into())
    }

    fn write(&mut self, event: Event, out: &mut Vec<u8>) {
        match event {
            Event::Delta {
                choice,
                delta,
                logprobs,
            } => self.writer.delta(choice, delta, logprobs, out),
            Event::ServerToolCall { choice, call } => {
                self.writer.server_tool_call(choice, &call, out);
            }
            Event::Finished { choice, reason } => self.writer.finished(choice, reason, out),
            Event::Completed { usage } => {
                self.writer.completed(usage, out);
                out.extend_from_slice(b"data: [DONE]\n\n");
                self.ended = true;
            }
            Event::Failed(error) => {
                let problem = problem_of(error);
                self.answers.notes().error(&problem.code);
                write_event(out, &error_body(&problem));
                self.ended = true;
            }
        }
    }
}

/// Response that streams the answer.
pub(crate) fn stream_response<W: Writer>(
    answers: Answering,
    writer: W,
    heartbeat: Duration,
) -> Response {
    let mut answers = answers;
    answers.streams();
    let notes = Arc::clone(answers.notes());
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
