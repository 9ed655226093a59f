//! Events of an answer as the dialect writes them: one JSON object, or an event for each piece of the text.

use std::time::Instant;

use mortise_http::Problem;
use mortise_service::{Delta, Event, FinishReason, Usage};
use serde_json::{Value, json};

use super::error::error_body;
use crate::answering::Answering;
use crate::problem::problem_of;
use crate::stream::StreamWriter;

/// An answer while it is written.
pub(super) struct Spoken {
    model: String,
    /// The adapter that the request names.
    adapter: Option<String>,
    began: Instant,
    reason: FinishReason,
    /// The answer came from the response cache.
    cached: bool,
    /// Number of the next piece.
    index: u64,
    /// Members of the object at the end, beside its own.
    more: Vec<(&'static str, Value)>,
}

impl Spoken {
    /// The answer of a model, or of an adapter, to a request that began at `began`.
    pub(super) fn new(model: &str, adapter: Option<String>, began: Instant) -> Self {
        Self {
            model: model.to_owned(),
            adapter,
            began,
            reason: FinishReason::Stop,
            cached: false,
            index: 0,
            more: Vec::new(),
        }
    }

    /// Add members at the end of the object.
    pub(super) fn with(mut self, more: Vec<(&'static str, Value)>) -> Self {
        self.more = more;
        self
    }

    /// Set whether the answer came from the response cache.
    pub(super) fn cached(mut self, cached: bool) -> Self {
        self.cached = cached;
        self
    }

    /// The whole answer.
    pub(super) fn object(&self, text: &str, usage: Usage) -> Value {
        let mut object = json!({
            "text": text,
            "tokens_generated": usage.completion_tokens,
            "inference_time_ms": milliseconds(self.began),
            "model_used": self.model,
            "lora_used": self.adapter,
            "cache_hit": self.cached,
            "finish_reason": finish(self.reason),
        });
        for (name, value) in &self.more {
            object[*name] = value.clone();
        }
        object
    }

    /// The last event of a stream.
    fn done(&self, usage: Usage) -> Value {
        let mut object = json!({
            "done": true,
            "tokens_generated": usage.completion_tokens,
            "inference_time_ms": milliseconds(self.began),
        });
        for (name, value) in &self.more {
            object[*name] = value.clone();
        }
        object
    }
}

/// Whole milliseconds since then.
pub(super) fn milliseconds(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The name of a finish reason.
fn finish(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop | FinishReason::ToolCalls => "stop",
        FinishReason::Length => "length",
        FinishReason::ContentFilter => "content_filter",
    }
}

/// The whole answer as one object, without reasoning.
pub(super) async fn whole(mut answers: Answering, mut spoken: Spoken) -> Result<Value, Problem> {
    let mut text = String::new();
    loop {
        match answers.next().await {
            Event::Delta { delta, .. } => {
                if let Delta::Content(piece) = delta {
                    text.push_str(&piece);
                }
            }
            // No server tools are enabled.
            Event::ServerToolCall { .. } | Event::Prompt { .. } => {}
            Event::Finished { reason, .. } => spoken.reason = reason,
            Event::Completed { usage } => return Ok(spoken.object(&text, usage)),
            Event::Failed(error) => return Err(answers.failed(error)),
        }
    }
}

impl StreamWriter for Spoken {
    const HEADERS: &'static [(&'static str, &'static str)] = &[
        ("content-type", "text/event-stream"),
        ("cache-control", "no-cache"),
        // Proxies that buffer know this name.
        ("x-accel-buffering", "no"),
    ];

    fn event(&mut self, event: Event, out: &mut Vec<u8>) {
        match event {
            Event::Delta {
                delta: Delta::Content(piece),
                ..
            } if !piece.is_empty() => {
                write_event(out, &json!({"token": piece, "index": self.index}));
                self.index += 1;
            }
            Event::Delta { .. } | Event::ServerToolCall { .. } | Event::Prompt { .. } => {}
            Event::Finished { reason, .. } => self.reason = reason,
            Event::Completed { usage } => write_event(out, &self.done(usage)),
            Event::Failed(error) => Self::problem(&problem_of(error), out),
        }
    }

    fn heartbeat(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b": keep-alive\n\n");
    }

    fn problem(problem: &Problem, out: &mut Vec<u8>) {
        write_event(out, &error_body(problem));
    }
}

/// Append one server-sent event; JSON has no raw line ends.
fn write_event(out: &mut Vec<u8>, body: &Value) {
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(body.to_string().as_bytes());
    out.extend_from_slice(b"\n\n");
}
