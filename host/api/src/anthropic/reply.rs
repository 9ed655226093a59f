//! Answers as Anthropic writes them: one message, or the events of which it is made.

use mortise_http::Problem;
use mortise_service::{Delta, Event, FinishReason, Usage};
use serde_json::{Map, Value, json};

use super::error::error_body;
use super::request::ThinkingShape;
use crate::answering::Answering;
use crate::problem::problem_of;
use crate::stream::StreamWriter;

/// Stands where Anthropic signs a thinking block: text of a model that this server runs needs no proof
/// of its origin, and blocks that come back are taken as they are.
const SIGNATURE: &str = "mortise-unsigned";

/// Key of arguments that are not a JSON object, as Anthropic advises its own callers to pass them on.
const INVALID_JSON: &str = "INVALID_JSON";

/// Parts of a message that are the same whole and streamed.
#[derive(Debug, Clone)]
pub(super) struct Envelope {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) thinking: ThinkingShape,
    /// Tokens of the prompt, as far as they are known before the answer.
    pub(super) prompt_tokens: u32,
    /// Tokens that the caller allowed.
    pub(super) max_tokens: u32,
    /// Tokens of the model's context, where they are known.
    pub(super) context: Option<usize>,
}

impl Envelope {
    /// The reason why a message ended: where its limit was more than the context had room for, the context.
    fn stop_reason(&self, end: &End, usage: Usage) -> Option<&'static str> {
        let tokens = usage.prompt_tokens.saturating_add(usage.completion_tokens) as usize;
        let full = self.context.is_some_and(|context| tokens >= context);
        match end.reason {
            Some("max_tokens") if full && usage.completion_tokens < self.max_tokens => {
                Some("model_context_window_exceeded")
            }
            reason => reason,
        }
    }

    fn message(&self, content: Vec<Value>, end: &End, usage: Value) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": end.reason,
            "stop_sequence": end.sequence,
            "usage": usage,
        })
    }

    /// Whether a delta belongs to what the caller sees.
    fn shows(&self, delta: &Delta) -> bool {
        !matches!(
            (delta, self.thinking),
            (Delta::Reasoning(_), ThinkingShape::None)
        )
    }
}

/// End of a message.
#[derive(Debug, Clone, Default)]
struct End {
    reason: Option<&'static str>,
    sequence: Option<String>,
}

impl End {
    fn new(reason: FinishReason, stop: Option<String>) -> Self {
        let reason = match (reason, &stop) {
            (FinishReason::Stop, Some(_)) => "stop_sequence",
            (FinishReason::Stop, None) => "end_turn",
            (FinishReason::Length, _) => "max_tokens",
            (FinishReason::ToolCalls, _) => "tool_use",
            (FinishReason::ContentFilter, _) => "refusal",
        };
        let sequence = stop.filter(|_| reason == "stop_sequence");
        Self {
            reason: Some(reason),
            sequence,
        }
    }
}

fn usage_body(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.prompt_tokens.saturating_sub(usage.cached_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
        "service_tier": "standard",
    })
}

/// A content block while it grows.
#[derive(Debug)]
enum Block {
    Thinking(String),
    Text(String),
    Call {
        id: String,
        name: String,
        arguments: String,
    },
}

impl Block {
    fn body(self, shape: ThinkingShape) -> Value {
        match self {
            Self::Thinking(text) => json!({
                "type": "thinking",
                "thinking": match shape {
                    ThinkingShape::Shown => text,
                    ThinkingShape::Omitted | ThinkingShape::None => String::new(),
                },
                "signature": SIGNATURE,
            }),
            Self::Text(text) => json!({"type": "text", "text": text}),
            Self::Call {
                id,
                name,
                arguments,
            } => json!({"type": "tool_use", "id": id, "name": name, "input": input(&arguments)}),
        }
    }
}

/// Arguments of a call as an object. A model without arguments writes none.
fn input(arguments: &str) -> Value {
    if arguments.trim().is_empty() {
        return Value::Object(Map::new());
    }
    match serde_json::from_str(arguments) {
        Ok(Value::Object(members)) => Value::Object(members),
        _ => json!({INVALID_JSON: arguments}),
    }
}

/// The whole answer as one message.
pub(super) async fn whole(mut answers: Answering, envelope: Envelope) -> Result<Value, Problem> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut end = End::default();
    loop {
        match answers.next().await {
            Event::Delta { delta, .. } if envelope.shows(&delta) => append(&mut blocks, delta),
            // No server tools are enabled.
            Event::Delta { .. } | Event::ServerToolCall { .. } | Event::Prompt { .. } => {}
            Event::Finished { reason, stop, .. } => end = End::new(reason, stop),
            Event::Completed { usage } => {
                end.reason = envelope.stop_reason(&end, usage);
                let blocks = blocks.into_iter();
                let content = blocks.map(|block| block.body(envelope.thinking)).collect();
                return Ok(envelope.message(content, &end, usage_body(usage)));
            }
            Event::Failed(error) => return Err(answers.failed(error)),
        }
    }
}

