//! One choice of an answer from tokens: text, reasoning and tool calls.

use std::collections::VecDeque;
use std::sync::Arc;

use mortise_engine::{GeneratedToken, SequenceEnd, SequenceError, TokenEvent, TokenStream};
use mortise_models::lifecycle::{LifecycleError, ModelLease};
use mortise_models::{Delta, FinishReason, TokenLogprob};
use mortise_plugin::{Finish, ParserEvent, PluginError};
use mortise_tokenizer::Detokenizer;

use crate::call_id::new_call_id;
use crate::constraint::MatcherFault;
use crate::error::ServiceError;
use crate::event::Event;
use crate::latency::TokenTimer;
use crate::plugins::ParseSession;
use crate::prompt_scores::PromptText;
use crate::stop::StopMatcher;
use crate::tally::{RoundKind, TokenTally};
use crate::token_spans::{HeldSpans, ParserSpans, TokenSpan};

/// Tokens of a choice as the runtime generates them.
pub(crate) struct ChoiceStream {
    pub(crate) tokens: TokenStream,
    /// Keeps the model loaded, and tells when it is to be unloaded.
    pub(crate) lease: Option<Arc<ModelLease>>,
    /// Fault of the grammar plugin, once its matcher has failed.
    pub(crate) fault: MatcherFault,
}

impl ChoiceStream {
    /// The next event of the sequence.
    ///
    /// # Errors
    /// When the model is to be unloaded and the sequence still waits in the queue.
    async fn next(&mut self) -> Result<Option<TokenEvent>, ServiceError> {
        let Some(lease) = self.lease.as_ref().filter(|_| self.is_queued()) else {
            return Ok(self.tokens.next().await);
        };
        let mut closing = lease.closing();
        tokio::select! {
            biased;
            event = self.tokens.next() => return Ok(event),
            closed = closing.wait_for(|closing| *closing) => drop(closed),
        }
        match self.is_queued() {
            true => Err(LifecycleError::Unloading(lease.model().to_owned()).into()),
            false => Ok(self.tokens.next().await),
        }
    }

    fn is_queued(&self) -> bool {
        self.tokens.queue_time().is_none()
    }

    /// Error of a failed sequence. A failed constraint is a fault of its plugin.
    fn failure(&self, error: &SequenceError) -> ServiceError {
        match (error, self.fault.get()) {
            (SequenceError::Constraint(_), Some(fault)) => ServiceError::Plugin(fault.clone()),
            _ => ServiceError::Engine(error.to_string()),
        }
    }
}

/// Parts of a choice.
pub(crate) struct ChoiceParts {
    /// Number of the choice in its answer.
    pub(crate) number: u32,
    pub(crate) stream: ChoiceStream,
    pub(crate) detokenizer: Detokenizer,
    /// Text of the prompt, where its tokens are reported.
    pub(crate) prompt: Option<PromptText>,
    pub(crate) stop: StopMatcher,
    /// The stop strings that are the caller's own.
    pub(crate) stops: Vec<String>,
    /// A stop string of the caller is part of the answer.
    pub(crate) include_stop: bool,
    pub(crate) parser: Option<Box<dyn ParseSession>>,
    /// The prompt ended inside a reasoning block.
    pub(crate) reasoning: bool,
    pub(crate) logprobs: bool,
    /// Report the ids of tokens.
    pub(crate) return_tokens: bool,
    pub(crate) round: RoundKind,
    pub(crate) tally: Arc<TokenTally>,
    pub(crate) timer: TokenTimer,
}

/// One choice while it is generated.
pub(crate) struct Choice {
    number: u32,
    stream: ChoiceStream,
    detokenizer: Detokenizer,
    prompt: Option<PromptText>,
    stop: StopMatcher,
    stops: Vec<String>,
    include_stop: bool,
    /// Taken when it is closed.
    parser: Option<Box<dyn ParseSession>>,
    held: HeldSpans,
    parsed: ParserSpans,
    /// Bytes of raw text behind the stop matcher.
    passed: usize,
    /// Log-probabilities of tokens without text, for the next delta.
    silent: Vec<TokenLogprob>,
    in_reasoning: bool,
    called: bool,
    /// Calls that have begun and not ended.
    open_calls: u32,
    logprobs: bool,
    /// Ids of tokens that no event has had, where they are reported.
    tokens: Option<Vec<u32>>,
    round: RoundKind,
    tally: Arc<TokenTally>,
    timer: TokenTimer,
    ready: VecDeque<Event>,
    done: bool,
}

