//! The response while it is made: events of the service in, events of the dialect and the response object out.
//! Both are made from the same items, so that a stream's pieces add up to the whole response.

use std::sync::Arc;

use mortise_http::Problem;
use mortise_service::{
    Delta, Event, FinishReason, ServerToolCall, TokenLogprob, ToolOutcome, Usage,
};
use serde_json::{Map, Value, json};

use super::file_search;
use super::items::sealed;
use super::request::ResponseShape;
use super::tools::SERVER_LABEL;
use crate::collections::{FILE_SEARCH, FileSearch, Searched};
use crate::ids::{Ids, now};

/// A response that is being made.
pub(super) struct ResponseAssembly {
    /// Response object, with all fields but the output.
    response: Map<String, Value>,
    items: Vec<Value>,
    /// The message or the reasoning that grows, by its place in `items`.
    growing: Option<usize>,
    /// Calls of the client's functions: their places in `items`, by the service's index.
    calls: Vec<usize>,
    /// Number of `calls` that are complete.
    closed_calls: usize,
    shape: ResponseShape,
    ids: Ids,
    sequence: u64,
    finish: Option<FinishReason>,
    /// Search in documents, whose passages the answer cites.
    pub(super) search: Option<Arc<FileSearch>>,
}

impl ResponseAssembly {
    pub(super) fn new(
        mut echo: Map<String, Value>,
        shape: ResponseShape,
        mut ids: Ids,
        background: bool,
    ) -> Self {
        let status = if background { "queued" } else { "in_progress" };
        let head = json!({
            "id": ids.make("resp_"),
            "object": "response",
            "created_at": now(),
            "status": status,
            "background": background,
            "completed_at": null,
            "error": null,
            "incomplete_details": null,
            "model": "",
            "output": [],
            "usage": null,
        });
        let mut response = match head {
            Value::Object(head) => head,
            _ => Map::new(),
        };
        response.append(&mut echo);
        Self {
            response,
            items: Vec::new(),
            growing: None,
            calls: Vec::new(),
            closed_calls: 0,
            shape,
            ids,
            sequence: 0,
            finish: None,
            search: None,
        }
    }

    /// Assembly of a stored response that is made anew after a restart.
    pub(super) fn again(response: Map<String, Value>, shape: ResponseShape) -> Self {
        let mut again = Self::new(Map::new(), shape, Ids::default(), true);
        again.response = response;
        again.set("output", json!([]));
        again
    }

    pub(super) fn id(&self) -> String {
        self.response["id"].as_str().unwrap_or_default().to_owned()
    }

    pub(super) fn created(&self) -> i64 {
        self.response["created_at"].as_i64().unwrap_or_default()
    }

    pub(super) fn set(&mut self, field: &str, value: Value) {
        self.response.insert(field.to_owned(), value);
    }

    /// Items so far.
    pub(super) fn items(&self) -> &[Value] {
        &self.items
    }

    /// The response as it is now.
    pub(super) fn response(&self) -> Value {
        let mut response = self.response.clone();
        response.insert("output".to_owned(), Value::Array(self.items.clone()));
        Value::Object(response)
    }

    fn push(&mut self, out: &mut Vec<Value>, kind: &str, more: Value) {
        let mut event = Map::new();
        event.insert("type".to_owned(), json!(kind));
        event.insert("sequence_number".to_owned(), json!(self.sequence));
        self.sequence += 1;
        if let Value::Object(more) = more {
            event.extend(more);
        }
        out.push(Value::Object(event));
    }

    fn push_response(&mut self, out: &mut Vec<Value>, kind: &str) {
        let response = self.response();
        self.push(out, kind, json!({"response": response}));
    }

    /// Events before the first of the service.
    pub(super) fn opening(&mut self, out: &mut Vec<Value>) {
        self.push_response(out, "response.created");
        if self.response["status"] == "queued" {
            self.push_response(out, "response.queued");
            self.set("status", json!("in_progress"));
        }
        self.push_response(out, "response.in_progress");
    }

