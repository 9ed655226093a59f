//! Events of an answer as Ollama writes them: one JSON object, or one a line as the text grows.
//!
//! One task serves one answer. Dropping the body drops the answer, which cancels it.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::FutureExt as _;
use futures::stream::{self, StreamExt as _};
use http::{HeaderValue, header};
use mortise_http::{Problem, panicked};
use mortise_service::{Delta, Event, FinishReason, Usage};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::{Interval, MissedTickBehavior, interval_at};

use super::error::error_body;
use crate::answering::Answering;
use crate::problem::problem_of;

/// Lines that are ready are sent together, up to this many bytes.
const BATCH_BYTES: usize = 8 * 1024;

/// Fields that all objects of one answer share.
pub(crate) struct Generated {
    model: String,
    began: Instant,
    reason: FinishReason,
}

impl Generated {
    pub(crate) fn new(model: &str, began: Instant) -> Self {
        Self {
            model: model.to_owned(),
            began,
            reason: FinishReason::Stop,
        }
    }

    /// The object of a piece of text, or of reasoning.
    fn piece(&self, response: &str, thinking: &str) -> Value {
        let mut object = json!({
            "model": self.model,
            "created_at": now(),
            "response": response,
            "done": false,
        });
        if !thinking.is_empty() {
            object["thinking"] = json!(thinking);
        }
        object
    }

    /// The last object: the whole text if it was not streamed, and the figures.
    fn last(&self, response: &str, thinking: &str, usage: Usage) -> Value {
        let mut object = self.piece(response, thinking);
        let elapsed = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        object["done"] = json!(true);
        object["done_reason"] = json!(done_reason(self.reason));
        object["total_duration"] = json!(elapsed);
        object["prompt_eval_count"] = json!(usage.prompt_tokens);
        object["eval_count"] = json!(usage.completion_tokens);
        object
    }
}

/// Ollama's name of a finish reason. No request of this dialect declares tools, so that calls, which some
/// models write unasked, are the end of an answer like any other.
fn done_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop | FinishReason::ToolCalls => "stop",
        FinishReason::Length => "length",
    }
}

/// The time, as RFC 3339 has it.
fn now() -> String {
    // Only years beyond 9999 cannot be written.
    OffsetDateTime::now_utc()
        .format(&Rfc3339)
        .unwrap_or_default()
}

fn failed(answers: &Answering, error: mortise_service::ServiceError) -> Problem {
    let problem = problem_of(error);
    answers.notes().error(&problem.code);
    problem
}

/// The whole answer as one object.
pub(crate) async fn whole(
    mut answers: Answering,
    mut generated: Generated,
) -> Result<Value, Problem> {
    let (mut response, mut thinking) = (String::new(), String::new());
    loop {
        match answers.next().await {
            Event::Delta { delta, .. } => match delta {
                Delta::Content(text) => response.push_str(&text),
                Delta::Reasoning(text) => thinking.push_str(&text),
                Delta::CallBegin { .. } | Delta::CallArguments { .. } => {}
            },
            // No server tools are enabled.
            Event::ServerToolCall { .. } => {}
            Event::Finished { reason, .. } => generated.reason = reason,
            Event::Completed { usage } => return Ok(generated.last(&response, &thinking, usage)),
            Event::Failed(error) => return Err(failed(&answers, error)),
        }
    }
}

/// A streamed answer.
struct Lines {
    answers: Answering,
    generated: Generated,
    heartbeat: Interval,
    ended: bool,
}

impl Lines {
    /// The next bytes to send; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        let mut out = Vec::with_capacity(256);
        while out.is_empty() {
            let event = tokio::select! {
                biased;
                event = self.answers.next() => Some(event),
                _ = self.heartbeat.tick() => None,
            };
            match event {
                Some(event) => self.write(event, &mut out),
                // An empty piece keeps proxies from giving up on a silent stream.
                None => write_line(&mut out, &self.generated.piece("", "")),
            }
        }
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
            Event::Delta { delta, .. } => match delta {
                Delta::Content(text) => write_line(out, &self.generated.piece(&text, "")),
                Delta::Reasoning(text) => write_line(out, &self.generated.piece("", &text)),
                Delta::CallBegin { .. } | Delta::CallArguments { .. } => {}
            },
            Event::ServerToolCall { .. } => {}
            Event::Finished { reason, .. } => self.generated.reason = reason,
            Event::Completed { usage } => {
                write_line(out, &self.generated.last("", "", usage));
                self.ended = true;
            }
            Event::Failed(error) => {
                write_line(out, &error_body(&failed(&self.answers, error)));
                self.ended = true;
            }
        }
    }
}

/// A response that streams the answer, one object a line.
pub(crate) fn stream_response(
    mut answers: Answering,
    generated: Generated,
    heartbeat: Duration,
) -> Response {
    answers.streams();
    let notes = Arc::clone(answers.notes());
    let first = tokio::time::Instant::now() + heartbeat;
    let mut heartbeat = interval_at(first, heartbeat);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let state = Lines {
        answers,
        generated,
        heartbeat,
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
            write_line(&mut out, &error_body(&error));
            out.into()
        }))
    });
    let mut response = Response::new(Body::from_stream(frames));
    for (name, value) in [
        (header::CONTENT_TYPE, "application/x-ndjson"),
        (header::CACHE_CONTROL, "no-cache"),
    ] {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

/// Append one object and the end of its line; JSON has no raw line ends.
fn write_line(out: &mut Vec<u8>, object: &Value) {
    out.extend_from_slice(object.to_string().as_bytes());
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_and_the_last_object_have_ollamas_fields() {
        let mut generated = Generated::new("m", Instant::now());
        let piece = generated.piece("Hi", "");
        assert_eq!(
            (&piece["model"], &piece["response"]),
            (&json!("m"), &json!("Hi"))
        );
        assert_eq!(piece["done"], false);
        assert!(piece.get("thinking").is_none() && piece.get("done_reason").is_none());
        let created = piece["created_at"].as_str().expect("a text");
        assert!(
            OffsetDateTime::parse(created, &Rfc3339).is_ok(),
            "{created}"
        );
        assert_eq!(generated.piece("", "hm")["thinking"], "hm");
        generated.reason = FinishReason::Length;
        let usage = Usage {
            prompt_tokens: 5,
            completion_tokens: 2,
            ..Usage::default()
        };
        let last = generated.last("", "", usage);
        assert_eq!(
            (&last["done"], &last["done_reason"]),
            (&json!(true), &json!("length"))
        );
        assert_eq!(
            (&last["prompt_eval_count"], &last["eval_count"]),
            (&json!(5), &json!(2))
        );
        assert!(last["total_duration"].is_u64());
    }
}
