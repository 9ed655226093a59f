//! Token counts of one choice, readable while it is being generated elsewhere.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use mortise_models::Usage;

/// Token counts over all rounds of a choice. The counts are independent of one another: no order is
/// needed. Only the choice writes them.
#[derive(Debug, Default)]
pub(crate) struct TokenTally {
    /// Tokens of the prompt of the first round.
    prompt: AtomicU32,
    /// Prompt tokens of the first round that were found in the prefix cache.
    cached: AtomicU32,
    /// Tokens of the prompts of later rounds, after tools had run.
    later_prompt: AtomicU32,
    /// Prompt tokens of later rounds that were found in the prefix cache.
    later_cached: AtomicU32,
    completion: AtomicU32,
    reasoning: AtomicU32,
    /// Sum of the log-probabilities of the tokens, where they are known: the bits of an f64.
    logprob: AtomicU64,
}

/// Round of a choice: the first, or one after tools have run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoundKind {
    First,
    Later,
}

impl TokenTally {
    /// Record the prompt of a round.
    pub(crate) fn add_prompt(&self, round: RoundKind, tokens: u32) {
        let count = match round {
            RoundKind::First => &self.prompt,
            RoundKind::Later => &self.later_prompt,
        };
        count.fetch_add(tokens, Relaxed);
    }

    /// Record tokens of a round's prompt that were found in the prefix cache.
    pub(crate) fn add_cached(&self, round: RoundKind, tokens: u32) {
        let count = match round {
            RoundKind::First => &self.cached,
            RoundKind::Later => &self.later_cached,
        };
        count.fetch_add(tokens, Relaxed);
    }

    /// Record generated tokens.
    pub(crate) fn add_completion(&self, tokens: u32) {
        self.completion.fetch_add(tokens, Relaxed);
    }

    /// Record tokens of a reasoning block.
    pub(crate) fn add_reasoning(&self, tokens: u32) {
        self.reasoning.fetch_add(tokens, Relaxed);
    }

    /// Replace tokens that were counted by those that the runtime reports.
    pub(crate) fn replace(&self, counted: Usage, reported: Usage) {
        let replace = |count: &AtomicU32, counted: u32, reported: u32| {
            // Only the choice writes, and it has counted what it takes back.
            count.fetch_sub(counted, Relaxed);
            count.fetch_add(reported, Relaxed);
        };
        replace(
            &self.completion,
            counted.completion_tokens,
            reported.completion_tokens,
        );
        replace(
            &self.reasoning,
            counted.reasoning_tokens,
            reported.reasoning_tokens,
        );
    }

    /// Tokens generated so far.
    pub(crate) fn completion(&self) -> u32 {
        self.completion.load(Relaxed)
    }

    /// Record the log-probability of a token.
    pub(crate) fn add_logprob(&self, logprob: f32) {
        let sum = f64::from_bits(self.logprob.load(Relaxed)) + f64::from(logprob);
        self.logprob.store(sum.to_bits(), Relaxed);
    }

    /// Mean log-probability of a token; that of no tokens is the lowest.
    pub(crate) fn mean_logprob(&self) -> f64 {
        let sum = f64::from_bits(self.logprob.load(Relaxed));
        match self.completion() {
            0 => f64::NEG_INFINITY,
            tokens => sum / f64::from(tokens),
        }
    }

    /// Usage of a prompt and of the choices that answer it. The prompt counts once, so tokens of it
    /// that only some choices found cached do not count as cached.
    pub(crate) fn usage<'a>(choices: impl Iterator<Item = &'a Self> + Clone) -> Usage {
        let sum = |count: fn(&Self) -> &AtomicU32| {
            let counts = choices.clone().map(|tally| count(tally).load(Relaxed));
            counts.fold(0, u32::saturating_add)
        };
        let prompts = choices.clone().map(|tally| tally.prompt.load(Relaxed));
        let cached = choices.clone().map(|tally| tally.cached.load(Relaxed));
        Usage {
            prompt_tokens: prompts
                .max()
                .unwrap_or(0)
                .saturating_add(sum(|tally| &tally.later_prompt)),
            cached_tokens: cached
                .min()
                .unwrap_or(0)
                .saturating_add(sum(|tally| &tally.later_cached)),
            completion_tokens: sum(|tally| &tally.completion),
            reasoning_tokens: sum(|tally| &tally.reasoning),
        }
    }
}
