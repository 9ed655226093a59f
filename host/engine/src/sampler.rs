//! From a row of logits to a token, for one sequence: here, or where the logits were computed, which
//! gives the same token to the bit.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use mortise_kernels::linear::Highest;
use mortise_kernels::mask::allows_any;
use mortise_kernels::select::{Candidate, Room, Survey, draw, keep_min_p, keep_top_p, log_total};
use mortise_model::{Adjustment, Choice, Chosen, NoChoice, Report};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::event::{GeneratedToken, SequenceError, TokenLogprobs};
use crate::request::{LogprobParams, SamplingParams};

/// Chooses the tokens of one sequence. Its random stream is its own: the same seed gives the same
/// tokens whoever else is in the batch.
#[derive(Debug, Clone)]
pub(crate) struct Sampler {
    params: SamplingParams,
    /// One number is drawn from it for each token, unless the likeliest is taken.
    random: Pcg64,
    /// Of `logit_bias`, which may name a token twice.
    biases: BTreeMap<u32, f32>,
    /// Tokens that penalties apply to, with their number in the output. Empty without penalties.
    occurrences: BTreeMap<u32, u32>,
    room: Room,
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
            params,
            random,
            biases,
            occurrences,
            room: Room::default(),
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
        self.adjust(logits);
        let random = self.random_ahead(0);
        let Self {
            params,
            room,
            candidates,
            ..
        } = self;
        let (mut survey, any_allowed, report) = match mask {
            Some(mask) => {
                let report = logprobs.map(|wanted| report(&mut Survey::new(logits, room), wanted));
                let (survey, allowed) = Survey::masked(logits, mask, room);
                (survey, allowed > 0, report)
            }
            None => {
                let mut survey = Survey::new(logits, room);
                let report = logprobs.map(|wanted| report(&mut survey, wanted));
                (survey, true, report)
            }
        };
        if !survey.all_numbers() {
            return Err(no_token(NoChoice::NotNumbers));
        }
        if !any_allowed {
            return Err(allows_none());
        }
        let id = choose(params, &mut survey, candidates, random);
        let id = id.ok_or_else(|| no_token(NoChoice::Impossible))?;
        let logit = logits
            .get(id as usize)
            .copied()
            .unwrap_or(f32::NEG_INFINITY);
        self.settle(Chosen {
            token: Ok((id, logit)),
            report,
        })
    }

    /// How the logits of a row are to be chosen from where they lie, `ahead` tokens after the next one.
    /// [`Self::settle`] takes what comes of it; until then nothing here changes.
    pub(crate) fn ask(
        &self,
        row: usize,
        ahead: usize,
        mask: Option<Vec<u32>>,
        logprobs: Option<LogprobParams>,
        vocabulary: usize,
    ) -> Result<Choice, SequenceError> {
        let allows = |mask: &Vec<u32>| allows_any(mask, vocabulary);
        if !mask.as_ref().is_none_or(allows) {
            return Err(allows_none());
        }
        let params = &self.params;
        let adjustments = self.adjustments();
        Ok(Choice {
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

    /// What was chosen: the random stream moves on.
    pub(crate) fn settle(&mut self, chosen: Chosen) -> Result<GeneratedToken, SequenceError> {
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

    /// Whether the token with the highest logit is always chosen, whatever came before.
    pub(crate) fn takes_likeliest(&self) -> bool {
        let params = &self.params;
        params.temperature == 0.0
            && params.logit_bias.is_empty()
            && params.repetition_penalty == 1.0
            && params.frequency_penalty == 0.0
            && params.presence_penalty == 0.0
    }

    /// What [`sample`](Self::sample) would choose from a row of which this is the highest, of a sampler that
    /// takes the likeliest token.
    pub(crate) fn take_highest(highest: Highest) -> Result<GeneratedToken, SequenceError> {
        if !highest.all_numbers {
            return Err(no_token(NoChoice::NotNumbers));
        }
        let candidate = highest.candidate;
        let id = candidate.ok_or_else(|| no_token(NoChoice::Impossible))?.id;
        Ok(GeneratedToken { id, logprobs: None })
    }

    /// Take the only token that may follow, for which no logits are needed. The random stream moves
    /// on as if it had been drawn.
    pub(crate) fn take(&mut self, id: u32) -> GeneratedToken {
        if self.params.temperature != 0.0 {
            let _: u64 = self.random.random();
        }
        GeneratedToken { id, logprobs: None }
    }

    /// Whether what is chosen next depends on what was chosen before, the text apart.
    pub(crate) fn looks_back(&self) -> bool {
        let params = &self.params;
        params.repetition_penalty != 1.0
            || params.frequency_penalty != 0.0
            || params.presence_penalty != 0.0
    }

    /// The random number of the token that comes so many after the next one.
    fn random_ahead(&self, ahead: usize) -> u64 {
        let mut random = self.random.clone();
        for _ in 0..ahead {
            let _: u64 = random.random();
        }
        random.random()
    }

    /// Remember a committed token for the penalties.
    pub(crate) fn observe(&mut self, token: u32) {
        if self.looks_back() {
            let count = self.occurrences.entry(token).or_insert(0);
            *count = count.saturating_add(1);
        }
    }

    /// `logit_bias` and penalties, each token once.
    fn adjustments(&self) -> impl Iterator<Item = Adjustment> {
        let params = &self.params;
        let of_bias = self.biases.iter().map(|(token, bias)| (*token, *bias));
        let unpenalised = of_bias.filter(|(token, _)| !self.occurrences.contains_key(token));
        let unpenalised = unpenalised.map(|(token, bias)| Adjustment {
            token,
            bias,
            repetition: 1.0,
            penalty: 0.0,
        });
        let penalised = self.occurrences.iter().map(|(token, count)| Adjustment {
            token: *token,
            bias: self.biases.get(token).copied().unwrap_or(0.0),
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

/// What is reported of a row, before the mask.
fn report(survey: &mut Survey<'_>, wanted: LogprobParams) -> Report {
    let likeliest = survey.top(usize::from(wanted.top)).into_iter();
    Report {
        highest: survey.highest(),
        weights: survey.total(1.0),
        likeliest: likeliest.map(|one| (one.id, one.value)).collect(),
    }
}

/// Choose from a row whose mask was applied. `candidates` is room for those that filters keep.
fn choose(
    params: &SamplingParams,
    survey: &mut Survey<'_>,
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
    // The first filter finds in the row what it keeps; the others choose among that.
    if temperature == 0.0 {
        return survey.likeliest();
    } else if top_k > 0 {
        survey.heaviest(temperature, top_k as usize, candidates);
    } else if min_p > 0.0 {
        survey.at_least(temperature, min_p, candidates);
    } else if top_p < 1.0 {
        survey.heaviest_part(temperature, top_p, candidates);
        return draw(candidates, random);
    } else {
        return survey.draw(temperature, random);
    }
    if min_p > 0.0 {
        keep_min_p(candidates, min_p);
    }
    if top_p < 1.0 {
        keep_top_p(candidates, top_p);
    }
    draw(candidates, random)
}

fn no_token(reason: NoChoice) -> SequenceError {
    let problem = match reason {
        NoChoice::NotNumbers => "the model computed logits that are no numbers",
        NoChoice::Impossible => "every token that may follow has probability 0",
    };
    SequenceError::Inference(problem.to_owned())
}

fn allows_none() -> SequenceError {
    SequenceError::Constraint("the constraint allows no token at all".to_owned())
}

/// A seed that nobody can foresee: the standard library seeds its hashers from the system.
fn draw_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests;
