//! Events of an answer as server-sent events.

use mortise_http::Problem;
use mortise_service::{
    Delta, Event, FinishReason, PromptToken, ServerToolCall, TokenLogprob, Usage,
};
use serde::Serialize;

use crate::openai_error::error_body;
use crate::stream::StreamWriter;

/// Writes the events of an answer as chunks of one route.
pub(crate) trait AnswerWriter: Send + 'static {
    /// Usage before the next event, for a writer that reports it as it grows.
    fn progress(&mut self, usage: &dyn Fn() -> Usage);
    /// Chunks before the first event.
    fn opening(&mut self, out: &mut Vec<u8>);
    /// Tokens of the prompt that the choices from `first` on answer. Chat completions do not stream them.
    fn prompt(&mut self, _first: u32, _tokens: &[PromptToken], _out: &mut Vec<u8>) {}
    /// `tokens` are ids, where the caller wants them.
    fn delta(
        &mut self,
        choice: u32,
        delta: Delta,
        logprobs: Vec<TokenLogprob>,
        tokens: Vec<u32>,
        out: &mut Vec<u8>,
    );
    fn server_tool_call(&mut self, choice: u32, call: &ServerToolCall, out: &mut Vec<u8>);
    fn finished(&mut self, choice: u32, reason: FinishReason, tokens: Vec<u32>, out: &mut Vec<u8>);
    fn completed(&mut self, usage: Usage, out: &mut Vec<u8>);
}

/// Chunks as server-sent events.
pub(crate) struct ServerSentEvents<W>(pub(crate) W);

impl<W: AnswerWriter> StreamWriter for ServerSentEvents<W> {
    const HEADERS: &'static [(&'static str, &'static str)] = &[
        ("content-type", "text/event-stream; charset=utf-8"),
        ("cache-control", "no-cache"),
        // Proxies that buffer know this name.
        ("x-accel-buffering", "no"),
    ];

    fn opening(&mut self, out: &mut Vec<u8>) {
        self.0.opening(out);
    }

    fn progress(&mut self, usage: &dyn Fn() -> Usage) {
        self.0.progress(usage);
    }

    fn event(&mut self, event: Event, out: &mut Vec<u8>) {
        match event {
            Event::Prompt { choice, tokens } => self.0.prompt(choice, &tokens, out),
            Event::Delta {
                choice,
                delta,
                logprobs,
                tokens,
            } => self.0.delta(choice, delta, logprobs, tokens, out),
            Event::ServerToolCall { choice, call } => self.0.server_tool_call(choice, &call, out),
            Event::Finished {
                choice,
                reason,
                tokens,
                ..
            } => self.0.finished(choice, reason, tokens, out),
            Event::Completed { usage } => {
                self.0.completed(usage, out);
                out.extend_from_slice(b"data: [DONE]\n\n");
            }
            Event::Failed(error) => Self::problem(&crate::problem::problem_of(error), out),
        }
    }

    fn heartbeat(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b": keep-alive\n\n");
    }

    fn problem(problem: &Problem, out: &mut Vec<u8>) {
        write_event(out, &error_body(problem));
    }
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
