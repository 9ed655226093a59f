//! One sequence while it lives in the engine: its tokens, its sampler, its constraint and the
//! stream that it feeds. Whatever runs here on behalf of one request is fenced: a panic becomes
//! that sequence's error.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::constraint::{Constraint, MaskStep};
use crate::doorbell::Stalled;
use crate::event::{FinishReason, GeneratedToken, SequenceError, SequenceUsage, TokenEvent};
use crate::request::{LogprobParams, SequenceRequest};
use crate::sampler::Sampler;

/// A checked request on its way to the engine's thread.
pub(crate) struct Submission {
    pub(crate) request: SequenceRequest,
    /// Prompt and output together; at most the context length.
    pub(crate) tokens_max: usize,
    pub(crate) sender: mpsc::Sender<TokenEvent>,
    pub(crate) stalled: Stalled,
}

/// A sequence in the engine.
pub(crate) struct Sequence {
    tokens: Vec<u32>,
    prompt: usize,
    tokens_max: usize,
    priority: i32,
    stop_tokens: Vec<u32>,
    sampler: Sampler,
    logprobs: Option<LogprobParams>,
    constraint: Option<Box<dyn Constraint>>,
    sender: mpsc::Sender<TokenEvent>,
    stalled: Stalled,
    /// Events that found the stream full: at most a token and the last event, since nothing is
    /// sampled while there are any.
    outbox: VecDeque<TokenEvent>,
    /// Logits of the last token whose successor is not sampled yet.
    held: Option<Vec<f32>>,
    ended: bool,
}

/// What comes of a row of logits.
#[derive(Debug, PartialEq)]
pub(crate) enum Decision {
    /// Commit this token.
    Token(GeneratedToken),
    /// The text is complete.
    Complete,
    /// The mask is not ready.
    NotYet,
    /// The sequence fails.
    Fail(SequenceError),
}

impl Sequence {
    /// Take a submission in; its constraint begins to work.
    pub(crate) fn new(submission: Submission) -> Self {
        let Submission {
            request,
            tokens_max,
            sender,
            stalled,
        } = submission;
        let mut sequence = Self {
            prompt: request.prompt.len(),
            sampler: Sampler::new(request.sampling, &request.prompt),
            tokens: request.prompt,
            tokens_max,
            priority: request.priority,
            stop_tokens: request.stop_tokens,
            logprobs: request.logprobs,
            constraint: request.constraint,
            sender,
            stalled,
            outbox: VecDeque::new(),
            held: None,
            ended: false,
        };
        sequence.advance_constraint(&[]);
        sequence
    }

    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    pub(crate) fn prompt(&self) -> usize {
        self.prompt
    }

    pub(crate) fn tokens_max(&self) -> usize {
        self.tokens_max
    }

    pub(crate) fn priority(&self) -> i32 {
        self.priority
    }

    /// Whether nobody reads the stream any more, or all has been read into it.
    pub(crate) fn is_over(&self) -> bool {
        self.sender.is_closed() || (self.ended && self.outbox.is_empty())
    }

