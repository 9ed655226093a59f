//! The sampler of one sequence: from a row of logits to a token, on the host or on the device that
//! computed the row, with the same token to the bit.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use mortise_kernels::linear::Highest;
use mortise_kernels::mask::allows_any;
use mortise_kernels::select::{
    Candidate, LogitScan, ScanScratch, draw, keep_min_p, keep_top_p, log_total,
};
use mortise_model::{Adjustment, LogprobReport, SampleError, SampleParams, SampledToken};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::bans::{BAN, Bans};
use crate::event::{GeneratedToken, SequenceError, TokenLogprobs};
use crate::request::{LogprobParams, SamplingParams};

/// Samples the tokens of one sequence. Each sampler has a random stream of its own: the same seed gives
/// the same tokens whatever else is in the batch.
#[derive(Debug, Clone)]
pub(crate) struct Sampler {
    params: SamplingParams,
    /// One number is drawn for each token, unless sampling is greedy.
    random: Pcg64,
    /// Sums of `logit_bias`, which may name a token twice.
    biases: BTreeMap<u32, f32>,
    /// Tokens that penalties apply to, with their number in the output. Empty without penalties.
    occurrences: BTreeMap<u32, u32>,
    bans: Bans,
    scratch: ScanScratch,
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
        let mut biases = BTreeMap::new();
        for (token, bias) in &params.logit_bias {
            *biases.entry(*token).or_insert(0.0) += bias;
        }
        Self {
            bans: Bans::new(&params),
            params,
            random,
            biases,
            occurrences,
            scratch: ScanScratch::default(),
            candidates: Vec::new(),
        }
    }

    /// Sample from `logits`, which are overwritten.
    pub(crate) fn sample(
        &mut self,
        logits: &mut [f32],
        mask: Option<&[u32]>,
        logprobs: Option<LogprobParams>,
    ) -> Result<GeneratedToken, SequenceError> {
        self.adjust(logits);
        let random = self.random_ahead(0);
        let Self {
            params,
            scratch,
            candidates,
            ..
        } = self;
        let (mut scan, any_allowed, report) = match mask {
            Some(mask) => {
                let report =
                    logprobs.map(|wanted| report(&mut LogitScan::new(logits, scratch), wanted));
                let (scan, allowed) = LogitScan::masked(logits, mask, scratch);
                (scan, allowed > 0, report)
            }
            None => {
                let mut scan = LogitScan::new(logits, scratch);
                let report = logprobs.map(|wanted| report(&mut scan, wanted));
                (scan, true, report)
            }
        };
        if !scan.all_numbers() {
            return Err(no_token(SampleError::NotNumbers));
        }
        if !any_allowed {
            return Err(allows_none());
        }
        let id = choose(params, &mut scan, candidates, random);
        let id = id.ok_or_else(|| no_token(SampleError::Impossible))?;
        let logit = logits
            .get(id as usize)
            .copied()
            .unwrap_or(f32::NEG_INFINITY);
        self.accept(SampledToken {
            token: Ok((id, logit)),
            report,
        })
    }

    /// Parameters to sample a row on the device, `ahead` tokens after the next one. The sampler's state
    /// does not change until [`accept`](Self::accept).
    pub(crate) fn params(
        &self,
        row: usize,
        ahead: usize,
        mask: Option<Arc<Vec<u32>>>,
        logprobs: Option<LogprobParams>,
        vocabulary: usize,
    ) -> Result<SampleParams, SequenceError> {
        let allows = |mask: &Arc<Vec<u32>>| allows_any(mask, vocabulary);
        if !mask.as_ref().is_none_or(allows) {
            return Err(allows_none());
        }
        let params = &self.params;
        let adjustments = self.adjustments();
        Ok(SampleParams {
            row,
            adjustments: adjustments
                .filter(|one| (one.token as usize) < vocabulary)
                .collect(),
            mask,
            temperature: params.temperature,
            top_k: params.top_k,
            min_p: params.min_p,
            top_p: params.top_p,
            random: self.random_ahead(ahead),
            reported: logprobs.map(|wanted| usize::from(wanted.top)),
        })
    }

    /// Accept a sampled token, and advance the random stream.
    pub(crate) fn accept(&mut self, chosen: SampledToken) -> Result<GeneratedToken, SequenceError> {
        let (id, logit) = chosen.token.map_err(no_token)?;
        let logprobs = chosen.report.map(|report| {
            let total = log_total(report.highest, report.weights);
            let top = report.likeliest.into_iter();
            TokenLogprobs {
                // The token was allowed, so that the mask left its logit as it was.
                chosen: logit - total,
                top: top.map(|(token, logit)| (token, logit - total)).collect(),
            }
        });
        Ok(GeneratedToken {
            logprobs,
            ..self.take(id)
        })
    }

    /// Whether sampling always takes the token with the highest logit of the unadjusted row.
    pub(crate) fn is_greedy(&self) -> bool {
        let params = &self.params;
        params.temperature == 0.0
            && params.logit_bias.is_empty()
            && params.repetition_penalty == 1.0
            && params.frequency_penalty == 0.0
            && params.presence_penalty == 0.0
            && self.bans.is_empty()
    }

    /// The token of a greedy sampler for a row of which only the highest logit is known.
    pub(crate) fn take_highest(highest: Highest) -> Result<GeneratedToken, SequenceError> {
        if !highest.all_numbers {
            return Err(no_token(SampleError::NotNumbers));
        }
        let candidate = highest.candidate;
        let id = candidate
            .ok_or_else(|| no_token(SampleError::Impossible))?
            .id;
        Ok(GeneratedToken { id, logprobs: None })
    }

    /// Take a forced token, for which no logits are needed. The random stream advances as if the token
    /// had been sampled.
    pub(crate) fn take(&mut self, id: u32) -> GeneratedToken {
        if self.params.temperature != 0.0 {
            let _: u64 = self.random.random();
        }
        GeneratedToken { id, logprobs: None }
    }

    /// Whether sampling depends on earlier tokens.
    pub(crate) fn depends_on_output(&self) -> bool {
        self.has_penalties() || !self.bans.is_empty()
    }

    /// Whether sampling depends on the counts of earlier tokens.
    fn has_penalties(&self) -> bool {
        let params = &self.params;
        params.repetition_penalty != 1.0
            || params.frequency_penalty != 0.0
            || params.presence_penalty != 0.0
    }

    /// The random number of the token `ahead` after the next one.
    fn random_ahead(&self, ahead: usize) -> u64 {
        let mut random = self.random.clone();
        for _ in 0..ahead {
            let _: u64 = random.random();
        }
        random.random()
    }

    /// Remember a committed token for the penalties and the bans.
    pub(crate) fn observe(&mut self, token: u32) {
        if !self.bans.is_empty() {
            self.bans.observe(token);
        }
        if self.has_penalties() {
            let count = self.occurrences.entry(token).or_insert(0);
            *count = count.saturating_add(1);
        }
    }

    /// `logit_bias`, bans and penalties, each token once.
    fn adjustments(&self) -> impl Iterator<Item = Adjustment> {
        let params = &self.params;
        let banned: BTreeSet<u32> = self.bans.banned().collect();
        let of_bans = banned.clone().into_iter().map(|token| (token, BAN));
        let unbanned = banned.clone();
        let of_bias = self.biases.iter().map(|(token, bias)| (*token, *bias));
        let of_bias = of_bias.filter(move |(token, _)| !unbanned.contains(token));
        let bias_of = move |token: &u32| match banned.contains(token) {
            true => BAN,
            false => self.biases.get(token).copied().unwrap_or(0.0),
        };
        let biased = of_bias.chain(of_bans);
        let unpenalised = biased.filter(|(token, _)| !self.occurrences.contains_key(token));
        let unpenalised = unpenalised.map(|(token, bias)| Adjustment {
            token,
            bias,
            repetition: 1.0,
            penalty: 0.0,
        });
        let penalised = self
            .occurrences
            .iter()
            .map(move |(token, count)| Adjustment {
                token: *token,
                bias: bias_of(token),
                repetition: params.repetition_penalty,
                penalty: match count {
                    0 => 0.0,
                    _ => *count as f32 * params.frequency_penalty + params.presence_penalty,
                },
            });
        unpenalised.chain(penalised)
    }

    fn adjust(&self, logits: &mut [f32]) {
        for adjustment in self.adjustments() {
            if let Some(logit) = logits.get_mut(adjustment.token as usize) {
                *logit = adjustment.apply(*logit);
            }
        }
    }
}

