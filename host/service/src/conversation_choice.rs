//! One choice of an answer from a conversation runtime: its events as the service's.

use std::collections::VecDeque;
use std::sync::Arc;

use mortise_models::lifecycle::ModelLease;
use mortise_models::{
    Delta, FinishReason, OutputEvent, OutputStream, RuntimeError, TokenLogprob, Usage,
};
use mortise_plugin::{Finish, ParserEvent};

use crate::call_id::new_call_id;
use crate::error::ServiceError;
use crate::event::Event;
use crate::held_calls::{CallPiece, HeldCalls};
use crate::latency::TokenTimer;
use crate::plugins::ParseSession;
use crate::reported_usage::UsageBounds;
use crate::tally::{RoundKind, TokenTally};

/// Parts of a choice.
pub(crate) struct ConversationParts {
    /// Number of the choice in its answer.
    pub(crate) number: u32,
    pub(crate) stream: OutputStream,
    /// Tokens of the prompt, where it was encoded here.
    pub(crate) prompt_tokens: u32,
    /// Most tokens that the runtime can have used.
    pub(crate) bounds: UsageBounds,
    /// Names of the tools that may be called.
    pub(crate) callable: Vec<String>,
    /// Keeps the model loaded.
    pub(crate) _lease: Option<Arc<ModelLease>>,
    /// Session of an output parser that is bound in front of the runtime: content that the runtime
    /// sends goes through it.
    pub(crate) parser: Option<Box<dyn ParseSession>>,
    pub(crate) round: RoundKind,
    pub(crate) tally: Arc<TokenTally>,
    pub(crate) timer: TokenTimer,
}

/// One choice while it is generated elsewhere.
pub(crate) struct ConversationChoice {
    parts: ConversationParts,
    /// Deltas so far, each counted as a token until the runtime reports its usage.
    counted: Usage,
    /// Calls, held back until they are whole.
    calls: HeldCalls,
    ready: VecDeque<Event>,
    done: bool,
}

impl ConversationChoice {
    pub(crate) fn new(mut parts: ConversationParts) -> Self {
        Self {
            calls: HeldCalls::new(std::mem::take(&mut parts.callable)),
            parts,
            counted: Usage::default(),
            ready: VecDeque::new(),
            done: false,
        }
    }

    /// Events of the runtime, before the first is read.
    pub(crate) fn stream(&mut self) -> &mut OutputStream {
        &mut self.parts.stream
    }

