//! The shapes of chat completions, whole and in chunks. Both are made from the same events, so
//! that a stream's pieces add up to the whole answer.

use mortise_service::{Delta, FinishReason, PromptToken, ServerToolCall, TokenLogprob, Usage};
use serde::Serialize;
use serde_json::{Value, json};

use super::answer::AnswerWriter;
use super::chunk::Chunks;
use super::envelope::{AnswerIdentity, AnswerShape, FINGERPRINT, UsageBody};
use super::prompt_scores::{finite, scores};
use super::thoughts::{AnswerPiece, PlacedDeltas};

#[derive(Serialize)]
struct LogprobBody<'a> {
    token: &'a str,
    bytes: &'a [u8],
    logprob: f32,
    top_logprobs: Vec<TopBody<'a>>,
}

#[derive(Serialize)]
struct TopBody<'a> {
    token: &'a str,
    bytes: &'a [u8],
    logprob: f32,
}

fn logprob_body(entry: &TokenLogprob) -> LogprobBody<'_> {
    LogprobBody {
        token: &entry.token,
        bytes: &entry.bytes,
        logprob: finite(entry.logprob),
        top_logprobs: entry
            .top
            .iter()
            .map(|(token, bytes, logprob)| TopBody {
                token,
                bytes,
                logprob: finite(*logprob),
            })
            .collect(),
    }
}

/// The name of a finish reason.
pub(crate) fn finish_name(reason: FinishReason, legacy_functions: bool) -> &'static str {
    match reason {
        FinishReason::ToolCalls if legacy_functions => "function_call",
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::ContentFilter => "content_filter",
    }
}

/// Gathers the events of a chat answer into one body.
pub(crate) struct ChatWhole {
    identity: AnswerIdentity,
    shape: AnswerShape,
    /// Ids of the prompt, where the caller wants them.
    prompt: Option<Vec<u32>>,
    /// Log-probabilities of the prompt, where the caller wants them.
    scores: Vec<Value>,
    placed: PlacedDeltas,
    choices: Vec<WholeChoice>,
}

#[derive(Default)]
struct WholeChoice {
    content: String,
    reasoning: String,
    calls: Vec<WholeCall>,
    server_calls: Vec<ServerToolCall>,
    logprobs: Vec<TokenLogprob>,
    tokens: Vec<u32>,
    finish: Option<FinishReason>,
}

#[derive(Default)]
struct WholeCall {
    id: String,
    name: String,
    arguments: String,
}

impl ChatWhole {
    pub(crate) fn new(
        identity: AnswerIdentity,
        shape: AnswerShape,
        n: u32,
        prompt: Option<Vec<u32>>,
    ) -> Self {
        Self {
            identity,
            shape,
            prompt,
            scores: Vec::new(),
            placed: PlacedDeltas::new(shape.thoughts, shape.token_ids, n),
            choices: (0..n).map(|_| WholeChoice::default()).collect(),
        }
    }

    /// Tokens of the prompt.
    pub(crate) fn prompt(&mut self, tokens: &[PromptToken]) {
        if let Some(top) = self.shape.prompt_logprobs {
            self.scores
                .extend(tokens.iter().map(|token| scores(token, top)));
        }
    }

    pub(crate) fn delta(
        &mut self,
        choice: u32,
        delta: Delta,
        logprobs: Vec<TokenLogprob>,
        tokens: &[u32],
    ) {
        for piece in self
            .placed
            .delta(choice, (delta, logprobs, tokens.to_vec()))
        {
            self.piece(choice, piece);
        }
    }

    fn piece(&mut self, choice: u32, (delta, logprobs, tokens): AnswerPiece) {
        let Some(choice) = self.choices.get_mut(choice as usize) else {
            return;
        };
        choice.tokens.extend(tokens);
        match delta {
            Delta::Content(text) => {
                choice.content.push_str(&text);
                choice.logprobs.extend(logprobs);
            }
            Delta::Reasoning(text) => {
                choice.reasoning.push_str(&text);
                choice.logprobs.extend(logprobs);
            }
            Delta::CallBegin { id, name, .. } => choice.calls.push(WholeCall {
                id,
                name,
                arguments: String::new(),
            }),
            Delta::CallArguments { index, delta } => {
                if let Some(call) = choice.calls.get_mut(index as usize) {
                    call.arguments.push_str(&delta);
                }
            }
        }
    }

    pub(crate) fn server_tool_call(&mut self, choice: u32, call: ServerToolCall) {
        if let Some(choice) = self.choices.get_mut(choice as usize) {
            choice.server_calls.push(call);
        }
    }

    pub(crate) fn finished(&mut self, choice: u32, reason: FinishReason, tokens: &[u32]) {
        if let Some(piece) = self.placed.finished(choice, reason) {
            self.piece(choice, piece);
        }
        if let Some(choice) = self.choices.get_mut(choice as usize) {
            choice.tokens.extend(tokens);
            choice.finish = Some(reason);
        }
    }