fn append(blocks: &mut Vec<Block>, delta: Delta) {
    match (delta, blocks.last_mut()) {
        (Delta::Content(text), Some(Block::Text(last)))
        | (Delta::Reasoning(text), Some(Block::Thinking(last))) => last.push_str(&text),
        (Delta::Content(text), _) => blocks.push(Block::Text(text)),
        (Delta::Reasoning(text), _) => blocks.push(Block::Thinking(text)),
        (Delta::CallBegin { id, name, .. }, _) => blocks.push(Block::Call {
            id,
            name,
            arguments: String::new(),
        }),
        (Delta::CallArguments { index, delta }, _) => {
            let calls = blocks.iter_mut().filter_map(|block| match block {
                Block::Call { arguments, .. } => Some(arguments),
                Block::Thinking(_) | Block::Text(_) => None,
            });
            if let Some(arguments) = calls.into_iter().nth(index as usize) {
                arguments.push_str(&delta);
            }
        }
    }
}

/// Kind of the block that is open in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Thinking,
    Text,
    /// With the index of the call.
    Call(u32),
}

/// Writes the events of an answer as Anthropic streams them.
pub(super) struct MessageEvents {
    envelope: Envelope,
    open: Option<Open>,
    /// Blocks that have begun.
    blocks: u32,
    end: End,
}

impl MessageEvents {
    pub(super) fn new(envelope: Envelope) -> Self {
        Self {
            envelope,
            open: None,
            blocks: 0,
            end: End::default(),
        }
    }

    /// Index of the block that is open.
    fn index(&self) -> u32 {
        self.blocks.saturating_sub(1)
    }

    /// Close the open block and begin one, unless that one is open already.
    fn enter(&mut self, block: Open, body: impl FnOnce() -> Value, out: &mut Vec<u8>) {
        if self.open == Some(block) {
            return;
        }
        self.close(out);
        self.open = Some(block);
        self.blocks += 1;
        let body = json!({
            "type": "content_block_start",
            "index": self.index(),
            "content_block": body(),
        });
        write_event(out, "content_block_start", &body);
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        let Some(open) = self.open.take() else {
            return;
        };
        if open == Open::Thinking {
            self.delta(
                json!({"type": "signature_delta", "signature": SIGNATURE}),
                out,
            );
        }
        let body = json!({"type": "content_block_stop", "index": self.index()});
        write_event(out, "content_block_stop", &body);
    }

    fn delta(&self, delta: Value, out: &mut Vec<u8>) {
        let body = json!({
            "type": "content_block_delta",
            "index": self.index(),
            "delta": delta,
        });
        write_event(out, "content_block_delta", &body);
    }

    fn accept(&mut self, delta: Delta, out: &mut Vec<u8>) {
        match delta {
            Delta::Reasoning(text) => {
                let empty = || json!({"type": "thinking", "thinking": "", "signature": ""});
                self.enter(Open::Thinking, empty, out);
                if self.envelope.thinking == ThinkingShape::Shown {
                    self.delta(json!({"type": "thinking_delta", "thinking": text}), out);
                }
            }
            Delta::Content(text) => {
                self.enter(Open::Text, || json!({"type": "text", "text": ""}), out);
                self.delta(json!({"type": "text_delta", "text": text}), out);
            }
            Delta::CallBegin { index, id, name } => {
                let empty = || json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                self.enter(Open::Call(index), empty, out);
            }
            Delta::CallArguments { index, delta } => {
                // Calls come one after the other; what came late for an earlier one has no place.
                if self.open == Some(Open::Call(index)) {
                    self.delta(
                        json!({"type": "input_json_delta", "partial_json": delta}),
                        out,
                    );
                }
            }
        }
    }

    fn finish(&mut self, usage: Usage, out: &mut Vec<u8>) {
        self.close(out);
        let reason = self.envelope.stop_reason(&self.end, usage);
        let body = json!({
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": self.end.sequence},
            "usage": usage_body(usage),
        });
        write_event(out, "message_delta", &body);
        write_event(out, "message_stop", &json!({"type": "message_stop"}));
    }
}

impl StreamWriter for MessageEvents {
    const HEADERS: &'static [(&'static str, &'static str)] = &[
        ("content-type", "text/event-stream; charset=utf-8"),
        ("cache-control", "no-cache"),
        // Proxies that buffer know this name.
        ("x-accel-buffering", "no"),
    ];

    fn opening(&mut self, out: &mut Vec<u8>) {
        let usage = usage_body(Usage {
            prompt_tokens: self.envelope.prompt_tokens,
            ..Usage::default()
        });
        let message = self.envelope.message(Vec::new(), &End::default(), usage);
        let body = json!({"type": "message_start", "message": message});
        write_event(out, "message_start", &body);
        self.heartbeat(out);
    }

    fn event(&mut self, event: Event, out: &mut Vec<u8>) {
        match event {
            Event::Delta { delta, .. } if self.envelope.shows(&delta) => self.accept(delta, out),
            // No server tools are enabled.
            Event::Delta { .. } | Event::ServerToolCall { .. } | Event::Prompt { .. } => {}
            Event::Finished { reason, stop, .. } => self.end = End::new(reason, stop),
            Event::Completed { usage } => self.finish(usage, out),
            Event::Failed(error) => Self::problem(&problem_of(error), out),
        }
    }

    fn heartbeat(&mut self, out: &mut Vec<u8>) {
        write_event(out, "ping", &json!({"type": "ping"}));
    }

    fn problem(problem: &Problem, out: &mut Vec<u8>) {
        write_event(out, "error", &error_body(problem));
    }
}

