//! Answer of an upstream: the bytes of its stream to the events of a choice. Nothing in here waits or
//! knows of connections.

use mortise_models::{Delta, FinishReason, OutputEvent, RuntimeError, Usage};
use uuid::Uuid;

use crate::chunk::{ChunkChoice, WireCall, WireDelta, finish_reason};
use crate::event_stream::{EventStream, TooLong};
use crate::limits::{MAX_ANSWER_BYTES, MAX_CALL_NAME_BYTES, MAX_CALLS, MAX_EVENT_BYTES};
use crate::refusal::{failure_in_stream, shortened};
use crate::repeated::EventReader;

/// Reader of one streamed answer.
#[derive(Debug, Default)]
pub struct AnswerReader {
    stream: EventStream,
    state: AnswerState,
    /// Bytes so far.
    read: usize,
}

/// Sum of the events so far.
#[derive(Debug, Default)]
struct AnswerState {
    events: EventReader,
    /// Indices of the upstream's tool calls, in the order in which they began; ours count from 0.
    calls: Vec<u32>,
    reason: Option<FinishReason>,
    usage: Option<Usage>,
    /// The stream has said that nothing follows.
    complete: bool,
}

/// Defect of an answer.
struct Broken(RuntimeError);

impl From<TooLong> for Broken {
    fn from(_: TooLong) -> Self {
        broken(format!(
            "sent an event of more than {MAX_EVENT_BYTES} bytes"
        ))
    }
}

fn broken(what: impl std::fmt::Display) -> Broken {
    Broken(RuntimeError::Upstream(format!("the model's server {what}")))
}

impl AnswerReader {
    /// Read a piece of the stream and append its events. `true`: the answer is complete, and
    /// [`Self::end`] gives its last event.
    ///
    /// # Errors
    /// When the upstream reports a failure, or breaks its protocol.
    pub fn feed(
        &mut self,
        piece: &[u8],
        events: &mut Vec<OutputEvent>,
    ) -> Result<bool, RuntimeError> {
        self.read = self.read.saturating_add(piece.len());
        if self.read > MAX_ANSWER_BYTES {
            let what = format!("sent an answer of more than {MAX_ANSWER_BYTES} bytes");
            return Err(broken(what).0);
        }
        let Self { stream, state, .. } = self;
        let fed = stream.feed(piece, |data| state.accept(data, events));
        fed.map_err(|Broken(error)| error)?;
        Ok(self.state.complete)
    }

    /// The stream has ended, orderly or because of a `defect`: append the last events. A finish reason
    /// makes an answer complete, whatever is missing behind it.
    pub fn end(&mut self, defect: Option<RuntimeError>, events: &mut Vec<OutputEvent>) {
        let Self { stream, state, .. } = self;
        let ended = match &defect {
            None => stream.end(|data| state.accept(data, events)),
            Some(_) => Ok(()),
        };
        let last = match (ended, state.reason, defect) {
            (Err(Broken(error)), None, _) | (Ok(()), None, Some(error)) => {
                OutputEvent::Failed(error)
            }
            (_, Some(reason), _) => OutputEvent::Finished {
                reason,
                usage: state.usage,
            },
            (Ok(()), None, None) => OutputEvent::Failed(broken("ended its answer in the middle").0),
        };
        events.push(last);
    }

    /// Usage that was reported so far.
    pub(crate) fn usage(&self) -> Option<Usage> {
        self.state.usage
    }
}

impl AnswerState {
    fn accept(&mut self, data: &[u8], events: &mut Vec<OutputEvent>) -> Result<(), Broken> {
        if self.complete || data.trim_ascii().is_empty() {
            return Ok(());
        }
        if data.trim_ascii() == b"[DONE]" {
            self.complete = true;
            return Ok(());
        }
        let read = match str::from_utf8(data) {
            Ok(text) => self.events.read(text),
            // What is not text may stand in a member that nobody reads.
            Err(_) => serde_json::from_slice(data),
        };
        let chunk =
            read.map_err(|error| broken(format!("sent an event that cannot be read: {error}")))?;
        if let Some(error) = chunk.error {
            return Err(Broken(failure_in_stream(&error)));
        }
        if let Some(usage) = chunk.usage {
            self.usage = Some(usage.usage());
        }
        for choice in chunk.choices.into_iter().flatten() {
            self.choice(choice, events)?;
        }
        Ok(())
    }

