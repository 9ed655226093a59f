//! Events of an answer as Ollama writes them: one JSON object, or one a line as the text grows.

use std::time::{Duration, Instant};

use mortise_http::Problem;
use mortise_service::{Delta, Event, FinishReason, TokenLogprob, Usage};
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::error::error_body;
use crate::answering::Answering;
use crate::problem::problem_of;
use crate::stream::StreamWriter;

/// JSON has no infinity.
const LEAST_LOGPROB: f32 = -9999.0;

/// Route whose shape an answer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OllamaShape {
    /// `POST /api/generate`: the text in `response`.
    Generate,
    /// `POST /api/chat`: the text in `message`.
    Chat,
}

/// A call whose arguments are still written.
#[derive(Debug)]
struct Call {
    index: u32,
    id: String,
    name: String,
    arguments: String,
}

impl Call {
    fn body(self) -> Value {
        let arguments = match serde_json::from_str(&self.arguments) {
            Ok(Value::Object(members)) => members,
            _ => Map::new(),
        };
        let function = json!({"index": self.index, "name": self.name, "arguments": arguments});
        json!({"id": self.id, "function": function})
    }
}

/// Text of one object of the answer.
#[derive(Debug, Default)]
struct Piece {
    content: String,
    thinking: String,
    calls: Vec<Value>,
    logprobs: Vec<Value>,
}

/// Fields that all objects of one answer share.
pub(super) struct Generated {
    shape: OllamaShape,
    model: String,
    began: Instant,
    /// When the first token came.
    first: Option<Instant>,
    reason: FinishReason,
    logprobs: bool,
    open: Option<Call>,
}

impl Generated {
    pub(super) fn new(shape: OllamaShape, model: &str, began: Instant, logprobs: bool) -> Self {
        Self {
            shape,
            model: model.to_owned(),
            began,
            first: None,
            reason: FinishReason::Stop,
            logprobs,
            open: None,
        }
    }

    /// The object of a piece.
    fn object(&self, piece: Piece) -> Value {
        let mut object = json!({"model": self.model, "created_at": now()});
        match self.shape {
            OllamaShape::Generate => {
                object["response"] = json!(piece.content);
                if !piece.thinking.is_empty() {
                    object["thinking"] = json!(piece.thinking);
                }
            }
            OllamaShape::Chat => {
                let mut message = json!({"role": "assistant", "content": piece.content});
                if !piece.thinking.is_empty() {
                    message["thinking"] = json!(piece.thinking);
                }
                if !piece.calls.is_empty() {
                    message["tool_calls"] = Value::Array(piece.calls);
                }
                object["message"] = message;
            }
        }
        if !piece.logprobs.is_empty() {
            object["logprobs"] = Value::Array(piece.logprobs);
        }
        object["done"] = json!(false);
        object
    }

    /// The last object: the whole text if it was not streamed, and the figures.
    fn last(&self, piece: Piece, usage: Usage) -> Value {
        let mut object = self.object(piece);
        let now = Instant::now();
        let first = self.first.unwrap_or(now);
        let took = |from: Instant, to: Instant| nanoseconds(to.saturating_duration_since(from));
        object["done"] = json!(true);
        object["done_reason"] = json!(done_reason(self.reason));
        object["total_duration"] = json!(took(self.began, now));
        // A model that is not loaded is loaded before the handler's time begins to count.
        object["load_duration"] = json!(0);
        object["prompt_eval_count"] = json!(usage.prompt_tokens);
        object["prompt_eval_duration"] = json!(took(self.began, first));
        object["eval_count"] = json!(usage.completion_tokens);
        object["eval_duration"] = json!(took(first, now));
        object
    }

    /// The object that answers a request which only loads a model, or lets it go.
    pub(super) fn nothing_generated(&self, reason: &str) -> Value {
        let mut object = self.object(Piece::default());
        object["done"] = json!(true);
        object["done_reason"] = json!(reason);
        object
    }

    /// Add what an event brings to a piece. Calls are added when their arguments are complete.
    fn add(&mut self, delta: Delta, logprobs: &[TokenLogprob], piece: &mut Piece) {
        self.first.get_or_insert_with(Instant::now);
        if self.logprobs {
            piece.logprobs.extend(logprobs.iter().map(logprob_body));
        }
        match delta {
            Delta::Content(text) => {
                piece.calls.extend(self.open.take().map(Call::body));
                piece.content.push_str(&text);
            }
            Delta::Reasoning(text) => piece.thinking.push_str(&text),
            Delta::CallBegin { index, id, name } => {
                piece.calls.extend(self.open.take().map(Call::body));
                self.open = Some(Call {
                    index,
                    id,
                    name,
                    arguments: String::new(),
                });
            }
            Delta::CallArguments { delta, .. } => {
                if let Some(call) = &mut self.open {
                    call.arguments.push_str(&delta);
                }
            }
        }
    }