    pub(crate) fn body(self, usage: Usage) -> ChatBody {
        let shape = self.shape;
        let choices = self.choices.into_iter().zip(0..);
        ChatBody {
            id: self.identity.id,
            object: "chat.completion",
            created: self.identity.created,
            model: self.identity.model,
            system_fingerprint: FINGERPRINT,
            choices: choices
                .map(|(choice, index)| whole_choice(index, choice, shape))
                .collect(),
            usage: UsageBody::from(usage),
            prompt_token_ids: self.prompt,
            prompt_logprobs: shape.prompt_logprobs.map(|_| self.scores),
        }
    }
}

/// A whole answer.
#[derive(Serialize)]
pub(crate) struct ChatBody {
    pub(crate) id: String,
    object: &'static str,
    /// Seconds since 1970.
    pub(crate) created: u64,
    model: String,
    system_fingerprint: &'static str,
    choices: Vec<ChoiceBody>,
    usage: UsageBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_logprobs: Option<Vec<Value>>,
}

#[derive(Serialize)]
struct ChoiceBody {
    index: u32,
    message: MessageBody,
    logprobs: Option<Value>,
    finish_reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
}

#[derive(Serialize)]
struct MessageBody {
    role: &'static str,
    refusal: Option<()>,
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_call: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_tool_calls: Option<Value>,
}

fn whole_choice(index: u32, choice: WholeChoice, shape: AnswerShape) -> ChoiceBody {
    // An answer that only calls tools has no content; an empty answer has empty content.
    let content = !choice.content.is_empty() || choice.calls.is_empty();
    let reasoning = (!choice.reasoning.is_empty()).then_some(choice.reasoning);
    let called = choice.calls.first().filter(|_| shape.legacy_functions);
    let function_call = called.map(|call| json!({"name": call.name, "arguments": call.arguments}));
    let tool_calls = (function_call.is_none() && !choice.calls.is_empty()).then(|| {
        let calls = choice.calls.into_iter().map(|call| {
            json!({
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            })
        });
        calls.collect()
    });
    let server_tool_calls = (!choice.server_calls.is_empty()).then(|| {
        let calls = choice.server_calls.iter().map(ServerCallBody::from);
        json!(calls.collect::<Vec<_>>())
    });
    let logprobs = shape.logprobs.then(|| {
        let content: Vec<_> = choice.logprobs.iter().map(logprob_body).collect();
        json!({"content": content, "refusal": null})
    });
    let finish = choice.finish.unwrap_or(FinishReason::Stop);
    ChoiceBody {
        index,
        message: MessageBody {
            role: "assistant",
            refusal: None,
            content: content.then_some(choice.content),
            reasoning: reasoning.clone(),
            reasoning_content: reasoning,
            function_call,
            tool_calls,
            server_tool_calls,
        },
        logprobs,
        finish_reason: finish_name(finish, shape.legacy_functions),
        token_ids: shape.token_ids.then_some(choice.tokens),
    }
}

/// A call of a tool that the server has run. OpenAI has no such field; its clients pass on fields that
/// they do not know, and join lists in deltas by `index`.
#[derive(Serialize)]
struct ServerCallBody<'a> {
    index: u32,
    id: &'a str,
    name: &'a str,
    arguments: &'a str,
    outcome: &'static str,
    output: &'a str,
}

impl<'a> From<&'a ServerToolCall> for ServerCallBody<'a> {
    fn from(call: &'a ServerToolCall) -> Self {
        Self {
            index: call.index,
            id: &call.id,
            name: &call.name,
            arguments: &call.arguments,
            outcome: call.outcome.name(),
            output: &call.text,
        }
    }
}

/// Writes the events of a chat answer as chunks.
pub(crate) struct ChatChunks {
    chunks: Chunks,
    n: u32,
    placed: PlacedDeltas,
}

#[derive(Serialize)]
struct ChunkChoice<'a> {
    index: u32,
    delta: ChunkDelta<'a>,
    logprobs: Option<ChunkLogprobs<'a>>,
    finish_reason: Option<&'static str>,
    /// vLLM's field.
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
}

#[derive(Serialize)]
struct ChunkLogprobs<'a> {
    content: Vec<LogprobBody<'a>>,
    refusal: Option<()>,
}

#[derive(Default, Serialize)]
struct ChunkDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<()>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[ChunkCall<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_call: Option<ChunkFunction<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_tool_calls: Option<[ServerCallBody<'a>; 1]>,
}

#[derive(Serialize)]
struct ChunkCall<'a> {
    index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<&'static str>,
    function: ChunkFunction<'a>,
}

#[derive(Serialize)]
struct ChunkFunction<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    arguments: &'a str,
}