    fn choice(&mut self, choice: ChunkChoice, events: &mut Vec<OutputEvent>) -> Result<(), Broken> {
        if let Some(index) = choice.index.filter(|index| *index != 0) {
            return Err(broken(format!(
                "sent a choice {index}, and one was asked for"
            )));
        }
        let first = events.len();
        let mut delta = choice.delta.unwrap_or_default();
        delta.content = delta.content.or(choice.text);
        self.delta(delta, events)?;
        if let Some(tokens) = choice.logprobs.map(|logprobs| logprobs.tokens())
            && let Some(OutputEvent::Delta { logprobs, .. }) = events.get_mut(first)
        {
            *logprobs = tokens;
        }
        if let Some(name) = choice.finish_reason {
            let reason = finish_reason(&name)
                .ok_or_else(|| broken(format!("ended its answer with `{}`", shortened(&name))))?;
            self.reason = Some(reason);
        }
        Ok(())
    }

    fn delta(&mut self, mut delta: WireDelta, events: &mut Vec<OutputEvent>) -> Result<(), Broken> {
        let mut push = |delta| {
            let logprobs = Vec::new();
            events.push(OutputEvent::Delta { delta, logprobs });
        };
        if let Some(text) = delta.take_reasoning().filter(|text| !text.is_empty()) {
            push(Delta::Reasoning(text));
        }
        // A refusal is what the model says in place of an answer.
        for text in [delta.content, delta.refusal].into_iter().flatten() {
            if !text.is_empty() {
                push(Delta::Content(text));
            }
        }
        for call in delta.tool_calls.into_iter().flatten() {
            self.call(call, &mut push)?;
        }
        Ok(())
    }

    /// A piece of a tool call. The first of each call has its name; the index may be left out by servers
    /// that send each call in one piece.
    fn call(&mut self, call: WireCall, push: &mut impl FnMut(Delta)) -> Result<(), Broken> {
        let (name, arguments) = match call.function {
            Some(function) => (function.name, function.arguments),
            None => (None, None),
        };
        let name = name.filter(|name| !name.is_empty());
        let count = u32::try_from(self.calls.len()).unwrap_or(u32::MAX);
        let theirs = call.index.unwrap_or(match (&name, self.calls.last()) {
            (None, Some(last)) => *last,
            _ => count,
        });
        let known = self.calls.iter().position(|index| *index == theirs);
        let index = match (known, name) {
            (Some(known), _) => u32::try_from(known).unwrap_or(u32::MAX),
            (None, None) => return Err(broken("sent a tool call without a name")),
            (None, Some(name)) => {
                if self.calls.len() >= MAX_CALLS {
                    return Err(broken(format!("sent more than {MAX_CALLS} tool calls")));
                }
                let plain = |id: &String| !id.is_empty() && !id.chars().any(char::is_control);
                let id = call.id.filter(plain);
                let id = id.unwrap_or_else(|| format!("call_{}", Uuid::new_v4().simple()));
                if name.len() > MAX_CALL_NAME_BYTES || id.len() > MAX_CALL_NAME_BYTES {
                    let what = format!(
                        "sent a tool call whose name or id has more than {MAX_CALL_NAME_BYTES} bytes"
                    );
                    return Err(broken(what));
                }
                self.calls.push(theirs);
                push(Delta::CallBegin {
                    index: count,
                    id,
                    name,
                });
                count
            }
        };
        if let Some(delta) = arguments.filter(|delta| !delta.is_empty()) {
            push(Delta::CallArguments { index, delta });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
