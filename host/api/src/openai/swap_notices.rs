//! Streams that tell of what their caller waits for, where a model must be loaded first: pieces of reasoning at an unload, at
//! the load, and when the model is ready. Nothing of them reaches a model or counts as a token.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::{Body, BodyDataStream};
use axum::response::Response;
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{self, Stream, StreamExt as _};
use http::{HeaderName, HeaderValue};
use mortise_http::{AccessRecord, Problem, panicked};
use mortise_service::{Delta, ModelEvent, ModelState};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Duration, sleep};

use super::answer::{AnswerWriter as _, ServerSentEvents, write_event};
use super::reply::ChatChunks;
use crate::openai_error::error_body;
use crate::stream::StreamWriter;

/// Answer that is being made.
pub(super) type Pending = BoxFuture<'static, Result<Response, Problem>>;

/// Caller who waits: for which model, and how its notices are written.
pub(super) struct Waiting {
    /// Public name of the model.
    pub(super) model: String,
    /// Events of all models from before the answer was asked for.
    pub(super) events: Receiver<ModelEvent>,
    /// Writes notices in the shape of the answer's chunks.
    pub(super) chunks: ChatChunks,
    /// Access record of the request.
    pub(super) record: Arc<AccessRecord>,
    /// Pause after which a silent stream sends a comment.
    pub(super) heartbeat: Duration,
}

/// The answer; or, once there is something to tell of its wait, a stream of notices that goes on with it. What is refused
/// before has its own status, what is refused then is an error in the stream.
pub(super) async fn respond(pending: Pending, mut waiting: Waiting) -> Result<Response, Problem> {
    // A panic ends this request and nothing else.
    let guarded = AssertUnwindSafe(pending).catch_unwind();
    let pending = guarded.map(|ended| ended.unwrap_or_else(|_| Err(panicked())));
    let mut pending = pending.boxed();
    let first = match waiting.next(&mut pending).await {
        Told::Ended(ended) => return ended,
        Told::Notice(first) => first,
    };
    let told = stream::once(async move { first });
    let frames = told
        .chain(frames(pending, waiting))
        .map(Ok::<_, Infallible>);
    let mut response = Response::new(Body::from_stream(frames));
    for (name, value) in ServerSentEvents::<ChatChunks>::HEADERS {
        let (name, value) = (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

/// Part of the response.
enum Part {
    Waits(Pending, Box<Waiting>),
    Answers(BodyDataStream),
    Ended,
}

fn frames(pending: Pending, waiting: Waiting) -> impl Stream<Item = Bytes> + Send {
    let first = Part::Waits(pending, Box::new(waiting));
    stream::unfold(first, |part| async move {
        match part {
            Part::Waits(mut pending, mut waiting) => match waiting.next(&mut pending).await {
                Told::Notice(notice) => Some((notice, Part::Waits(pending, waiting))),
                Told::Ended(ended) => Some(waiting.ended(ended)),
            },
            Part::Answers(mut body) => match body.next().await? {
                Ok(frame) => Some((frame, Part::Answers(body))),
                Err(_) => None,
            },
            Part::Ended => None,
        }
    })
}

/// Next event of a wait.
enum Told {
    Notice(Bytes),
    Ended(Result<Response, Problem>),
}

impl Waiting {
    /// The next notice, a comment after a silence, or the end of the wait.
    async fn next(&mut self, pending: &mut Pending) -> Told {
        let mut out = Vec::new();
        let silence = sleep(self.heartbeat);
        tokio::pin!(silence);
        loop {
            tokio::select! {
                biased;
                event = self.events.recv() => match event {
                    Ok(event) => self.notice(&event, &mut out),
                    // Of events that were missed nobody needs to hear.
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return Told::Ended(pending.await),
                },
                ended = &mut *pending => return Told::Ended(ended),
                () = &mut silence => out.extend_from_slice(b": keep-alive\n\n"),
            }
            if !out.is_empty() {
                return Told::Notice(out.into());
            }
        }
    }

    /// A notice of an event, if it is about this wait. Other models have no name here: the caller may not know them.
    fn notice(&mut self, event: &ModelEvent, out: &mut Vec<u8>) {
        let own = event.model == self.model;
        let begins = event.progress.is_none();
        let text = match (event.state, own) {
            (ModelState::Unloading, false) => "another model is unloaded".to_owned(),
            (ModelState::Loading, true) if begins => format!("`{}` is being loaded", self.model),
            (ModelState::Loaded, true) => format!("`{}` is ready", self.model),
            _ => return,
        };
        let delta = Delta::Reasoning(format!("mortise: {text}\n"));
        self.chunks.delta(0, delta, Vec::new(), Vec::new(), out);
    }

    /// The last notices, and the answer behind them.
    fn ended(&mut self, ended: Result<Response, Problem>) -> (Bytes, Part) {
        let mut out = Vec::new();
        while let Ok(event) = self.events.try_recv() {
            self.notice(&event, &mut out);
        }
        match ended {
            Ok(response) => (
                out.into(),
                Part::Answers(response.into_body().into_data_stream()),
            ),
            Err(problem) => {
                self.record.error(&problem.code);
                write_event(&mut out, &error_body(&problem));
                (out.into(), Part::Ended)
            }
        }
    }
}
