//! Scripted conversation runtime: the text of a script as events, the way a remote server that parses
//! its own output would send them.
//!
//! A script marks what is not content: `<think>…</think>` is reasoning, and `<call>NAME ARGUMENTS</call>`
//! is a tool call. A word with the space before it counts as a token, and comes as a delta of its own.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mortise_engine::{EngineLoad, SubmitError};
use tokio::sync::mpsc::Sender;

use crate::conversation::{ContentPart, Conversation, Role};
use crate::conversation_runtime::{
    ConversationRequest, ConversationRuntime, OutputEvent, OutputStream, RenderedRequest,
};
use crate::output::{Delta, FinishReason, Usage};
use crate::script::{Script, ScriptCounters, ScriptSlot};
use crate::scripted::DecodeTokens;

/// Answers conversations with the text of a [`Script`], within `max_tokens`, the context and the stop
/// strings. With a decoder it answers prompts that were rendered elsewhere too: with the script's text as it
/// stands, marks included, as a server that completes text does.
pub struct ScriptedConversation {
    script: Script,
    decode: Option<Arc<DecodeTokens>>,
    counters: Arc<ScriptCounters>,
}

impl fmt::Debug for ScriptedConversation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ScriptedConversation")
            .field("script", &self.script)
            .finish_non_exhaustive()
    }
}

/// One choice of a script: its prompt, its deltas, and their bounds.
struct Order {
    prompt: String,
    prompt_tokens: usize,
    max_tokens: u32,
}

impl ScriptedConversation {
    /// A runtime that answers with `script`.
    pub fn new(script: Script) -> Self {
        Self {
            script,
            decode: None,
            counters: Arc::default(),
        }
    }

    /// Take prompts that were rendered elsewhere too; `decode` turns their tokens into text.
    pub fn with_decoder(self, decode: Arc<DecodeTokens>) -> Self {
        let decode = Some(decode);
        Self { decode, ..self }
    }

    /// Refuse what a script cannot do.
    fn check(request: &ConversationRequest) -> Result<(), SubmitError> {
        let problem = if request.format.is_some() {
            "a script cannot follow an output format"
        } else if request.logprobs.is_some() {
            "a script has no log-probabilities"
        } else if request.max_tokens == 0 {
            "max_tokens is 0; at least 1 is needed"
        } else {
            return Ok(());
        };
        Err(SubmitError::Invalid(problem.to_owned()))
    }
}

impl ScriptedConversation {
    /// Begin the answer to `order`, whose deltas `deltas` makes of the script's text.
    fn play(
        &self,
        order: &Order,
        deltas: impl FnOnce(&str) -> Vec<Delta>,
    ) -> Result<OutputStream, SubmitError> {
        let (prompt, context) = (order.prompt_tokens, self.script.context_length);
        if prompt >= context {
            return Err(SubmitError::ContextLength { prompt, context });
        }
        let slot = ScriptSlot::take(&self.counters, self.script.max_sequences)?;
        self.counters.add_prompt(prompt);
        let (sender, stream) = OutputStream::channel();
        let playback = Playback {
            output: deltas(&self.script.text_for(&order.prompt)),
            limit: (context - prompt).min(order.max_tokens as usize),
            delay: self.script.token_delay,
            prompt_tokens: u32::try_from(prompt).unwrap_or(u32::MAX),
            sender,
            slot,
        };
        thread::Builder::new()
            .name("scripted".to_owned())
            .spawn(move || playback.run())
            .map_err(|error| SubmitError::Invalid(format!("cannot start a thread: {error}")))?;
        Ok(stream)
    }
}

impl ConversationRuntime for ScriptedConversation {
    fn submit(&self, request: ConversationRequest) -> Result<OutputStream, SubmitError> {
        Self::check(&request)?;
        let prompt = text_of(&request.conversation);
        let order = Order {
            prompt_tokens: words(&prompt).count(),
            prompt,
            max_tokens: request.max_tokens,
        };
        self.play(&order, |text| deltas(text, &request.stop))
    }

    fn submit_rendered(&self, request: RenderedRequest) -> Result<OutputStream, SubmitError> {
        let invalid = |problem: &str| Err(SubmitError::Invalid(problem.to_owned()));
        let Some(decode) = &self.decode else {
            return invalid("the script answers conversations, not rendered prompts");
        };
        if request.format.is_some() {
            return invalid("a script cannot follow an output format");
        }
        let order = Order {
            prompt: decode(&request.prompt),
            prompt_tokens: request.prompt.len(),
            max_tokens: request.max_tokens,
        };
        self.play(&order, |text| {
            content(before_stop(text, &request.stop)).collect()
        })
    }