    fn write(&self, piece: Piece, out: &mut Vec<u8>) {
        let empty = piece.content.is_empty()
            && piece.thinking.is_empty()
            && piece.calls.is_empty()
            && piece.logprobs.is_empty();
        if !empty {
            write_line(out, &self.object(piece));
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn logprob_body(entry: &TokenLogprob) -> Value {
    let finite = |logprob: f32| match logprob.is_finite() {
        true => logprob,
        false => LEAST_LOGPROB,
    };
    let mut body = json!({
        "token": entry.token,
        "logprob": finite(entry.logprob),
        "bytes": entry.bytes,
    });
    if !entry.top.is_empty() {
        let top = entry.top.iter().map(|(token, bytes, logprob)| {
            json!({"token": token, "logprob": finite(*logprob), "bytes": bytes})
        });
        body["top_logprobs"] = top.collect();
    }
    body
}

/// Ollama's name of a finish reason.
fn done_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop | FinishReason::ToolCalls | FinishReason::ContentFilter => "stop",
        FinishReason::Length => "length",
    }
}

/// The time, as RFC 3339 has it.
pub(super) fn now() -> String {
    // Only years beyond 9999 cannot be written.
    OffsetDateTime::now_utc()
        .format(&Rfc3339)
        .unwrap_or_default()
}

/// The whole answer as one object.
pub(super) async fn whole(
    mut answers: Answering,
    mut generated: Generated,
) -> Result<Value, Problem> {
    let mut all = Piece::default();
    loop {
        match answers.next().await {
            Event::Delta {
                delta, logprobs, ..
            } => generated.add(delta, &logprobs, &mut all),
            // No server tools are enabled.
            Event::ServerToolCall { .. } | Event::Prompt { .. } => {}
            Event::Finished { reason, .. } => generated.reason = reason,
            Event::Completed { usage } => {
                all.calls.extend(generated.open.take().map(Call::body));
                return Ok(generated.last(all, usage));
            }
            Event::Failed(error) => return Err(answers.failed(error)),
        }
    }
}

impl StreamWriter for Generated {
    const HEADERS: &'static [(&'static str, &'static str)] = &[
        ("content-type", "application/x-ndjson"),
        ("cache-control", "no-cache"),
    ];

    fn event(&mut self, event: Event, out: &mut Vec<u8>) {
        match event {
            Event::Delta {
                delta, logprobs, ..
            } => {
                let mut piece = Piece::default();
                self.add(delta, &logprobs, &mut piece);
                self.write(piece, out);
            }
            // No server tools are enabled.
            Event::ServerToolCall { .. } | Event::Prompt { .. } => {}
            Event::Finished { reason, .. } => {
                self.reason = reason;
                let calls = self.open.take().map(Call::body).into_iter().collect();
                let piece = Piece {
                    calls,
                    ..Piece::default()
                };
                self.write(piece, out);
            }
            Event::Completed { usage } => write_line(out, &self.last(Piece::default(), usage)),
            Event::Failed(error) => Self::problem(&problem_of(error), out),
        }
    }

    fn heartbeat(&mut self, out: &mut Vec<u8>) {
        write_line(out, &self.object(Piece::default()));
    }

    fn problem(problem: &Problem, out: &mut Vec<u8>) {
        write_line(out, &error_body(problem));
    }
}

/// Append one object and the end of its line; JSON has no raw line ends.
fn write_line(out: &mut Vec<u8>, object: &Value) {
    out.extend_from_slice(object.to_string().as_bytes());
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(text: &str) -> Piece {
        Piece {
            content: text.to_owned(),
            ..Piece::default()
        }
    }

    #[test]
    fn pieces_and_the_last_object_have_ollamas_fields() {
        let mut generated = Generated::new(OllamaShape::Generate, "m", Instant::now(), false);
        let piece = generated.object(content("Hi"));
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
        generated.reason = FinishReason::Length;
        let usage = Usage {
            prompt_tokens: 5,
            completion_tokens: 2,
            ..Usage::default()
        };
        let last = generated.last(Piece::default(), usage);
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

    #[test]
    fn a_call_is_written_when_its_arguments_are_complete() {
        let mut generated = Generated::new(OllamaShape::Chat, "m", Instant::now(), false);
        let mut out = Vec::new();
        let delta = |delta| Event::Delta {
            choice: 0,
            delta,
            logprobs: Vec::new(),
            tokens: Vec::new(),
        };
        let begin = |index, name: &str| Delta::CallBegin {
            index,
            id: format!("call_{index}"),
            name: name.to_owned(),
        };
        let arguments = |index, text: &str| Delta::CallArguments {
            index,
            delta: text.to_owned(),
        };
        for one in [
            begin(0, "f"),
            arguments(0, "{\"a\""),
            arguments(0, ":1}"),
            begin(1, "g"),
        ] {
            generated.event(delta(one), &mut out);
        }
        let end = Event::Finished {
            choice: 0,
            reason: FinishReason::ToolCalls,
            stop: None,
            tokens: Vec::new(),
        };
        generated.event(end, &mut out);
        let text = String::from_utf8(out).expect("UTF-8");
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!(lines.len(), 2, "{text}");
        let function = |line: &Value| line["message"]["tool_calls"][0]["function"].clone();
        let first = json!({"index": 0, "name": "f", "arguments": {"a": 1}});
        assert_eq!(function(&lines[0]), first);
        assert_eq!(function(&lines[1])["arguments"], json!({}));
    }
}