    /// Whether the reader must make room first.
    pub(crate) fn is_paused(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Whether a row of logits waits to be sampled.
    pub(crate) fn holds_logits(&self) -> bool {
        self.held.is_some() && !self.ended
    }

    /// Sample from a new row of logits, which is kept if the mask is not ready.
    pub(crate) fn decide(&mut self, logits: &mut [f32]) -> Decision {
        let decision = fenced(|| self.decide_unfenced(logits));
        if decision == Decision::NotYet {
            self.held = Some(logits.to_vec());
        }
        decision
    }

    /// Try again with the row that was kept.
    pub(crate) fn decide_held(&mut self) -> Decision {
        let Some(mut logits) = self.held.take() else {
            return Decision::NotYet;
        };
        let decision = fenced(|| self.decide_unfenced(&mut logits));
        if decision == Decision::NotYet {
            self.held = Some(logits);
        }
        decision
    }

    /// Leaves the row untouched where the decision is [`Decision::NotYet`].
    fn decide_unfenced(&mut self, logits: &mut [f32]) -> Decision {
        let mask = match self.constraint.as_mut().map(|constraint| constraint.poll()) {
            None => None,
            Some(None) => return Decision::NotYet,
            Some(Some(Ok(MaskStep::Finished))) => return Decision::Complete,
            Some(Some(Ok(MaskStep::Allow(mask)))) => Some(mask),
            Some(Some(Err(error))) => {
                return Decision::Fail(SequenceError::Constraint(error.message));
            }
        };
        match self.sampler.sample(logits, mask, self.logprobs) {
            Ok(token) => Decision::Token(token),
            Err(error) => Decision::Fail(error),
        }
    }

    /// Take a decision into account; whether a token was added.
    pub(crate) fn commit(&mut self, decision: Decision) -> bool {
        match decision {
            Decision::NotYet => false,
            Decision::Fail(error) => {
                self.end(TokenEvent::Failed(error));
                false
            }
            Decision::Complete => {
                self.finish(FinishReason::Stop);
                false
            }
            Decision::Token(token) if self.stop_tokens.contains(&token.id) => {
                self.finish(FinishReason::Stop);
                false
            }
            Decision::Token(token) => {
                self.tokens.push(token.id);
                self.sampler.observe(token.id);
                let id = token.id;
                self.outbox.push_back(TokenEvent::Token(token));
                if self.tokens.len() >= self.tokens_max {
                    self.finish(FinishReason::Length);
                } else {
                    self.advance_constraint(&[id]);
                }
                true
            }
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Block until the constraint has an outcome.
    pub(crate) fn wait(&mut self) {
        let Some(constraint) = &mut self.constraint else {
            return;
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| constraint.wait())) {
            self.end(TokenEvent::Failed(panicked(
                "the constraint",
                panic.as_ref(),
            )));
        }
    }

    /// Send what the stream has room for.
    pub(crate) fn flush(&mut self) {
        while let Some(event) = self.outbox.pop_front() {
            let Err(error) = self.sender.try_send(event) else {
                continue;
            };
            let TrySendError::Full(event) = error else {
                return self.outbox.clear();
            };
            // Room that was made before the flag was set rings no bell: look once more.
            self.stalled.store(true, Ordering::SeqCst);
            match self.sender.try_send(event) {
                Ok(()) => self.stalled.store(false, Ordering::SeqCst),
                Err(TrySendError::Full(event)) => return self.outbox.push_front(event),
                Err(TrySendError::Closed(_)) => return self.outbox.clear(),
            }
        }
    }

    fn finish(&mut self, reason: FinishReason) {
        let count = |tokens: usize| u32::try_from(tokens).unwrap_or(u32::MAX);
        let usage = SequenceUsage {
            prompt_tokens: count(self.prompt),
            cached_tokens: 0,
            completion_tokens: count(self.tokens.len() - self.prompt),
        };
        self.end(TokenEvent::Finished { reason, usage });
    }

    fn end(&mut self, event: TokenEvent) {
        if !self.ended {
            self.ended = true;
            self.held = None;
            self.outbox.push_back(event);
            let constraint = self.constraint.take();
            // Somebody else's destructor, and nobody is left to be told of its failure.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(constraint)));
        }
    }

    fn advance_constraint(&mut self, committed: &[u32]) {
        let Some(constraint) = &mut self.constraint else {
            return;
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| constraint.advance(committed))) {
            self.end(TokenEvent::Failed(panicked(
                "the constraint",
                panic.as_ref(),
            )));
        }
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        let constraint = self.constraint.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(constraint)));
    }
}

/// Turn a panic into the failure of the sequence.
fn fenced(decide: impl FnOnce() -> Decision) -> Decision {
    catch_unwind(AssertUnwindSafe(decide)).unwrap_or_else(|panic| {
        Decision::Fail(panicked("the sampler or the constraint", panic.as_ref()))
    })
}

fn panicked(what: &str, panic: &(dyn Any + Send)) -> SequenceError {
    SequenceError::Inference(format!("{what} panicked: {}", panic_message(panic)))
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    match panic.downcast_ref::<&str>() {
        Some(message) => message,
        None => panic
            .downcast_ref::<String>()
            .map_or("(no message)", String::as_str),
    }
}