/// The reported log-probabilities of a row, before the mask.
fn report(scan: &mut LogitScan<'_>, wanted: LogprobParams) -> LogprobReport {
    let likeliest = scan.top(usize::from(wanted.top)).into_iter();
    LogprobReport {
        highest: scan.highest(),
        weights: scan.total(1.0),
        likeliest: likeliest.map(|one| (one.id, one.value)).collect(),
    }
}

/// Sample from a row whose mask was applied. `candidates` is scratch space for the filters.
fn choose(
    params: &SamplingParams,
    scan: &mut LogitScan<'_>,
    candidates: &mut Vec<Candidate>,
    random: u64,
) -> Option<u32> {
    let SamplingParams {
        temperature,
        top_k,
        min_p,
        top_p,
        ..
    } = *params;
    // The first filter scans the row; the others narrow what the first one kept.
    if temperature == 0.0 {
        return scan.likeliest();
    } else if top_k > 0 {
        scan.heaviest(temperature, top_k as usize, candidates);
    } else if min_p > 0.0 {
        scan.at_least(temperature, min_p, candidates);
    } else if top_p < 1.0 {
        scan.heaviest_part(temperature, top_p, candidates);
        return draw(candidates, random);
    } else {
        return scan.draw(temperature, random);
    }
    if min_p > 0.0 {
        keep_min_p(candidates, min_p);
    }
    if top_p < 1.0 {
        keep_top_p(candidates, top_p);
    }
    draw(candidates, random)
}

pub(crate) fn no_token(reason: SampleError) -> SequenceError {
    let problem = match reason {
        SampleError::NotNumbers => "the model computed logits that are no numbers",
        SampleError::Impossible => "every token that may follow has probability 0",
    };
    SequenceError::Inference(problem.to_owned())
}

fn allows_none() -> SequenceError {
    SequenceError::Constraint("the constraint allows no token at all".to_owned())
}

/// An unpredictable seed: the standard library seeds its hashers from the system.
fn draw_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests;
