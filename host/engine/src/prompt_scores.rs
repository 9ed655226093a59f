//! Log-probabilities of a prompt's own tokens, from the rows of logits of its prefill.

use mortise_kernels::pool::for_each_piece;
use mortise_kernels::select::{LogitScan, ScanScratch, log_total};
use mortise_model::SampleError;

use crate::event::{PromptLogprobs, ScoredToken, SequenceError};
use crate::request::LogprobParams;
use crate::sampler::no_token;

/// Rows that one task searches.
const ROWS: usize = 8;

/// Progress through the prompt of one sequence.
#[derive(Debug)]
pub(crate) struct PromptScoreState {
    params: LogprobParams,
    /// Index of the first token that was not reported yet.
    next: usize,
}

/// A token with the row of logits before it, and its outcome once that is searched.
type Scored<'a> = (
    u32,
    &'a [f32],
    Option<Result<PromptLogprobs, SequenceError>>,
);

impl PromptScoreState {
    pub(crate) fn new(params: LogprobParams) -> Self {
        Self { params, next: 0 }
    }

    /// The tokens that the rows from position `first` tell of, each row of the token behind it. The first token of the
    /// prompt has no row and comes first. Rows that are computed again after a preemption were reported.
    pub(crate) fn report(
        &mut self,
        prompt: &[u32],
        first: usize,
        rows: &[&[f32]],
    ) -> Result<Vec<ScoredToken>, SequenceError> {
        let mut tokens = Vec::new();
        if let (0, Some(id)) = (self.next, prompt.first()) {
            self.next = 1;
            tokens.push(ScoredToken {
                id: *id,
                logprobs: None,
            });
        }
        let done = self.next.saturating_sub(first + 1);
        let behind = prompt.iter().skip(first + 1).zip(rows).skip(done);
        let mut scored: Vec<Scored<'_>> = behind.map(|(id, row)| (*id, *row, None)).collect();
        let top = usize::from(self.params.top);
        for_each_piece(&mut scored, ROWS, |_, piece| {
            let mut scratch = ScanScratch::default();
            for (id, row, outcome) in piece {
                *outcome = Some(score(*id, row, top, &mut scratch));
            }
        });
        self.next += scored.len();
        for (id, _, outcome) in scored {
            tokens.push(ScoredToken {
                id,
                logprobs: outcome.transpose()?,
            });
        }
        Ok(tokens)
    }
}

/// Log-probabilities of the token `id` and of the likeliest tokens.
fn score(
    id: u32,
    row: &[f32],
    top: usize,
    scratch: &mut ScanScratch,
) -> Result<PromptLogprobs, SequenceError> {
    let mut scan = LogitScan::new(row, scratch);
    if !scan.all_numbers() {
        return Err(no_token(SampleError::NotNumbers));
    }
    let likeliest = scan.top(top);
    let total = log_total(scan.highest(), scan.total(1.0));
    let own = row.get(id as usize).copied();
    let own = own.unwrap_or(f32::NEG_INFINITY);
    let above = row.iter().filter(|logit| **logit > own).count();
    Ok(PromptLogprobs {
        own: own - total,
        rank: u32::try_from(above + 1).unwrap_or(u32::MAX),
        top: likeliest
            .into_iter()
            .map(|one| (one.id, one.value - total))
            .collect(),
    })
}
