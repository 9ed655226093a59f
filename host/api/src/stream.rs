//! Streamed answers, for handlers of all dialects.
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
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};
use http::{HeaderName, HeaderValue};
use mortise_http::{Problem, panicked};
use mortise_service::{Event, Usage};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::answering::Answering;

/// Events that are ready are sent together, up to this many bytes.
const BATCH_BYTES: usize = 8 * 1024;

/// Writes the events of an answer as one dialect streams them.
pub(crate) trait StreamWriter: Send + 'static {
    /// Names and values of the response's headers.
    const HEADERS: &'static [(&'static str, &'static str)];

    /// Bytes before the first event.
    fn opening(&mut self, _out: &mut Vec<u8>) {}

    /// Usage before the next event, for a writer that reports it as it grows.
    fn progress(&mut self, _usage: &dyn Fn() -> Usage) {}

    /// Bytes of an event. `Event::Failed` is written by [`StreamWriter::problem`].
    fn event(&mut self, event: Event, out: &mut Vec<u8>);

    /// Bytes that keep proxies from giving up on a silent stream.
    fn heartbeat(&mut self, out: &mut Vec<u8>);

    /// Bytes of the problem that ends the stream.
    fn problem(problem: &Problem, out: &mut Vec<u8>);

    /// Work between the end of a complete answer and the bytes that tell of it. If it fails, they tell of that.
    fn keep(&mut self) -> Option<BoxFuture<'static, Result<(), Problem>>> {
        None
    }
}

struct EventStream<W> {
    answering: Answering,
    writer: W,
    heartbeat: Interval,
    opened: bool,
    ended: bool,
}

impl<W: StreamWriter> EventStream<W> {
    /// The next bytes to send; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        let mut out = Vec::with_capacity(512);
        if !self.opened {
            self.opened = true;
            self.writer.progress(&|| self.answering.usage());
            self.writer.opening(&mut out);
            if !out.is_empty() {
                return Some(out.into());
            }
        }
        while !self.ended && out.is_empty() {
            let event = tokio::select! {
                biased;
                event = self.answering.next() => event,
                _ = self.heartbeat.tick() => {
                    self.writer.heartbeat(&mut out);
                    return Some(out.into());
                }
            };
            self.write(event, &mut out);
        }
        while !self.ended && out.len() < BATCH_BYTES {
            match self.answering.next().now_or_never() {
                Some(event) => self.write(event, &mut out),
                None => break,
            }
        }
        if self.ended
            && let Some(keep) = self.writer.keep()
            && let Err(problem) = keep.await
        {
            self.answering.record().error(&problem.code);
            out.clear();
            W::problem(&problem, &mut out);
        }
        self.heartbeat.reset();
        (!out.is_empty()).then(|| out.into())
    }

    fn write(&mut self, event: Event, out: &mut Vec<u8>) {
        match event {
            Event::Failed(error) => {
                W::problem(&self.answering.failed(error), out);
                self.ended = true;
            }
            event => {
                self.ended = matches!(event, Event::Completed { .. });
                self.writer.progress(&|| self.answering.usage());
                self.writer.event(event, out);
            }
        }
    }
}

/// Response that streams the answer.
pub(crate) fn stream_response<W: StreamWriter>(
    mut answering: Answering,
    writer: W,
    heartbeat: Duration,
) -> Response {
    answering.streams();
    let record = Arc::clone(answering.record());
    let mut heartbeat = interval_at(Instant::now() + heartbeat, heartbeat);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let state = EventStream {
        answering,
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
            let problem = panicked();
            record.error(&problem.code);
            let mut out = Vec::new();
            W::problem(&problem, &mut out);
            out.into()
        }))
    });
    let mut response = Response::new(Body::from_stream(frames));
    for (name, value) in W::HEADERS {
        let (name, value) = (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
        response.headers_mut().insert(name, value);
    }
    response
}
