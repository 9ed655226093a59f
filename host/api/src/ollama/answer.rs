//! Events of an answer as Ollama writes them: one JSON object, or one a line as the text grows.

use std::time::Instant;

use mortise_http::Problem;
use mortise_service::{Delta, Event, FinishReason, Usage};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::error::error_body;
use crate::answering::Answering;
use crate::problem::problem_of;
use crate::stream::StreamWriter;

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
        FinishReason::Stop | FinishReason::ToolCalls | FinishReason::ContentFilter => "stop",
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
            Event::Delta { delta, .. } => match delta {
                Delta::Content(text) => write_line(out, &self.piece(&text, "")),
                Delta::Reasoning(text) => write_line(out, &self.piece("", &text)),
                Delta::CallBegin { .. } | Delta::CallArguments { .. } => {}
            },
            // No server tools are enabled.
            Event::ServerToolCall { .. } => {}
            Event::Finished { reason, .. } => self.reason = reason,
            Event::Completed { usage } => write_line(out, &self.last("", "", usage)),
            Event::Failed(error) => Self::problem(&problem_of(error), out),
        }
    }

    fn heartbeat(&mut self, out: &mut Vec<u8>) {
        write_line(out, &self.piece("", ""));
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