    /// The next event; `None` after `Finished` or `Failed`.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.done {
                return None;
            }
            if let Err(error) = self.step().await {
                self.done = true;
                return Some(Event::Failed(error));
            }
        }
    }

    async fn step(&mut self) -> Result<(), ServiceError> {
        match self.parts.stream.next().await {
            Some(OutputEvent::Begun) => Ok(()),
            Some(OutputEvent::Delta { delta, logprobs }) => self.accept(delta, logprobs).await,
            Some(OutputEvent::Finished { reason, usage }) => {
                self.record(usage);
                self.close(reason).await
            }
            Some(OutputEvent::Failed(error)) => Err(failure(error)),
            // A runtime closes a stream without a last event only when it stops.
            None => Err(ServiceError::Stopping),
        }
    }

    async fn accept(
        &mut self,
        delta: Delta,
        logprobs: Vec<TokenLogprob>,
    ) -> Result<(), ServiceError> {
        self.parts.timer.token();
        self.parts.tally.add_completion(1);
        self.counted.completion_tokens += 1;
        for token in &logprobs {
            self.parts.tally.add_logprob(token.logprob);
        }
        if let Delta::Reasoning(_) = delta {
            self.parts.tally.add_reasoning(1);
            self.counted.reasoning_tokens += 1;
        }
        match (delta, &mut self.parts.parser) {
            (Delta::Content(text), Some(parser)) => {
                let events = parser.feed(&text, &[]).await?;
                let reasons = |event: &ParserEvent| matches!(event, ParserEvent::Reasoning(_));
                if events.iter().any(reasons) {
                    self.parts.tally.add_reasoning(1);
                }
                self.emit(events)
            }
            (delta, _) => self.push(delta, logprobs),
        }
    }

    /// Replace the counted tokens by those that the runtime reports, as far as they can be so.
    fn record(&mut self, reported: Option<Usage>) {
        let ConversationParts {
            round,
            tally,
            bounds,
            ..
        } = &self.parts;
        let Some(reported) = reported else {
            tally.add_prompt(*round, self.parts.prompt_tokens);
            return;
        };
        let (usage, is_less) = bounds.clamp(reported);
        if is_less {
            tracing::warn!(?reported, charged = ?usage,
                "the model's server reports more tokens than its request can have come to");
        }
        tally.add_prompt(*round, usage.prompt_tokens);
        tally.add_cached(*round, usage.cached_tokens);
        tally.replace(self.counted, usage);
    }

    async fn close(&mut self, reason: FinishReason) -> Result<(), ServiceError> {
        self.done = true;
        if let Some(parser) = self.parts.parser.take() {
            let events = parser.close(match reason {
                FinishReason::Stop | FinishReason::ToolCalls | FinishReason::ContentFilter => {
                    Finish::Stop
                }
                FinishReason::Length => Finish::Length,
            });
            let events = events.await?;
            self.emit(events)?;
        }
        let Self {
            parts,
            calls,
            ready,
            ..
        } = self;
        let cut = reason == FinishReason::Length;
        calls.finish(cut, &mut |piece| {
            ready.push_back(event(parts.number, piece))
        });
        let reason = match reason {
            FinishReason::Stop if self.calls.shown() > 0 => FinishReason::ToolCalls,
            FinishReason::ToolCalls if self.calls.shown() == 0 => FinishReason::Stop,
            reason => reason,
        };
        self.ready.push_back(Event::Finished {
            choice: self.parts.number,
            reason,
            stop: None,
            tokens: Vec::new(),
        });
        Ok(())
    }

    /// Emit what the parser in front made of the content.
    fn emit(&mut self, events: Vec<ParserEvent>) -> Result<(), ServiceError> {
        for event in events {
            let delta = match event {
                ParserEvent::Content(text) => Delta::Content(text),
                ParserEvent::Reasoning(text) => Delta::Reasoning(text),
                ParserEvent::CallBegin { index, id, name } => Delta::CallBegin {
                    index,
                    id: id.unwrap_or_else(new_call_id),
                    name,
                },
                ParserEvent::CallArguments { index, delta } => {
                    Delta::CallArguments { index, delta }
                }
                ParserEvent::CallEnd { .. } => continue,
            };
            self.push(delta, Vec::new())?;
        }
        Ok(())
    }

    /// Queue a delta, or hold it back until a call is whole. Calls must begin in the order of their indices, so that a
    /// dialect can rely on it.
    fn push(&mut self, delta: Delta, logprobs: Vec<TokenLogprob>) -> Result<(), ServiceError> {
        match &delta {
            Delta::Content(text) | Delta::Reasoning(text) if text.is_empty() => return Ok(()),
            Delta::CallArguments { delta, .. } if delta.is_empty() => return Ok(()),
            _ => {}
        }
        let Self {
            parts,
            calls,
            ready,
            ..
        } = self;
        calls.push((delta, logprobs), &mut |piece| {
            ready.push_back(event(parts.number, piece));
        })
    }
}

/// A piece of an answer as the event of a choice.
fn event(choice: u32, (delta, logprobs): CallPiece) -> Event {
    Event::Delta {
        choice,
        delta,
        logprobs,
        tokens: Vec::new(),
    }
}

