//! One sequence of the engine: its sampler, its constraint and its output stream. Its tokens and blocks
//! are in the scheduler.
//!
//! Code that runs on behalf of one request catches panics: a panic fails that sequence and no other.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use mortise_kernels::linear::{RowLogits, WantedLogits};
use mortise_kernels::mask::allows_any;
use mortise_model::{Adapter, SampleParams, SampledToken};

use crate::constraint_state::{Allowed, ConstraintState};
use crate::decision::RowDecision;
use crate::event::{SequenceEnd, SequenceError, SequenceUsage, TokenEvent};
use crate::outbox::Outbox;
use crate::panics::panicked;
use crate::prompt_scores::PromptScoreState;
use crate::queue::QueuePlace;
use crate::request::{LogprobParams, SequenceRequest};
use crate::sampler::Sampler;

/// A checked request on its way to the engine's thread.
pub(crate) struct Submission {
    pub(crate) request: SequenceRequest,
    pub(crate) place: QueuePlace,
    /// Most tokens of prompt and output together; at most the context length.
    pub(crate) tokens_max: usize,
    pub(crate) outbox: Outbox,
}

/// A sequence in the engine.
pub(crate) struct Sequence {
    /// Place in the queue; `None` once the sequence was admitted.
    place: Option<QueuePlace>,
    /// Tokens of the prompt.
    prompt: usize,
    /// Tokens generated.
    generated: usize,
    tokens_max: usize,
    stop_tokens: Vec<u32>,
    sampler: Sampler,
    logprobs: Option<LogprobParams>,
    prompt_scores: Option<PromptScoreState>,
    vocabulary: usize,
    constraint: ConstraintState,
    /// Events for the reader, at most those of two steps: while any wait, only tokens that are in flight already are
    /// committed.
    outbox: Outbox,
    /// Logits behind the last token, kept until the mask is ready.
    held: Option<Vec<f32>>,
    adapter: Option<Arc<Adapter>>,
    ended: bool,
    /// Flag of an end by a stop or by the length.
    complete: bool,
}

impl Sequence {
    /// The sequence of a submission, and its prompt. The constraint starts on its first mask, which
    /// wakes the engine by `waker`.
    pub(crate) fn new(submission: Submission, vocabulary: usize, waker: Waker) -> (Self, Vec<u32>) {
        let Submission {
            request,
            place,
            tokens_max,
            outbox,
        } = submission;
        let mut sequence = Self {
            place: Some(place),
            prompt: request.prompt.len(),
            generated: 0,
            tokens_max,
            stop_tokens: request.stop_tokens,
            sampler: Sampler::new(request.sampling, &request.prompt),
            logprobs: request.logprobs,
            prompt_scores: request.prompt_logprobs.map(PromptScoreState::new),
            vocabulary,
            constraint: ConstraintState::new(request.constraint, vocabulary, waker),
            outbox,
            held: None,
            adapter: request.adapter,
            ended: false,
            complete: false,
        };
        let begun = sequence.constraint.begin();
        sequence.fail_on(begun);
        (sequence, request.prompt)
    }

    /// Sampler of the sequence's tokens.
    pub(crate) fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// Adapter of the sequence.
    pub(crate) fn adapter(&self) -> Option<&Arc<Adapter>> {
        self.adapter.as_ref()
    }

    /// Tokens that end the sequence.
    pub(crate) fn stop_tokens(&self) -> &[u32] {
        &self.stop_tokens
    }

    /// Free the sequence's place in the queue, at its admission.
    pub(crate) fn leave_queue(&mut self) {
        self.place = None;
    }

    /// Tokens of the prompt.
    pub(crate) fn prompt(&self) -> usize {
        self.prompt
    }

    /// Whether the reader cancelled the sequence, or has been sent all its events.
    pub(crate) fn is_over(&self) -> bool {
        self.outbox.is_closed() || (self.ended && self.outbox.is_empty())
    }