impl Choice {
    pub(crate) fn new(parts: ChoiceParts) -> Self {
        Self {
            number: parts.number,
            stream: parts.stream,
            detokenizer: parts.detokenizer,
            prompt: parts.prompt,
            stop: parts.stop,
            stops: parts.stops,
            include_stop: parts.include_stop,
            parser: parts.parser,
            held: HeldSpans::default(),
            parsed: ParserSpans::default(),
            passed: 0,
            silent: Vec::new(),
            in_reasoning: parts.reasoning,
            called: false,
            open_calls: 0,
            logprobs: parts.logprobs,
            tokens: parts.return_tokens.then(Vec::new),
            round: parts.round,
            tally: parts.tally,
            timer: parts.timer,
            ready: VecDeque::new(),
            done: false,
        }
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
        let event = self.stream.next().await?;
        if self.timer.awaits_first()
            && let Some(queued) = self.stream.tokens.queue_time()
        {
            self.timer.admitted(queued);
        }
        match event {
            Some(TokenEvent::Prompt(tokens)) => {
                if let Some(prompt) = &mut self.prompt {
                    self.ready.push_back(Event::Prompt {
                        choice: self.number,
                        tokens: tokens.iter().map(|token| prompt.push(token)).collect(),
                    });
                }
                Ok(())
            }
            Some(TokenEvent::Token(token)) => self.accept(token).await,
            Some(TokenEvent::Finished { reason, usage }) => {
                self.tally.add_cached(self.round, usage.cached_tokens);
                self.finish(reason).await
            }
            Some(TokenEvent::Failed(error)) => Err(self.stream.failure(&error)),
            // The engine closes a stream without a last event only when it stops.
            None => Err(ServiceError::Stopping),
        }
    }

    async fn accept(&mut self, token: GeneratedToken) -> Result<(), ServiceError> {
        self.timer.token();
        self.tally.add_completion(1);
        if let Some(tokens) = &mut self.tokens {
            tokens.push(token.id);
        }
        if let Some(logprobs) = &token.logprobs {
            self.tally.add_logprob(logprobs.chosen);
        }
        let logprob = match self.logprobs {
            true => logprob_of(&self.detokenizer, &token),
            false => None,
        };
        let mut text = String::new();
        let bytes = self.detokenizer.push(token.id, &mut text);
        self.held.push(
            token.id,
            logprob,
            bytes,
            text.len(),
            self.detokenizer.held(),
        );
        let mut passed = String::new();
        let stopped = self.stop.push(&text, &mut passed);
        self.append_stop(&mut passed);
        self.passed += passed.len();
        let spans = match stopped {
            true => self.held.release_truncated(self.passed),
            false => self.held.release(self.passed),
        };
        self.parse(&passed, spans).await?;
        if stopped {
            self.close(SequenceEnd::Stop).await?;
        }
        Ok(())
    }

    /// The sequence has ended: flush all text that was held back.
    async fn finish(&mut self, end: SequenceEnd) -> Result<(), ServiceError> {
        let mut text = String::new();
        self.detokenizer.finish(&mut text);
        self.held.finish(text.len());
        let mut passed = String::new();
        let stopped = self.stop.push(&text, &mut passed);
        if !stopped {
            self.stop.finish(&mut passed);
        }
        self.append_stop(&mut passed);
        self.passed += passed.len();
        let spans = self.held.release_truncated(self.passed);
        let silent = self.held.release(if stopped { 0 } else { usize::MAX });
        self.parse(&passed, spans.into_iter().chain(silent).collect())
            .await?;
        self.close(if stopped { SequenceEnd::Stop } else { end })
            .await
    }

    /// The stop string of the caller that ended the answer.
    fn own_stop(&self) -> Option<&str> {
        let stop = self.stop.stopped()?;
        self.stops.iter().any(|own| own == stop).then_some(stop)
    }

    /// Append the stop string that ended the answer, if the caller wants it.
    fn append_stop(&self, passed: &mut String) {
        if self.include_stop {
            passed.push_str(self.own_stop().unwrap_or_default());
        }
    }