    /// Events of one of the service's that does not end the answer.
    pub(super) fn event(&mut self, event: Event, out: &mut Vec<Value>) {
        match event {
            Event::Delta {
                delta, logprobs, ..
            } => self.delta(delta, &logprobs, out),
            Event::ServerToolCall { call, .. } => self.server_call(&call, out),
            Event::Finished { reason, .. } => {
                self.finish = Some(reason);
                self.close_growing(out);
                self.close_calls(out);
            }
            Event::Prompt { .. } | Event::Completed { .. } | Event::Failed(_) => {}
        }
    }

    fn delta(&mut self, delta: Delta, logprobs: &[TokenLogprob], out: &mut Vec<Value>) {
        match delta {
            Delta::Content(text) => {
                let at = self.grow("message", out);
                let logprobs = self.logprobs(logprobs);
                append(&mut self.items[at], &text, &logprobs);
                let mut event = self.place(at);
                event["content_index"] = json!(0);
                if self.shape.obfuscate {
                    event["obfuscation"] = json!(padding(text.len()));
                }
                event["delta"] = json!(text);
                event["logprobs"] = json!(logprobs);
                self.push(out, "response.output_text.delta", event);
            }
            Delta::Reasoning(text) => {
                let at = self.grow("reasoning", out);
                append(&mut self.items[at], &text, &[]);
                let mut event = self.place(at);
                event["content_index"] = json!(0);
                event["delta"] = json!(text);
                self.push(out, "response.reasoning_text.delta", event);
            }
            Delta::CallBegin { id, name, .. } => {
                self.close_growing(out);
                let item = json!({
                    "id": self.ids.make("fc_"),
                    "type": "function_call",
                    "status": "in_progress",
                    "call_id": id,
                    "name": name,
                    "arguments": "",
                });
                let at = self.add(item, out);
                self.calls.push(at);
            }
            Delta::CallArguments { index, delta } => {
                let Some(at) = self.calls.get(index as usize).copied() else {
                    return;
                };
                if let Value::String(arguments) = &mut self.items[at]["arguments"] {
                    arguments.push_str(&delta);
                }
                let mut event = self.place(at);
                event["delta"] = json!(delta);
                self.push(out, "response.function_call_arguments.delta", event);
            }
        }
    }

    fn logprobs(&self, logprobs: &[TokenLogprob]) -> Vec<Value> {
        if !self.shape.logprobs {
            return Vec::new();
        }
        logprobs.iter().map(logprob_body).collect()
    }

    /// Id and place of an item, as its events have them.
    fn place(&self, at: usize) -> Value {
        json!({"item_id": self.items[at]["id"], "output_index": at})
    }

    fn add(&mut self, item: Value, out: &mut Vec<Value>) -> usize {
        let at = self.items.len();
        self.push(
            out,
            "response.output_item.added",
            json!({"output_index": at, "item": item}),
        );
        self.items.push(item);
        at
    }

    /// An item has ended. The last one of an answer that was cut is incomplete; what has ended never changes.
    fn done(&mut self, at: usize, out: &mut Vec<Value>) {
        let cut = self.cut().is_some() && at + 1 == self.items.len();
        self.items[at]["status"] = json!(if cut { "incomplete" } else { "completed" });
        let event = json!({"output_index": at, "item": self.items[at]});
        self.push(out, "response.output_item.done", event);
    }

