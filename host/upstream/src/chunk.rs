//! Wire types of a streamed answer. What servers add beyond these is passed over.

use mortise_models::{FinishReason, TokenLogprob, Usage};
use serde::Deserialize;
use serde_json::Value;

use crate::limits::MAX_TOP_LOGPROBS;

/// Event of the stream.
#[derive(Debug, Deserialize)]
pub(crate) struct StreamChunk {
    pub(crate) choices: Option<Vec<ChunkChoice>>,
    pub(crate) usage: Option<WireUsage>,
    /// A failure after the answer has begun.
    pub(crate) error: Option<Value>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ChunkChoice {
    pub(crate) index: Option<u32>,
    pub(crate) delta: Option<WireDelta>,
    /// Text of a completion.
    pub(crate) text: Option<String>,
    pub(crate) logprobs: Option<WireLogprobs>,
    pub(crate) finish_reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct WireDelta {
    pub(crate) content: Option<String>,
    pub(crate) refusal: Option<String>,
    pub(crate) reasoning_content: Option<String>,
    /// Text of reasoning under the name `reasoning`; `reasoning_content` is the other name. Some servers put objects
    /// here.
    pub(crate) reasoning: Option<Value>,
    pub(crate) tool_calls: Option<Vec<WireCall>>,
}

impl WireDelta {
    /// Reasoning, by whichever name; a server may send both.
    pub(crate) fn take_reasoning(&mut self) -> Option<String> {
        let other = match self.reasoning.take() {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        self.reasoning_content.take().or(other)
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct WireCall {
    pub(crate) index: Option<u32>,
    pub(crate) id: Option<String>,
    pub(crate) function: Option<WireFunction>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct WireFunction {
    pub(crate) name: Option<String>,
    pub(crate) arguments: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct WireLogprobs {
    content: Option<Vec<WireToken>>,
}

#[derive(Debug, Deserialize)]
struct WireToken {
    token: String,
    logprob: f64,
    bytes: Option<Vec<u8>>,
    top_logprobs: Option<Vec<WireTop>>,
}

#[derive(Debug, Deserialize)]
struct WireTop {
    token: String,
    logprob: f64,
    bytes: Option<Vec<u8>>,
}

impl WireLogprobs {
    /// The tokens as ours.
    pub(crate) fn tokens(self) -> Vec<TokenLogprob> {
        // The logarithm of a probability, whatever was sent for one.
        let logprob = |given: f64| given.clamp(f64::from(f32::MIN), 0.0) as f32;
        let bytes = |token: &str, bytes: Option<Vec<u8>>| bytes.unwrap_or_else(|| token.into());
        let tokens = self.content.into_iter().flatten().map(|token| {
            let top = token.top_logprobs.into_iter().flatten();
            let top = top.take(MAX_TOP_LOGPROBS).map(|top| {
                let bytes = bytes(&top.token, top.bytes);
                (top.token, bytes, logprob(top.logprob))
            });
            TokenLogprob {
                top: top.collect(),
                bytes: bytes(&token.token, token.bytes),
                token: token.token,
                logprob: logprob(token.logprob),
            }
        });
        tokens.collect()
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct WireUsage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Debug, Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct CompletionDetails {
    reasoning_tokens: Option<u64>,
}

impl WireUsage {
    /// The usage as ours: parts are no greater than what they are part of.
    pub(crate) fn usage(&self) -> Usage {
        let count = |count: Option<u64>| u32::try_from(count.unwrap_or(0)).unwrap_or(u32::MAX);
        let cached = self.prompt_tokens_details.as_ref();
        let cached = count(cached.and_then(|details| details.cached_tokens));
        let reasoning = self.completion_tokens_details.as_ref();
        let reasoning = count(reasoning.and_then(|details| details.reasoning_tokens));
        let (prompt, completion) = (count(self.prompt_tokens), count(self.completion_tokens));
        Usage {
            prompt_tokens: prompt,
            cached_tokens: cached.min(prompt),
            completion_tokens: completion,
            reasoning_tokens: reasoning.min(completion),
        }
    }
}

/// A finish reason by its name; `None` for one that is no orderly end.
pub(crate) fn finish_reason(name: &str) -> Option<FinishReason> {
    Some(match name {
        "stop" | "eos" | "eos_token" | "end_turn" | "stop_sequence" => FinishReason::Stop,
        "length" | "max_tokens" => FinishReason::Length,
        "tool_calls" | "function_call" | "tool_use" => FinishReason::ToolCalls,
        "content_filter" => FinishReason::ContentFilter,
        _ => return None,
    })
}