    async fn close(&mut self, end: SequenceEnd) -> Result<(), ServiceError> {
        self.done = true;
        let finish = match end {
            SequenceEnd::Stop => Finish::Stop,
            SequenceEnd::Length => Finish::Length,
        };
        if let Some(parser) = self.parser.take() {
            let events = parser.close(finish).await?;
            self.emit(events, 0);
        }
        if !self.silent.is_empty() {
            let logprobs = std::mem::take(&mut self.silent);
            self.push(Delta::Content(String::new()), logprobs);
        }
        self.ready.push_back(Event::Finished {
            choice: self.number,
            reason: match end {
                // A call that never ended is not one that the caller can run.
                SequenceEnd::Stop if self.called && self.open_calls == 0 => FinishReason::ToolCalls,
                SequenceEnd::Stop => FinishReason::Stop,
                SequenceEnd::Length => FinishReason::Length,
            },
            stop: self.own_stop().map(str::to_owned),
            tokens: self.tokens.as_mut().map(std::mem::take).unwrap_or_default(),
        });
        Ok(())
    }

    /// Feed text that is certain to belong to the answer to the parser, if there is one.
    async fn parse(&mut self, text: &str, spans: Vec<TokenSpan>) -> Result<(), PluginError> {
        let Some(parser) = self.parser.as_mut() else {
            self.silent
                .extend(spans.into_iter().filter_map(|span| span.logprob));
            if !text.is_empty() {
                let logprobs = std::mem::take(&mut self.silent);
                self.push(Delta::Content(text.to_owned()), logprobs);
            }
            return Ok(());
        };
        if text.is_empty() && spans.is_empty() {
            return Ok(());
        }
        let ids: Vec<u32> = spans.iter().map(|span| span.id).collect();
        let events = parser.feed(text, &ids).await?;
        if self.logprobs {
            self.parsed.append(text, spans);
        }
        self.emit(events, ids.len() as u32);
        Ok(())
    }

    /// Emit what the parser made of the text of `tokens` tokens.
    fn emit(&mut self, events: Vec<ParserEvent>, tokens: u32) {
        let (mut reasoned, mut answered) = (false, false);
        let before = self.in_reasoning;
        for event in events {
            let delta = match event {
                ParserEvent::Content(text) => {
                    self.in_reasoning = false;
                    answered = true;
                    Delta::Content(text)
                }
                ParserEvent::Reasoning(text) => {
                    self.in_reasoning = true;
                    reasoned = true;
                    Delta::Reasoning(text)
                }
                ParserEvent::CallBegin { index, id, name } => {
                    self.in_reasoning = false;
                    answered = true;
                    self.called = true;
                    self.open_calls += 1;
                    let id = id.unwrap_or_else(new_call_id);
                    Delta::CallBegin { index, id, name }
                }
                ParserEvent::CallArguments { index, delta } => {
                    Delta::CallArguments { index, delta }
                }
                ParserEvent::CallEnd { .. } => {
                    self.open_calls = self.open_calls.saturating_sub(1);
                    continue;
                }
            };
            let logprobs = match &delta {
                Delta::Content(text) | Delta::Reasoning(text) if text.is_empty() => continue,
                Delta::CallArguments { delta, .. } if delta.is_empty() => continue,
                Delta::Content(text) | Delta::Reasoning(text) if self.logprobs => {
                    self.parsed.take(text)
                }
                Delta::CallArguments { delta, .. } if self.logprobs => self.parsed.take(delta),
                _ => Vec::new(),
            };
            self.push(delta, logprobs);
        }
        // Tokens for which the parser emits nothing belong to the block that the answer was in.
        if reasoned || (before && !answered) {
            self.tally.add_reasoning(tokens);
        }
    }

    fn push(&mut self, delta: Delta, logprobs: Vec<TokenLogprob>) {
        self.ready.push_back(Event::Delta {
            choice: self.number,
            delta,
            logprobs,
            tokens: self.tokens.as_mut().map(std::mem::take).unwrap_or_default(),
        });
    }
}

/// Log-probabilities of the next token, as they are reported.
fn logprob_of(detokenizer: &Detokenizer, token: &GeneratedToken) -> Option<TokenLogprob> {
    let logprobs = token.logprobs.as_ref()?;
    let shown = |id: u32| {
        let bytes = detokenizer.next_bytes(id);
        (String::from_utf8_lossy(bytes).into_owned(), bytes.to_vec())
    };
    let (text, bytes) = shown(token.id);
    let alternative = |&(id, logprob): &(u32, f32)| {
        let (text, bytes) = shown(id);
        (text, bytes, logprob)
    };
    Some(TokenLogprob {
        token: text,
        bytes,
        logprob: logprobs.chosen,
        top: logprobs.top.iter().map(alternative).collect(),
    })
}