    /// The place of the item of this type that grows, begun if there is none.
    fn grow(&mut self, kind: &str, out: &mut Vec<Value>) -> usize {
        if let Some(at) = self.growing {
            if self.items[at]["type"] == kind {
                return at;
            }
            self.close_growing(out);
        }
        self.close_calls(out);
        let (item, part) = match kind {
            "message" => (
                json!({
                    "id": self.ids.make("msg_"),
                    "type": "message",
                    "status": "in_progress",
                    "role": "assistant",
                    "content": [],
                }),
                json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []}),
            ),
            _ => (
                json!({
                    "id": self.ids.make("rs_"),
                    "type": "reasoning",
                    "status": "in_progress",
                    "summary": [],
                    "content": [],
                }),
                json!({"type": "reasoning_text", "text": ""}),
            ),
        };
        let at = self.add(item, out);
        let mut event = self.place(at);
        event["content_index"] = json!(0);
        event["part"] = part.clone();
        self.push(out, "response.content_part.added", event);
        self.items[at]["content"] = json!([part]);
        self.growing = Some(at);
        at
    }

    fn close_growing(&mut self, out: &mut Vec<Value>) {
        let Some(at) = self.growing.take() else {
            return;
        };
        let is_message = self.items[at]["type"] == "message";
        let mut event = self.place(at);
        event["content_index"] = json!(0);
        if is_message {
            self.cite(at, &event, out);
        }
        let part = self.items[at]["content"][0].clone();
        let mut ended = event.clone();
        ended["text"] = part["text"].clone();
        let kind = match is_message {
            true => {
                ended["logprobs"] = part["logprobs"].clone();
                "response.output_text.done"
            }
            false => "response.reasoning_text.done",
        };
        self.push(out, kind, ended);
        event["part"] = part.clone();
        self.push(out, "response.content_part.done", event);
        if !is_message && self.shape.encrypted {
            let text = part["text"].as_str().unwrap_or_default();
            self.items[at]["encrypted_content"] = json!(sealed(text));
        }
        self.done(at, out);
    }

    /// Citations of a message that is complete.
    fn cite(&mut self, at: usize, place: &Value, out: &mut Vec<Value>) {
        let Some(search) = &self.search else {
            return;
        };
        let text = self.items[at]["content"][0]["text"].as_str();
        let citations = file_search::citations(text.unwrap_or_default(), search);
        for (index, citation) in citations.iter().enumerate() {
            let mut event = place.clone();
            event["annotation_index"] = json!(index);
            event["annotation"] = citation.clone();
            self.push(out, "response.output_text.annotation.added", event);
        }
        self.items[at]["content"][0]["annotations"] = json!(citations);
    }

    fn close_calls(&mut self, out: &mut Vec<Value>) {
        while let Some(at) = self.calls.get(self.closed_calls).copied() {
            self.closed_calls += 1;
            let mut event = self.place(at);
            event["name"] = self.items[at]["name"].clone();
            event["arguments"] = self.items[at]["arguments"].clone();
            self.push(out, "response.function_call_arguments.done", event);
            self.done(at, out);
        }
    }

    /// A tool of the server has run: a call with its result, written as that of an MCP server.
    fn server_call(&mut self, call: &ServerToolCall, out: &mut Vec<Value>) {
        self.close_growing(out);
        let answered = call.outcome == ToolOutcome::Answered;
        if let (FILE_SEARCH, Some(search)) = (call.name.as_str(), &self.search) {
            let searched = search.searched(&call.id).unwrap_or_default();
            return self.searched(&searched, answered, out);
        }
        let (output, error) = match answered {
            true => (json!(call.text), Value::Null),
            false => (Value::Null, json!(call.text)),
        };
        let item = |id: &str, arguments: &str, output, error, status| {
            json!({
                "id": id,
                "type": "mcp_call",
                "status": status,
                "server_label": SERVER_LABEL,
                "name": call.name,
                "arguments": arguments,
                "output": output,
                "error": error,
                "approval_request_id": null,
            })
        };
        let id = self.ids.make("mcp_");
        let begun = item(&id, "", Value::Null, Value::Null, "in_progress");
        let at = self.add(begun, out);
        let place = self.place(at);
        self.push(out, "response.mcp_call.in_progress", place.clone());
        let mut event = place.clone();
        event["delta"] = json!(call.arguments);
        self.push(out, "response.mcp_call_arguments.delta", event);
        let mut event = place.clone();
        event["arguments"] = json!(call.arguments);
        self.push(out, "response.mcp_call_arguments.done", event);
        let (kind, status) = match answered {
            true => ("response.mcp_call.completed", "completed"),
            false => ("response.mcp_call.failed", "failed"),
        };
        self.push(out, kind, place);
        self.items[at] = item(&id, &call.arguments, output, error, status);
        let event = json!({"output_index": at, "item": self.items[at]});
        self.push(out, "response.output_item.done", event);
    }

    /// A search in documents has run.
    fn searched(&mut self, searched: &Searched, answered: bool, out: &mut Vec<Value>) {
        let id = self.ids.make("fs_");
        let begun = file_search::item(&id, "in_progress", searched, false);
        let at = self.add(begun, out);
        let place = self.place(at);
        self.push(out, "response.file_search_call.in_progress", place.clone());
        self.push(out, "response.file_search_call.searching", place.clone());
        let status = if answered { "completed" } else { "failed" };
        if answered {
            self.push(out, "response.file_search_call.completed", place);
        }
        self.items[at] = file_search::item(&id, status, searched, self.shape.results);
        let event = json!({"output_index": at, "item": self.items[at]});
        self.push(out, "response.output_item.done", event);
    }

    /// Note the end of a complete answer, which [`ResponseAssembly::ending`] tells.
    pub(super) fn completed(&mut self, usage: Usage, out: &mut Vec<Value>) {
        self.close_growing(out);
        self.close_calls(out);
        self.set("usage", usage_body(usage));
        match self.cut() {
            Some(reason) => {
                self.set("status", json!("incomplete"));
                self.set("incomplete_details", json!({"reason": reason}));
            }
            None => {
                self.set("status", json!("completed"));
                self.set("completed_at", json!(now()));
            }
        }
    }

    /// Reason for which the answer is not complete.
    fn cut(&self) -> Option<&'static str> {
        match self.finish {
            Some(FinishReason::Length) => Some("max_output_tokens"),
            Some(FinishReason::ContentFilter) => Some("content_filter"),
            _ => None,
        }
    }

    /// Note the end of an answer that failed.
    pub(super) fn failed(&mut self, problem: &Problem) {
        self.set("status", json!("failed"));
        self.set("completed_at", Value::Null);
        let error = json!({"code": problem.code, "message": problem.text()});
        self.set("error", error);
    }

    /// The last events.
    pub(super) fn ending(&mut self, out: &mut Vec<Value>) {
        if let Some(metrics) = self.response.get("metrics").cloned() {
            self.push(out, "response.metrics", json!({"metrics": metrics}));
        }
        let status = self.response["status"].as_str().unwrap_or_default();
        let kind = match status {
            "completed" => "response.completed",
            "incomplete" => "response.incomplete",
            _ => "response.failed",
        };
        self.push_response(out, kind);
    }

    /// The end of an answer that its caller cancelled.
    pub(super) fn cancelled(&mut self) {
        self.set("status", json!("cancelled"));
        for item in &mut self.items {
            if item["status"] == "in_progress" {
                item["status"] = json!("incomplete");
            }
        }
    }

    /// True if the caller wants timings.
    pub(super) fn wants_metrics(&self) -> bool {
        self.shape.metrics
    }
}