    /// Whether the sequence waits for room in its stream (backpressure).
    pub(crate) fn is_paused(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Whether a row of logits waits for its mask.
    pub(crate) fn awaits_mask(&self) -> bool {
        self.held.is_some() && !self.ended
    }

    /// Flag of an end by a stop or by its length.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Append the wanted logits of the rows of its last token and of its draft tokens. Greedy sampling
    /// without log-probabilities needs only the highest logit.
    pub(crate) fn wanted_logits(&mut self, rows: usize, wanted: &mut Vec<WantedLogits>) {
        let end = wanted.len() + rows;
        if self.logprobs.is_none() && self.sampler.is_greedy() {
            if self.constraint.is_unconstrained() {
                wanted.resize(end, WantedLogits::Highest(None));
            } else if let Some(allowed) = self.ready_mask() {
                wanted.push(WantedLogits::Highest(allowed));
            }
        }
        // Masks behind draft tokens are computed only once the drafts are accepted.
        wanted.resize(end, WantedLogits::All);
    }

    /// Report tokens of the prompt, whose tokens are `prompt`, from rows of logits from position `first` on.
    pub(crate) fn score_prompt(&mut self, prompt: &[u32], first: usize, rows: &[&[f32]]) {
        let Some(scores) = &mut self.prompt_scores else {
            return;
        };
        let report = AssertUnwindSafe(|| scores.report(prompt, first, rows));
        match catch_unwind(report).unwrap_or_else(|panic| Err(sampling_panic(panic.as_ref()))) {
            Ok(tokens) if tokens.is_empty() || self.ended => {}
            Ok(tokens) => self.outbox.push(TokenEvent::Prompt(tokens)),
            Err(error) => self.end(TokenEvent::Failed(error)),
        }
    }

    /// End behind the prompt, `cached` tokens of which were found in the cache, if no token is to follow.
    pub(crate) fn end_with_prompt(&mut self, cached: usize) {
        if self.prompt >= self.tokens_max {
            self.finish(SequenceEnd::Length, cached);
        }
    }

    /// The mask of the next token, if it is ready and allows any; none within where all tokens are
    /// allowed. Failures are found again, and reported, when the row is sampled.
    fn ready_mask(&mut self) -> Option<Option<Arc<Vec<u32>>>> {
        let vocabulary = self.vocabulary;
        let constraint = &mut self.constraint;
        let mask = catch_unwind(AssertUnwindSafe(|| match constraint.allowed() {
            Ok(Allowed::Any) => Some(None),
            Ok(Allowed::Masked(mask)) => Some(Some(Arc::clone(mask))),
            _ => None,
        }));
        let allows = |mask: &Arc<Vec<u32>>| allows_any(mask, vocabulary);
        mask.ok()?.filter(|mask| mask.as_ref().is_none_or(allows))
    }

    /// Sample from a new row of logits. A whole row is kept if its mask is not ready.
    pub(crate) fn decide(&mut self, row: &mut RowLogits<'_>) -> RowDecision {
        let logits = match row {
            RowLogits::All(logits) => logits,
            RowLogits::Highest(highest) => {
                return match Sampler::take_highest(*highest) {
                    Ok(token) => RowDecision::Token(token),
                    Err(error) => RowDecision::Fail(error),
                };
            }
        };
        let decision = catch_panic(|| self.sample(logits));
        if decision == RowDecision::Pending {
            self.held = Some(logits.to_vec());
        }
        decision
    }

    /// Sample from the row that was kept, if its mask is ready now.
    pub(crate) fn decide_held(&mut self) -> RowDecision {
        let Some(mut logits) = self.held.take() else {
            return RowDecision::Pending;
        };
        let decision = catch_panic(|| self.sample(&mut logits));
        if decision == RowDecision::Pending {
            self.held = Some(logits);
        }
        decision
    }

    /// Keep a row of logits until its mask is ready.
    pub(crate) fn hold(&mut self, logits: Vec<f32>) {
        self.held = Some(logits);
    }

    /// Whether sampling the next token needs neither a mask nor the counts of earlier tokens, so that it
    /// can be enqueued on the device before the last token is known.
    pub(crate) fn can_enqueue_ahead(&self) -> bool {
        self.constraint.is_unconstrained() && !self.sampler.depends_on_output()
    }

    /// Whether tokens may follow the one after `known` tokens.
    pub(crate) fn may_continue(&self, known: usize) -> bool {
        known + 1 < self.tokens_max
    }

    /// Parameters to sample a row on the device, or the decision where none is to be sampled.
    pub(crate) fn sample_params(
        &mut self,
        row: usize,
        vocabulary: usize,
    ) -> Result<SampleParams, RowDecision> {
        let params = catch_unwind(AssertUnwindSafe(|| self.masked_params(row, vocabulary)));
        params.unwrap_or_else(|panic| Err(RowDecision::Fail(sampling_panic(panic.as_ref()))))
    }

    fn masked_params(
        &mut self,
        row: usize,
        vocabulary: usize,
    ) -> Result<SampleParams, RowDecision> {
        let words = vocabulary.div_ceil(32);
        let mask = match self.constraint.allowed()? {
            Allowed::Any => None,
            Allowed::Only(token) if self.logprobs.is_none() => {
                return Err(RowDecision::Token(self.sampler.take(token)));
            }
            Allowed::Only(token) => Some(Arc::new(one_hot(token, words))),
            Allowed::Masked(mask) if mask.len() == words => Some(Arc::clone(mask)),
            Allowed::Masked(mask) => {
                let mut mask = mask.to_vec();
                mask.resize(words, 0);
                Some(Arc::new(mask))
            }
        };
        let params = self.sampler.params(row, 0, mask, self.logprobs, vocabulary);
        params.map_err(RowDecision::Fail)
    }

    /// Parameters to sample a row on the device, `ahead` tokens after the next one, of a sequence that
    /// [can be enqueued ahead](Self::can_enqueue_ahead).
    pub(crate) fn sample_params_ahead(
        &self,
        row: usize,
        ahead: usize,
        vocabulary: usize,
    ) -> Option<SampleParams> {
        let sampler = &self.sampler;
        sampler
            .params(row, ahead, None, self.logprobs, vocabulary)
            .ok()
    }

    /// Accept the token that the device sampled.
    pub(crate) fn accept_sampled(&mut self, sampled: SampledToken) -> RowDecision {
        catch_panic(|| match self.sampler.accept(sampled) {
            Ok(token) => RowDecision::Token(token),
            Err(error) => RowDecision::Fail(error),
        })
    }

    /// Sample from a row of logits. The row is left untouched where the decision is [`RowDecision::Pending`].
    fn sample(&mut self, logits: &mut [f32]) -> RowDecision {
        let only: Vec<u32>;
        let mask = match self.constraint.allowed() {
            Err(decision) => return decision,
            Ok(Allowed::Any) => None,
            Ok(Allowed::Masked(mask)) => Some(&mask[..]),
            Ok(Allowed::Only(token)) if self.logprobs.is_none() => {
                return RowDecision::Token(self.sampler.take(token));
            }
            Ok(Allowed::Only(token)) => {
                only = one_hot(token, logits.len().div_ceil(32));
                Some(&only[..])
            }
        };
        match self.sampler.sample(logits, mask, self.logprobs) {
            Ok(token) => RowDecision::Token(token),
            Err(error) => RowDecision::Fail(error),
        }
    }

    /// The decision of a constraint that forces the next token or ends, which needs no logits.
    /// Log-probabilities need them all the same.
    pub(crate) fn decide_without_logits(&mut self) -> RowDecision {
        let may = !self.constraint.is_unconstrained() && self.logprobs.is_none();
        if !may || self.ended {
            return RowDecision::Pending;
        }
        let decision = catch_panic(|| match self.constraint.allowed() {
            Ok(Allowed::Only(token)) => RowDecision::Token(self.sampler.take(token)),
            Ok(Allowed::Any | Allowed::Masked(_)) => RowDecision::Pending,
            Err(decision) => decision,
        });
        if decision != RowDecision::Pending {
            self.held = None;
        }
        decision
    }

    /// Commit a decision; `cached` prompt tokens were found in the cache. Returns the token that was
    /// added.
    pub(crate) fn commit(&mut self, decision: RowDecision, cached: usize) -> Option<u32> {
        let token = match decision {
            RowDecision::Token(token) if !self.stop_tokens.contains(&token.id) => token,
            RowDecision::Token(_) | RowDecision::Complete => {
                self.finish(SequenceEnd::Stop, cached);
                return None;
            }
            RowDecision::Fail(error) => {
                self.end(TokenEvent::Failed(error));
                return None;
            }
            RowDecision::Pending => return None,
        };
        let id = token.id;
        self.generated += 1;
        self.sampler.observe(id);
        self.outbox.push(TokenEvent::Token(token));
        if self.prompt + self.generated >= self.tokens_max {
            self.finish(SequenceEnd::Length, cached);
        } else {
            let advanced = self.constraint.committed(id);
            self.fail_on(advanced);
        }
        Some(id)
    }

    /// Send events as far as the stream has room.
    pub(crate) fn flush(&mut self) {
        self.outbox.flush();
    }

    fn finish(&mut self, reason: SequenceEnd, cached: usize) {
        self.complete |= !self.ended;
        let count = |tokens: usize| u32::try_from(tokens).unwrap_or(u32::MAX);
        let usage = SequenceUsage {
            prompt_tokens: count(self.prompt),
            cached_tokens: count(cached),
            completion_tokens: count(self.generated),
        };
        self.end(TokenEvent::Finished { reason, usage });
    }

    fn fail_on(&mut self, result: Result<(), SequenceError>) {
        if let Err(error) = result {
            self.end(TokenEvent::Failed(error));
        }
    }

    fn end(&mut self, event: TokenEvent) {
        if !self.ended {
            self.ended = true;
            self.held = None;
            self.outbox.push(event);
            self.constraint.end();
        }
    }
}

/// A mask of `words` words that allows one token.
fn one_hot(token: u32, words: usize) -> Vec<u32> {
    let bit = |word| u32::from(word == token as usize / 32) << (token % 32);
    (0..words).map(bit).collect()
}

/// Turn a panic into the failure of the sequence.
fn catch_panic(decide: impl FnOnce() -> RowDecision) -> RowDecision {
    catch_unwind(AssertUnwindSafe(decide))
        .unwrap_or_else(|panic| RowDecision::Fail(sampling_panic(panic.as_ref())))
}

fn sampling_panic(panic: &(dyn Any + Send)) -> SequenceError {
    panicked("the sampler or the constraint", panic)
}
