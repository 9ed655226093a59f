//! Beam search over log-probabilities, as `transformers` defines it: selection of the continuations that
//! go on, of those that are complete, and the stopping rule. It knows no blocks and no steps.
//!
//! Each step considers the best continuations of all beams together, so many that enough are left
//! however many of them end here. A continuation that ends counts only if it is among the best `size`;
//! complete ones are compared by log-probability over length to the power of the length penalty.

use mortise_kernels::log_softmax::log_sum_exp;
use mortise_kernels::select::{Candidate, top};

use crate::beam_params::{BeamParams, EarlyStopping};

/// Score of an impossible continuation, finite as in `transformers` so that sums stay comparable.
const NEVER: f32 = -1e9;

/// A beam search under way.
#[derive(Debug)]
pub(crate) struct BeamSearch {
    params: BeamParams,
    stop_tokens: Vec<u32>,
    tokens_max: usize,
    /// At first one, then `size`; the likeliest first.
    beams: Vec<Beam>,
    /// Complete continuations, the likeliest first, at most `size`.
    complete: Vec<Hypothesis>,
    /// Whether a beam may still become better than the complete continuations.
    improvable: bool,
}

#[derive(Debug, Clone, Default)]
struct Beam {
    generated: Vec<u32>,
    /// Sum of log-probabilities.
    score: f32,
}

/// A complete continuation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Hypothesis {
    /// Without the stop token.
    pub(crate) tokens: Vec<u32>,
    pub(crate) stopped: bool,
    /// Log-probability over the length to the power of the penalty.
    pub(crate) score: f32,
}

/// Origin of a beam of the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Branch {
    /// The beam that it continues.
    pub(crate) parent: usize,
    pub(crate) token: u32,
}

/// A continuation of one of the beams by one token.
#[derive(Debug, Clone, Copy)]
struct Continuation {
    branch: Branch,
    score: f32,
    ends: bool,
}

impl BeamSearch {
    /// A search for continuations of at most `tokens_max` tokens, at least one.
    pub(crate) fn new(params: BeamParams, stop_tokens: Vec<u32>, tokens_max: usize) -> Self {
        Self {
            params,
            stop_tokens,
            tokens_max,
            beams: vec![Beam::default()],
            complete: Vec::new(),
            improvable: true,
        }
    }

    /// Number of live beams.
    pub(crate) fn beams(&self) -> usize {
        self.beams.len()
    }

    /// The best continuations of one beam by its logits, as many as could matter. `None` where the logits
    /// are not numbers.
    pub(crate) fn candidates(&self, logits: &[f32]) -> Option<Vec<Candidate>> {
        let total = log_sum_exp(logits);
        if !total.is_finite() {
            return None;
        }
        let best = top(logits, self.params.candidates(self.stop_tokens.len()));
        let with_logprob = |candidate: Candidate| Candidate {
            value: candidate.value - total,
            ..candidate
        };
        Some(best.into_iter().map(with_logprob).collect())
    }

    /// Take a step with the candidates of all beams. Returns the beams that go on, or `None` at the end.
    pub(crate) fn step(&mut self, candidates: &[Vec<Candidate>]) -> Option<Vec<Branch>> {
        let size = self.params.size as usize;
        let length = self.beams[0].generated.len() + 1;
        let best = self.best_continuations(candidates, length);
        self.complete_some(&best[..size.min(best.len())], length);
        let mut next: Vec<Continuation> = best.iter().filter(|one| !one.ends).copied().collect();
        let goes_on = !next.is_empty();
        next.truncate(size);
        let highest = next.first().map_or(NEVER, |one| one.score);
        self.improvable &= self.could_improve(highest, length);
        let full = self.complete.len() == size;
        // One beam is the greedy continuation: nothing can follow its end.
        let at_once = size == 1 || self.params.early_stopping == EarlyStopping::Full;
        let stops_early = full && at_once;
        if !self.improvable || stops_early || !goes_on {
            return None;
        }
        let beam = |one: &Continuation| {
            let parent = &self.beams[one.branch.parent];
            let mut generated = parent.generated.clone();
            generated.push(one.branch.token);
            Beam {
                generated,
                score: one.score,
            }
        };
        self.beams = next.iter().map(beam).collect();
        Some(next.iter().map(|one| one.branch).collect())
    }

    /// The best continuations of all beams, the likeliest first.
    fn best_continuations(
        &self,
        candidates: &[Vec<Candidate>],
        length: usize,
    ) -> Vec<Continuation> {
        let mut all = Vec::new();
        for (parent, (beam, candidates)) in self.beams.iter().zip(candidates).enumerate() {
            all.extend(candidates.iter().map(|candidate| Continuation {
                branch: Branch {
                    parent,
                    token: candidate.id,
                },
                score: beam.score + candidate.value,
                ends: length >= self.tokens_max || self.stop_tokens.contains(&candidate.id),
            }));
        }
        // A stable sort keeps equals in the order of their beams.
        all.sort_by(|one, other| other.score.total_cmp(&one.score));
        all.truncate(self.params.candidates(self.stop_tokens.len()));
        all
    }

    /// Keep those of the best that end, as far as they are among the best complete ones.
    fn complete_some(&mut self, best: &[Continuation], length: usize) {
        let size = self.params.size as usize;
        for one in best.iter().filter(|one| one.ends) {
            let mut tokens = self.beams[one.branch.parent].generated.clone();
            let stopped = self.stop_tokens.contains(&one.branch.token);
            if !stopped {
                tokens.push(one.branch.token);
            }
            self.complete.push(Hypothesis {
                tokens,
                stopped,
                score: self.length_normalized(one.score, length),
            });
        }
        self.complete
            .sort_by(|one, other| other.score.total_cmp(&one.score));
        self.complete.truncate(size);
    }

    /// Whether a beam with the score `highest` could become better than the worst complete continuation:
    /// at its present length, or at the greatest length where the stopping rule says so.
    fn could_improve(&self, highest: f32, length: usize) -> bool {
        let longest =
            self.params.early_stopping == EarlyStopping::Never && self.params.length_penalty > 0.0;
        let length = if longest { self.tokens_max } else { length };
        let full = self.complete.len() == self.params.size as usize;
        match self.complete.last() {
            Some(worst) if full => self.length_normalized(highest, length) > worst.score,
            _ => true,
        }
    }

    fn length_normalized(&self, score: f32, length: usize) -> f32 {
        let divisor = (length as f64).powf(f64::from(self.params.length_penalty));
        score / divisor as f32
    }

    /// The results, the best first.
    pub(crate) fn results(&self) -> &[Hypothesis] {
        let results = self.params.results as usize;
        &self.complete[..results.min(self.complete.len())]
    }
}