/// Append one named event. JSON has no raw line ends, so one `data:` line holds it.
fn write_event(out: &mut Vec<u8>, name: &str, body: &Value) {
    out.extend_from_slice(format!("event: {name}\ndata: {body}\n\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(thinking: ThinkingShape) -> Envelope {
        Envelope {
            id: "msg_1".to_owned(),
            model: "m".to_owned(),
            thinking,
            prompt_tokens: 9,
            max_tokens: 100,
            context: Some(1000),
        }
    }

    fn streamed(thinking: ThinkingShape, deltas: Vec<Delta>, end: FinishReason) -> Vec<Value> {
        let mut writer = MessageEvents::new(envelope(thinking));
        let mut out = Vec::new();
        writer.opening(&mut out);
        for delta in deltas {
            let logprobs = Vec::new();
            let choice = 0;
            writer.event(
                Event::Delta {
                    choice,
                    delta,
                    logprobs,
                    tokens: Vec::new(),
                },
                &mut out,
            );
        }
        let (choice, stop) = (0, None);
        writer.event(
            Event::Finished {
                choice,
                reason: end,
                stop,
                tokens: Vec::new(),
            },
            &mut out,
        );
        let usage = Usage {
            prompt_tokens: 9,
            cached_tokens: 4,
            completion_tokens: 3,
            reasoning_tokens: 1,
        };
        writer.event(Event::Completed { usage }, &mut out);
        let text = String::from_utf8(out).expect("UTF-8");
        let events = text.split_terminator("\n\n").map(|event| {
            let (name, data) = event.split_once("\ndata: ").expect("two lines");
            let body: Value = serde_json::from_str(data).expect("JSON");
            let name = name.strip_prefix("event: ").expect("a name");
            assert_eq!(body["type"], name, "an event is named by its type");
            body
        });
        events.collect()
    }

    fn deltas() -> Vec<Delta> {
        let text = |text: &str| text.to_owned();
        vec![
            Delta::Reasoning(text("hm")),
            Delta::Content(text("I ")),
            Delta::Content(text("look.")),
            Delta::CallBegin {
                index: 0,
                id: text("call_1"),
                name: text("f"),
            },
            Delta::CallArguments {
                index: 0,
                delta: text("{\"a\":"),
            },
            Delta::CallArguments {
                index: 0,
                delta: text("1}"),
            },
        ]
    }

    #[test]
    fn events_follow_the_grammar() {
        let events = streamed(ThinkingShape::Shown, deltas(), FinishReason::ToolCalls);
        let names: Vec<&str> = events
            .iter()
            .filter_map(|event| event["type"].as_str())
            .collect();
        assert_eq!(
            names,
            [
                "message_start",
                "ping",
                "content_block_start",
                "content_block_delta",
                "content_block_delta",
                "content_block_stop",
                "content_block_start",
                "content_block_delta",
                "content_block_delta",
                "content_block_stop",
                "content_block_start",
                "content_block_delta",
                "content_block_delta",
                "content_block_stop",
                "message_delta",
                "message_stop",
            ]
        );
        assert_eq!(events[0]["message"]["usage"]["input_tokens"], 9);
        assert_eq!(events[4]["delta"]["type"], "signature_delta");
        assert_eq!(events[10]["content_block"]["input"], json!({}));
        assert_eq!(events[12]["index"], 2);
        let end = &events[14];
        assert_eq!(end["delta"]["stop_reason"], "tool_use");
        assert_eq!(
            (
                &end["usage"]["input_tokens"],
                &end["usage"]["cache_read_input_tokens"]
            ),
            (&json!(5), &json!(4))
        );
    }

    #[test]
    fn thinking_is_shown_as_the_caller_asked() {
        let types = |shape| {
            let events = streamed(shape, deltas(), FinishReason::Stop);
            let deltas = events
                .iter()
                .filter_map(|event| event["delta"]["type"].as_str());
            deltas.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(
            types(ThinkingShape::Shown)[..2],
            ["thinking_delta", "signature_delta"]
        );
        assert_eq!(
            types(ThinkingShape::Omitted)[..2],
            ["signature_delta", "text_delta"]
        );
        assert_eq!(types(ThinkingShape::None)[0], "text_delta");
    }

    #[test]
    fn arguments_become_an_object() {
        assert_eq!(input("{\"a\":1}"), json!({"a": 1}));
        assert_eq!(input(" "), json!({}));
        assert_eq!(input("{\"a\":"), json!({"INVALID_JSON": "{\"a\":"}));
    }
}