impl ChatChunks {
    /// `prompt` are its ids, where the caller wants them.
    pub(crate) fn new(
        identity: AnswerIdentity,
        shape: AnswerShape,
        n: u32,
        prompt: Option<Vec<u32>>,
    ) -> Self {
        let object = "chat.completion.chunk";
        let chunks = Chunks {
            object,
            identity,
            shape,
            so_far: None,
            prompt,
        };
        let placed = PlacedDeltas::new(shape.thoughts, shape.token_ids, n);
        Self { chunks, n, placed }
    }

    fn one(
        &self,
        index: u32,
        delta: ChunkDelta<'_>,
        finish: Option<&'static str>,
        tokens: Vec<u32>,
        out: &mut Vec<u8>,
    ) {
        self.write(
            &ChunkChoice {
                index,
                delta,
                logprobs: None,
                finish_reason: finish,
                token_ids: self.chunks.shape.token_ids.then_some(tokens),
            },
            out,
        );
    }

    fn write(&self, choice: &ChunkChoice<'_>, out: &mut Vec<u8>) {
        let delta = &choice.delta;
        let text = delta.content.or(delta.reasoning).map_or(0, str::len);
        self.chunks.choice(choice, text, out);
    }

    /// Write part of a choice.
    fn piece(&self, index: u32, (delta, logprobs, tokens): AnswerPiece, out: &mut Vec<u8>) {
        let body = match &delta {
            Delta::Content(text) => ChunkDelta {
                content: Some(text),
                ..ChunkDelta::default()
            },
            Delta::Reasoning(text) => ChunkDelta {
                reasoning_content: Some(text),
                reasoning: Some(text),
                ..ChunkDelta::default()
            },
            Delta::CallBegin { index, id, name } => self.call_delta(ChunkCall {
                index: *index,
                id: Some(id),
                r#type: Some("function"),
                function: ChunkFunction {
                    name: Some(name),
                    arguments: "",
                },
            }),
            Delta::CallArguments { index, delta } => self.call_delta(ChunkCall {
                index: *index,
                id: None,
                r#type: None,
                function: ChunkFunction {
                    name: None,
                    arguments: delta,
                },
            }),
        };
        // Log-probabilities are those of the text: of the reasoning, then of the content.
        let text = matches!(delta, Delta::Content(_) | Delta::Reasoning(_));
        let wanted = self.chunks.shape.logprobs && text;
        let choice = ChunkChoice {
            index,
            delta: body,
            logprobs: wanted.then(|| ChunkLogprobs {
                content: logprobs.iter().map(logprob_body).collect(),
                refusal: None,
            }),
            finish_reason: None,
            token_ids: self.chunks.shape.token_ids.then_some(tokens),
        };
        self.write(&choice, out);
    }

    fn call_delta<'a>(&self, call: ChunkCall<'a>) -> ChunkDelta<'a> {
        if self.chunks.shape.legacy_functions {
            return ChunkDelta {
                function_call: Some(call.function),
                ..ChunkDelta::default()
            };
        }
        ChunkDelta {
            tool_calls: Some([call]),
            ..ChunkDelta::default()
        }
    }
}

impl AnswerWriter for ChatChunks {
    fn progress(&mut self, usage: &dyn Fn() -> Usage) {
        self.chunks.progress(usage);
    }

    fn opening(&mut self, out: &mut Vec<u8>) {
        for index in 0..self.n {
            let delta = ChunkDelta {
                role: Some("assistant"),
                content: Some(""),
                ..ChunkDelta::default()
            };
            self.one(index, delta, None, Vec::new(), out);
        }
        self.chunks.prompt = None;
    }

    fn delta(
        &mut self,
        index: u32,
        delta: Delta,
        logprobs: Vec<TokenLogprob>,
        tokens: Vec<u32>,
        out: &mut Vec<u8>,
    ) {
        for piece in self.placed.delta(index, (delta, logprobs, tokens)) {
            self.piece(index, piece, out);
        }
    }

    fn server_tool_call(&mut self, choice: u32, call: &ServerToolCall, out: &mut Vec<u8>) {
        let delta = ChunkDelta {
            server_tool_calls: Some([call.into()]),
            ..ChunkDelta::default()
        };
        self.one(choice, delta, None, Vec::new(), out);
    }

    fn finished(&mut self, choice: u32, reason: FinishReason, tokens: Vec<u32>, out: &mut Vec<u8>) {
        if let Some(piece) = self.placed.finished(choice, reason) {
            self.piece(choice, piece, out);
        }
        let finish = finish_name(reason, self.chunks.shape.legacy_functions);
        self.one(choice, ChunkDelta::default(), Some(finish), tokens, out);
    }

    fn completed(&mut self, usage: Usage, out: &mut Vec<u8>) {
        self.chunks.usage(usage, out);
    }
}