/// Append text to the only part of an item.
fn append(item: &mut Value, text: &str, logprobs: &[Value]) {
    let part = &mut item["content"][0];
    if let Value::String(held) = &mut part["text"] {
        held.push_str(text);
    }
    if let Some(Value::Array(held)) = part.get_mut("logprobs") {
        held.extend_from_slice(logprobs);
    }
}

fn logprob_body(entry: &TokenLogprob) -> Value {
    // JSON has no infinity; OpenAI writes this for a token that could not have been chosen.
    let finite = |logprob: f32| {
        if logprob.is_finite() {
            logprob
        } else {
            -9999.0
        }
    };
    let top = entry.top.iter().map(|(token, bytes, logprob)| {
        json!({"token": token, "bytes": bytes, "logprob": finite(*logprob)})
    });
    json!({
        "token": entry.token,
        "bytes": entry.bytes,
        "logprob": finite(entry.logprob),
        "top_logprobs": top.collect::<Vec<_>>(),
    })
}

pub(super) fn usage_body(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens.saturating_add(usage.completion_tokens),
    })
}

/// Random letters that bring a piece of `bytes` to a multiple of 32 bytes.
fn padding(bytes: usize) -> String {
    let mut random = uuid::Uuid::new_v4().simple().to_string();
    random.truncate(32 - bytes % 32);
    random
}