    fn context_length(&self) -> Option<usize> {
        Some(self.script.context_length)
    }

    fn load(&self) -> EngineLoad {
        self.counters.load()
    }
}

/// One choice in progress, on a thread of its own.
struct Playback {
    output: Vec<Delta>,
    /// Tokens that it may have.
    limit: usize,
    delay: Duration,
    prompt_tokens: u32,
    sender: Sender<OutputEvent>,
    slot: ScriptSlot,
}

impl Playback {
    fn run(self) {
        let truncated = self.output.len() > self.limit;
        let (mut completion_tokens, mut reasoning_tokens) = (0, 0);
        let mut called = false;
        for delta in self.output.into_iter().take(self.limit) {
            if !self.delay.is_zero() {
                thread::sleep(self.delay);
            }
            completion_tokens += 1;
            match &delta {
                Delta::Reasoning(_) => reasoning_tokens += 1,
                Delta::CallBegin { .. } => called = true,
                Delta::Content(_) | Delta::CallArguments { .. } => {}
            }
            self.slot.step();
            let event = OutputEvent::Delta {
                delta,
                logprobs: Vec::new(),
            };
            if self.sender.blocking_send(event).is_err() {
                return;
            }
        }
        // The slot is free before the end is sent, so that a caller who has read it finds one.
        drop(self.slot);
        // A reader that has gone away needs no ending.
        let _ = self.sender.blocking_send(OutputEvent::Finished {
            reason: match (truncated, called) {
                (true, _) => FinishReason::Length,
                (false, true) => FinishReason::ToolCalls,
                (false, false) => FinishReason::Stop,
            },
            usage: Some(Usage {
                prompt_tokens: self.prompt_tokens,
                cached_tokens: 0,
                completion_tokens,
                reasoning_tokens,
            }),
        });
    }
}

/// Text of all messages, a line each.
fn text_of(conversation: &Conversation) -> String {
    let mut text = String::new();
    for message in conversation.messages() {
        for part in &message.content {
            if let ContentPart::Text(part) = part {
                text.push_str(part);
            }
        }
        if let Role::Assistant { calls, .. } = &message.role {
            calls.iter().for_each(|call| text.push_str(&call.arguments));
        }
        text.push('\n');
    }
    text
}

/// Words, each with the white space before it.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let start = rest.len() - rest.trim_start().len();
        let word = rest[start..].find(char::is_whitespace);
        let end = word.map_or(rest.len(), |length| start + length);
        let (word, tail) = rest.split_at(end);
        rest = tail;
        (!word.is_empty()).then_some(word)
    })
}

/// The part of a text before the first stop string.
fn before_stop<'a>(text: &'a str, stop: &[String]) -> &'a str {
    let stopped = stop.iter().filter_map(|stop| text.find(stop)).min();
    &text[..stopped.unwrap_or(text.len())]
}

/// A delta of content for each word.
fn content(text: &str) -> impl Iterator<Item = Delta> {
    words(text).map(|word| Delta::Content(word.to_owned()))
}

/// Deltas of a script's text. A stop string in the content ends it.
fn deltas(text: &str, stop: &[String]) -> Vec<Delta> {
    let mut output = Vec::new();
    let mut rest = text;
    let mut calls = 0;
    loop {
        let tag = ["<think>", "<call>"]
            .iter()
            .filter_map(|tag| Some((rest.find(tag)?, *tag)))
            .min();
        let (unmarked, marked) = match tag {
            Some((at, tag)) => (&rest[..at], Some((tag, &rest[at + tag.len()..]))),
            None => (rest, None),
        };
        let kept = before_stop(unmarked, stop);
        output.extend(content(kept));
        let Some((tag, marked)) = marked.filter(|_| kept.len() == unmarked.len()) else {
            return output;
        };
        let end = if tag == "<call>" {
            "</call>"
        } else {
            "</think>"
        };
        let (inside, after) = marked.split_once(end).unwrap_or((marked, ""));
        match tag {
            "<call>" => {
                let (name, arguments) = inside.split_once(' ').unwrap_or((inside, ""));
                output.push(Delta::CallBegin {
                    index: calls,
                    id: format!("call_script_{calls}"),
                    name: name.to_owned(),
                });
                output.extend(words(arguments).map(|word| Delta::CallArguments {
                    index: calls,
                    delta: word.to_owned(),
                }));
                calls += 1;
            }
            _ => output.extend(words(inside).map(|word| Delta::Reasoning(word.to_owned()))),
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests;
