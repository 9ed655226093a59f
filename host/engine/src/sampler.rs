//! From a row of logits to a token, for one sequence.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use mortise_kernels::linear::Best;
use mortise_kernels::log_softmax::log_sum_exp;
use mortise_kernels::mask::apply_mask;
use mortise_kernels::select::{Candidate, argmax, keep_min_p, keep_top_k, keep_top_p, top, weigh};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::event::{GeneratedToken, SequenceError, TokenLogprobs};
use crate::request::{LogprobParams, SamplingParams};

/// Chooses the tokens of one sequence. Its random stream is its own: the same seed gives the same
/// tokens whoever else is in the batch.
#[derive(Debug, Clone)]
pub(crate) struct Sampler {
    params: SamplingParams,
    random: Pcg64,
    /// Tokens that penalties apply to, with their number in the output. Empty without penalties.
    occurrences: BTreeMap<u32, u32>,
    candidates: Vec<Candidate>,
}

impl Sampler {
    pub(crate) fn new(params: SamplingParams, prompt: &[u32]) -> Self {
        let seed = params.seed.unwrap_or_else(draw_seed);
        let mut occurrences = BTreeMap::new();
        if params.repetition_penalty != 1.0 {
            occurrences.extend(prompt.iter().map(|token| (*token, 0)));
        }
        let random = Pcg64::seed_from_u64(seed);
        Self {
            params,
            random,
            occurrences,
            candidates: Vec::new(),
        }
    }

    /// Choose from `logits`, which are used up.
    pub(crate) fn sample(
        &mut self,
        logits: &mut [f32],
        mask: Option<&[u32]>,
        logprobs: Option<LogprobParams>,
    ) -> Result<GeneratedToken, SequenceError> {
        // Without an early end, so that it vectorises.
        if !logits
            .iter()
            .fold(true, |numbers, logit| numbers & (*logit < f32::INFINITY))
        {
            return Err(no_numbers());
        }
        self.adjust(logits);
        let report = logprobs.map(|wanted| Report::new(logits, wanted));
        if let Some(mask) = mask
            && apply_mask(logits, mask) == 0
        {
            let problem = "the constraint allows no token at all";
            return Err(SequenceError::Constraint(problem.to_owned()));
        }
        let id = self.choose(logits).ok_or_else(nothing_likely)?;
        let logit = logits
            .get(id as usize)
            .copied()
            .unwrap_or(f32::NEG_INFINITY);
        Ok(GeneratedToken {
            id,
            logprobs: report.map(|report| report.of(logit)),
        })
    }

    /// Whether the token with the highest logit is always chosen, whatever came before.
    pub(crate) fn takes_likeliest(&self) -> bool {
        let params = &self.params;
        params.temperature == 0.0
            && params.logit_bias.is_empty()
            && params.repetition_penalty == 1.0
            && params.frequency_penalty == 0.0
            && params.presence_penalty == 0.0
    }

    /// What [`sample`](Self::sample) would choose from a row of which this is the best, of a sampler that
    /// takes the likeliest token.
    pub(crate) fn choose_best(best: &Best) -> Result<GeneratedToken, SequenceError> {
        if !best.all_numbers {
            return Err(no_numbers());
        }
        let id = best.candidates.first().ok_or_else(nothing_likely)?.id;
        Ok(GeneratedToken { id, logprobs: None })
    }

    /// Take the only token that may follow, for which no logits are needed. The random stream moves
    /// on as if it had been drawn.
    pub(crate) fn take(&mut self, id: u32) -> GeneratedToken {
        if self.params.temperature != 0.0 {
            let _: f64 = self.random.random();
        }
        GeneratedToken { id, logprobs: None }
    }

    /// Remember a committed token for the penalties.
    pub(crate) fn observe(&mut self, token: u32) {
        let params = &self.params;
        let penalised = params.repetition_penalty != 1.0
            || params.frequency_penalty != 0.0
            || params.presence_penalty != 0.0;
        if penalised {
            let count = self.occurrences.entry(token).or_insert(0);
            *count = count.saturating_add(1);
        }
    }

    /// Apply `logit_bias` and penalties.
    fn adjust(&self, logits: &mut [f32]) {
        let params = &self.params;
        for (token, bias) in &params.logit_bias {
            if let Some(logit) = logits.get_mut(*token as usize) {
                *logit += bias;
            }
        }
        for (token, count) in &self.occurrences {
            let Some(logit) = logits.get_mut(*token as usize) else {
                continue;
            };
            if *logit > 0.0 {
                *logit /= params.repetition_penalty;
            } else {
                *logit *= params.repetition_penalty;
            }
            if *count > 0 {
                *logit -= *count as f32 * params.frequency_penalty + params.presence_penalty;
            }
        }
    }

    fn choose(&mut self, logits: &[f32]) -> Option<u32> {
        let params = &self.params;
        if params.temperature == 0.0 {
            return argmax(logits).map(|index| index as u32);
        }
        let candidates = &mut self.candidates;
        weigh(logits, params.temperature, candidates);
        if params.top_k > 0 {
            keep_top_k(candidates, params.top_k as usize);
        }
        if params.min_p > 0.0 {
            keep_min_p(candidates, params.min_p);
        }
        if params.top_p < 1.0 {
            keep_top_p(candidates, params.top_p);
        }
        let total: f64 = candidates
            .iter()
            .map(|candidate| f64::from(candidate.value))
            .sum();
        let mut left = self.random.random::<f64>() * total;
        for candidate in &*candidates {
            left -= f64::from(candidate.value);
            if left < 0.0 {
                return Some(candidate.id);
            }
        }
        candidates.last().map(|candidate| candidate.id)
    }
}

/// What is reported of a row, taken before the mask.
struct Report {
    total: f32,
    top: Vec<(u32, f32)>,
}

impl Report {
    fn new(logits: &[f32], wanted: LogprobParams) -> Self {
        let total = log_sum_exp(logits);
        let top = top(logits, usize::from(wanted.top));
        let top = top
            .into_iter()
            .map(|candidate| (candidate.id, candidate.value - total));
        Self {
            total,
            top: top.collect(),
        }
    }

    /// The chosen token was allowed, so that the mask left its logit as it was.
    fn of(self, chosen_logit: f32) -> TokenLogprobs {
        TokenLogprobs {
            chosen: chosen_logit - self.total,
            top: self.top,
        }
    }
}

fn no_numbers() -> SequenceError {
    SequenceError::Inference("the model computed logits that are no numbers".to_owned())
}

fn nothing_likely() -> SequenceError {
    SequenceError::Inference("every token that may follow has probability 0".to_owned())
}

/// A seed that nobody can foresee: the standard library seeds its hashers from the system.
fn draw_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests;
