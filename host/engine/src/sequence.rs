//! One sequence while it lives in the engine: its sampler, its constraint and the stream that it
//! feeds; its tokens are with the scheduler. Whatever runs here on behalf of one request is fenced:
//! a panic becomes that sequence's error.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use mortise_kernels::linear::{RowLogits, WantedLogits};
use mortise_kernels::mask::allows_any;
use mortise_model::{Choice, Chosen};

use crate::event::{FinishReason, GeneratedToken, SequenceError, SequenceUsage, TokenEvent};
use crate::guide::{Allowed, Guide};
use crate::outbox::Outbox;
use crate::queue::QueuePlace;
use crate::request::{LogprobParams, SequenceRequest};
use crate::sampler::Sampler;

/// A checked request on its way to the engine's thread.
pub(crate) struct Submission {
    pub(crate) request: SequenceRequest,
    pub(crate) place: QueuePlace,
    /// Prompt and output together; at most the context length.
    pub(crate) tokens_max: usize,
    pub(crate) outbox: Outbox,
}

/// A sequence in the engine.
pub(crate) struct Sequence {
    /// Until its first turn.
    place: Option<QueuePlace>,
    /// Tokens of the prompt.
    prompt: usize,
    /// Tokens committed since.
    generated: usize,
    tokens_max: usize,
    stop_tokens: Vec<u32>,
    sampler: Sampler,
    logprobs: Option<LogprobParams>,
    guide: Guide,
    /// Holds no more than two steps commit: while it holds anything nothing is decided but what was
    /// chosen before.
    outbox: Outbox,
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
    /// Take in what was submitted, but for its prompt; the constraint begins to work.
    pub(crate) fn new(submission: Submission, vocabulary: usize) -> (Self, Vec<u32>) {
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
            guide: Guide::new(request.constraint, vocabulary),
            outbox,
            held: None,
            ended: false,
        };
        let begun = sequence.guide.begin();
        sequence.fail_on(begun);
        (sequence, request.prompt)
    }

    /// What chooses its tokens.
    pub(crate) fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// Tokens that end it.
    pub(crate) fn stop_tokens(&self) -> &[u32] {
        &self.stop_tokens
    }

    /// It has its first turn: the place in the queue is free.
    pub(crate) fn leave_queue(&mut self) {
        self.place = None;
    }

    /// Tokens of the prompt.
    pub(crate) fn prompt(&self) -> usize {
        self.prompt
    }

    /// Whether nobody reads the stream any more, or all has been read into it.
    pub(crate) fn is_over(&self) -> bool {
        self.outbox.is_closed() || (self.ended && self.outbox.is_empty())
    }

    /// Whether the reader must make room first.
    pub(crate) fn is_paused(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Whether a row of logits waits to be sampled.
    pub(crate) fn holds_logits(&self) -> bool {
        self.held.is_some() && !self.ended
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Say what is wanted of the rows behind its last token and those of a guess. Where the likeliest token
    /// is taken and nothing else asked for, that is the highest logit.
    pub(crate) fn want(&mut self, rows: usize, vocabulary: usize, wanted: &mut Vec<WantedLogits>) {
        let end = wanted.len() + rows;
        if self.logprobs.is_none() && self.sampler.takes_likeliest() {
            if self.guide.is_free() {
                wanted.resize(end, WantedLogits::Highest(None));
            } else if let Some(mask) = self.mask_in_time(vocabulary) {
                wanted.push(WantedLogits::Highest(Some(mask)));
            }
        }
        // The masks of what follows a guess are made when it was right.
        wanted.resize(end, WantedLogits::All);
    }

    /// The mask of the next token, if it is ready and leaves a choice. Whatever else there is to decide is
    /// decided later.
    fn mask_in_time(&mut self, vocabulary: usize) -> Option<Vec<u32>> {
        let guide = &mut self.guide;
        let mask = catch_unwind(AssertUnwindSafe(|| match guide.allowed() {
            Ok(Allowed::Masked(mask)) => Some(mask.to_vec()),
            _ => None,
        }));
        mask.ok()?.filter(|mask| allows_any(mask, vocabulary))
    }

    /// Choose from what was found of a new row of logits. A whole row is kept if the mask is not ready.
    pub(crate) fn decide(&mut self, row: &mut RowLogits<'_>) -> Decision {
        let logits = match row {
            RowLogits::All(logits) => logits,
            RowLogits::Highest(highest) => {
                return match Sampler::take_highest(*highest) {
                    Ok(token) => Decision::Token(token),
                    Err(error) => Decision::Fail(error),
                };
            }
        };
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

    /// Keep a row of logits until the mask is ready.
    pub(crate) fn hold(&mut self, logits: Vec<f32>) {
        self.held = Some(logits);
    }

    /// Whether nothing but the text before decides what comes next, so that it can be asked for before
    /// the last token is known.
    pub(crate) fn can_ask_ahead(&self) -> bool {
        self.guide.is_free() && !self.sampler.looks_back()
    }

    /// Whether tokens may come after the one that comes after `known` tokens.
    pub(crate) fn may_go_on(&self, known: usize) -> bool {
        known + 1 < self.tokens_max
    }

    /// How to choose from a row where it lies; or what is decided without.
    pub(crate) fn ask(&mut self, row: usize, vocabulary: usize) -> Result<Choice, Decision> {
        let asked = catch_unwind(AssertUnwindSafe(|| self.ask_unfenced(row, vocabulary)));
        asked.unwrap_or_else(|panic| Err(Decision::Fail(of_choice(panic.as_ref()))))
    }

    fn ask_unfenced(&mut self, row: usize, vocabulary: usize) -> Result<Choice, Decision> {
        let words = vocabulary.div_ceil(32);
        let mask = match self.guide.allowed()? {
            Allowed::Any => None,
            Allowed::Only(token) if self.logprobs.is_none() => {
                return Err(Decision::Token(self.sampler.take(token)));
            }
            Allowed::Only(token) => Some(one_hot(token, words)),
            Allowed::Masked(mask) => {
                let mut mask = mask.to_vec();
                mask.resize(words, 0);
                Some(mask)
            }
        };
        let choice = self.sampler.ask(row, 0, mask, self.logprobs, vocabulary);
        choice.map_err(Decision::Fail)
    }

    /// How to choose from a row where it lies, `ahead` tokens after the next one, of a sequence that can
    /// be asked so.
    pub(crate) fn ask_ahead(&self, row: usize, ahead: usize, vocabulary: usize) -> Option<Choice> {
        let sampler = &self.sampler;
        sampler
            .ask(row, ahead, None, self.logprobs, vocabulary)
            .ok()
    }

    /// What was chosen where the logits lie.
    pub(crate) fn settle(&mut self, chosen: Chosen) -> Decision {
        fenced(|| match self.sampler.settle(chosen) {
            Ok(token) => Decision::Token(token),
            Err(error) => Decision::Fail(error),
        })
    }

    /// Leaves the row untouched where the decision is [`Decision::NotYet`].
    fn decide_unfenced(&mut self, logits: &mut [f32]) -> Decision {
        let only: Vec<u32>;
        let mask = match self.guide.allowed() {
            Err(decision) => return decision,
            Ok(Allowed::Any) => None,
            Ok(Allowed::Masked(mask)) => Some(mask),
            Ok(Allowed::Only(token)) if self.logprobs.is_none() => {
                return Decision::Token(self.sampler.take(token));
            }
            Ok(Allowed::Only(token)) => {
                only = one_hot(token, logits.len().div_ceil(32));
                Some(&only[..])
            }
        };
        match self.sampler.sample(logits, mask, self.logprobs) {
            Ok(token) => Decision::Token(token),
            Err(error) => Decision::Fail(error),
        }
    }

    /// Decide without logits, which can be done where the constraint leaves no choice. Whoever
    /// wants log-probabilities needs them all the same.
    pub(crate) fn decide_unscored(&mut self) -> Decision {
        let may = !self.guide.is_free() && self.logprobs.is_none();
        if !may || self.ended {
            return Decision::NotYet;
        }
        let decision = fenced(|| match self.guide.allowed() {
            Ok(Allowed::Only(token)) => Decision::Token(self.sampler.take(token)),
            Ok(Allowed::Any | Allowed::Masked(_)) => Decision::NotYet,
            Err(decision) => decision,
        });
        if decision != Decision::NotYet {
            self.held = None;
        }
        decision
    }

    /// Take a decision into account; `cached` prompt tokens were found in the cache. Returns the
    /// token that was added.
    pub(crate) fn commit(&mut self, decision: Decision, cached: usize) -> Option<u32> {
        let token = match decision {
            Decision::Token(token) if !self.stop_tokens.contains(&token.id) => token,
            Decision::Token(_) | Decision::Complete => {
                self.finish(FinishReason::Stop, cached);
                return None;
            }
            Decision::Fail(error) => {
                self.end(TokenEvent::Failed(error));
                return None;
            }
            Decision::NotYet => return None,
        };
        let id = token.id;
        self.generated += 1;
        self.sampler.observe(id);
        self.outbox.push(TokenEvent::Token(token));
        if self.prompt + self.generated >= self.tokens_max {
            self.finish(FinishReason::Length, cached);
        } else {
            let told = self.guide.committed(id);
            self.fail_on(told);
        }
        Some(id)
    }

    /// Block until the constraint has an outcome.
    pub(crate) fn wait(&mut self) {
        let waited = self.guide.wait();
        self.fail_on(waited);
    }

    /// Send what the stream has room for.
    pub(crate) fn flush(&mut self) {
        self.outbox.flush();
    }

    fn finish(&mut self, reason: FinishReason, cached: usize) {
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
            self.guide.end();
        }
    }
}

/// The mask of so many words that allows one token.
fn one_hot(token: u32, words: usize) -> Vec<u32> {
    let bit = |word| u32::from(word == token as usize / 32) << (token % 32);
    (0..words).map(bit).collect()
}

/// Turn a panic into the failure of the sequence.
fn fenced(decide: impl FnOnce() -> Decision) -> Decision {
    catch_unwind(AssertUnwindSafe(decide))
        .unwrap_or_else(|panic| Decision::Fail(of_choice(panic.as_ref())))
}

fn of_choice(panic: &(dyn Any + Send)) -> SequenceError {
    panicked("the sampler or the constraint", panic)
}

pub(crate) fn panicked(what: &str, panic: &(dyn Any + Send)) -> SequenceError {
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