/// A failure of the runtime as the service's.
pub(crate) fn failure(error: RuntimeError) -> ServiceError {
    match error {
        RuntimeError::Invalid(message) => ServiceError::Invalid {
            param: None,
            code: "invalid_request",
            message,
        },
        RuntimeError::ContextLength {
            prompt,
            requested,
            context,
        } => ServiceError::ContextLength {
            param: "messages",
            prompt,
            at_least: false,
            requested,
            context,
        },
        RuntimeError::Unavailable {
            message,
            retry_after,
        } => ServiceError::Unavailable {
            message,
            retry_after,
        },
        RuntimeError::Upstream(message) => ServiceError::Upstream(message),
        RuntimeError::Failed(message) => ServiceError::Engine(message),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::latency::Latency;
    use crate::observer::NoObserver;

    /// Events of a choice whose runtime sends these.
    async fn events(sent: Vec<OutputEvent>) -> (Vec<Event>, Usage) {
        let (sender, stream) = OutputStream::channel();
        for event in sent {
            sender.send(event).await.expect("room");
        }
        drop(sender);
        let tally = Arc::<TokenTally>::default();
        let latency = Arc::<Latency>::default();
        let mut choice = ConversationChoice::new(ConversationParts {
            number: 3,
            stream,
            _lease: None,
            prompt_tokens: 0,
            bounds: UsageBounds {
                prompt: 100,
                completion: 100,
            },
            callable: vec!["f".to_owned()],
            parser: None,
            round: RoundKind::First,
            tally: Arc::clone(&tally),
            timer: TokenTimer::new(
                Arc::new(NoObserver),
                latency,
                Instant::now(),
                mortise_trace::Span::default(),
            ),
        });
        let mut events = Vec::new();
        while let Some(event) = choice.next().await {
            events.push(event);
        }
        (events, TokenTally::usage(std::iter::once(tally.as_ref())))
    }

    fn delta(delta: Delta) -> OutputEvent {
        OutputEvent::Delta {
            delta,
            logprobs: Vec::new(),
        }
    }

    fn content(text: &str) -> OutputEvent {
        delta(Delta::Content(text.to_owned()))
    }

    #[tokio::test]
    async fn the_reported_usage_replaces_what_was_counted() {
        let usage = Usage {
            prompt_tokens: 10,
            cached_tokens: 4,
            completion_tokens: 7,
            reasoning_tokens: 2,
        };
        let finished = |usage| OutputEvent::Finished {
            reason: FinishReason::Stop,
            usage,
        };
        let sent = |usage| vec![content("a"), content("b"), finished(usage)];
        assert_eq!(events(sent(Some(usage))).await.1, usage);
        let wild = Usage {
            prompt_tokens: u32::MAX,
            completion_tokens: u32::MAX,
            ..usage
        };
        let believed = Usage {
            prompt_tokens: 100,
            completion_tokens: 100,
            ..usage
        };
        assert_eq!(events(sent(Some(wild))).await.1, believed);
        let (events, counted) = events(sent(None)).await;
        assert_eq!(counted.completion_tokens, 2, "a delta is taken for a token");
        let end = events.last().expect("an end");
        assert!(matches!(end, Event::Finished { choice: 3, .. }), "{end:?}");
    }

    #[tokio::test]
    async fn failures_keep_their_kind_and_a_lost_stream_is_one() {
        let failed = async |error| {
            let (mut events, _) = events(vec![content("a"), OutputEvent::Failed(error)]).await;
            assert_eq!(events.len(), 2, "what was sent before stays");
            match events.pop() {
                Some(Event::Failed(error)) => error.kind(),
                other => panic!("{other:?}"),
            }
        };
        let text = || "x".to_owned();
        assert_eq!(failed(RuntimeError::Invalid(text())).await, "invalid");
        assert_eq!(failed(RuntimeError::Failed(text())).await, "engine");
        assert_eq!(failed(RuntimeError::Upstream(text())).await, "upstream");
        let busy = RuntimeError::Unavailable {
            message: text(),
            retry_after: 7,
        };
        assert_eq!(failed(busy).await, "unavailable");
        let long = RuntimeError::ContextLength {
            prompt: 5,
            requested: 1,
            context: 4,
        };
        assert_eq!(failed(long).await, "context_length");
        let (events, _) = events(vec![content("a")]).await;
        assert!(matches!(events[1], Event::Failed(ServiceError::Stopping)));
    }

    #[tokio::test]
    async fn calls_out_of_order_break_the_answer_off() {
        let begin = |index| {
            delta(Delta::CallBegin {
                index,
                id: "c".to_owned(),
                name: "f".to_owned(),
            })
        };
        let arguments = |index| {
            let delta = "{}".to_owned();
            OutputEvent::Delta {
                delta: Delta::CallArguments { index, delta },
                logprobs: Vec::new(),
            }
        };
        for sent in [vec![arguments(0)], vec![begin(1)], vec![begin(0), begin(0)]] {
            let (events, _) = events(sent).await;
            let end = events.last().expect("an end");
            assert!(
                matches!(end, Event::Failed(ServiceError::Engine(_))),
                "{end:?}"
            );
        }
    }
}
