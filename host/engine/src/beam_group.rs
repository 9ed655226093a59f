//! A beam search in the engine. Its beams are sequences of the scheduler that step together, once all of
//! them are computed.

use std::collections::VecDeque;
use std::sync::Arc;

use mortise_kernels::select::Candidate;
use mortise_model::Adapter;

use crate::beam_search::{BeamSearch, Hypothesis};
use crate::block_pool::Salt;
use crate::event::{GeneratedToken, SequenceEnd, SequenceError, SequenceUsage, TokenEvent};
use crate::outbox::Outbox;
use crate::queue::QueuePlace;
use crate::request::BeamRequest;
use crate::scheduler::{Arrival, Scheduler, SequenceId};

/// A checked request on its way to the engine's thread.
pub(crate) struct BeamSubmission {
    pub(crate) request: BeamRequest,
    pub(crate) place: QueuePlace,
    /// Prompt and output together; at most the context length.
    pub(crate) tokens_max: usize,
    /// One for each result.
    pub(crate) outboxes: Vec<Outbox>,
}

/// The beams of one request.
pub(crate) struct BeamGroup {
    /// `None` once it was admitted.
    place: Option<QueuePlace>,
    prompt: usize,
    search: BeamSearch,
    /// The beams' sequences; the search's beams are the first of them, in its order.
    ids: Vec<SequenceId>,
    /// Candidates of each beam, once it is computed.
    candidates: Vec<Option<Vec<Candidate>>>,
    outboxes: Vec<Outbox>,
    adapter: Option<Arc<Adapter>>,
    ended: bool,
    failed: bool,
}

impl BeamGroup {
    /// Queue the beams. All but the first are paused until the first step branches.
    pub(crate) fn new(
        submission: BeamSubmission,
        first_id: SequenceId,
        scheduler: &mut Scheduler,
    ) -> Self {
        let BeamSubmission {
            request,
            place,
            tokens_max,
            outboxes,
        } = submission;
        let size = request.beams.size as usize;
        let ids: Vec<SequenceId> = (first_id..).take(size).collect();
        let number = request.adapter.as_ref().map(|adapter| adapter.number());
        let salt = Salt::new(request.salt, number);
        for id in &ids {
            scheduler.enqueue(Arrival {
                id: *id,
                prompt: request.prompt.clone(),
                tokens_max,
                priority: request.priority,
                salt: salt.clone(),
                share: request.share.clone(),
                draft_max: 0,
                scores_prompt: false,
            });
            scheduler.set_paused(*id, *id != first_id);
        }
        let prompt = request.prompt.len();
        Self {
            place: Some(place),
            prompt,
            search: BeamSearch::new(request.beams, request.stop_tokens, tokens_max - prompt),
            candidates: vec![None; size],
            ids,
            outboxes,
            adapter: request.adapter,
            ended: false,
            failed: false,
        }
    }

    /// The adapter of all beams.
    pub(crate) fn adapter(&self) -> Option<&Arc<Adapter>> {
        self.adapter.as_ref()
    }

    /// Tokens of the prompt.
    pub(crate) fn prompt(&self) -> usize {
        self.prompt
    }

    /// The beams' sequences.
    pub(crate) fn ids(&self) -> &[SequenceId] {
        &self.ids
    }

    /// Number of continuations that are returned.
    pub(crate) fn results(&self) -> usize {
        self.outboxes.len()
    }

    /// Free its place in the queue: it was admitted.
    pub(crate) fn leave_queue(&mut self) {
        self.place = None;
    }

    /// Take the logits of a beam. It is paused until the others are computed, and is preempted first
    /// where blocks are short. Returns the number of tokens committed, 0 until all beams are computed.
    pub(crate) fn take(
        &mut self,
        id: SequenceId,
        logits: &[f32],
        scheduler: &mut Scheduler,
    ) -> usize {
        let Some(beam) = self.ids.iter().position(|own| *own == id) else {
            return 0;
        };
        let Some(candidates) = self.search.candidates(logits) else {
            let problem = "the model computed logits that are no numbers";
            self.fail(&SequenceError::Inference(problem.to_owned()), scheduler);
            return 0;
        };
        self.candidates[beam] = Some(candidates);
        scheduler.set_paused(id, true);
        let beams = self.search.beams();
        if self.candidates[..beams].iter().any(Option::is_none) {
            return 0;
        }
        let candidates: Vec<_> = self.candidates[..beams]
            .iter_mut()
            .filter_map(Option::take)
            .collect();
        match self.search.step(&candidates) {
            Some(branches) => {
                let parents: Vec<usize> = branches.iter().map(|branch| branch.parent).collect();
                let order = keep_places(&parents, self.ids.len());
                let ids: Vec<SequenceId> = order.iter().map(|place| self.ids[*place]).collect();
                let moves: Vec<_> = branches
                    .iter()
                    .zip(&ids)
                    .map(|(branch, id)| (*id, self.ids[branch.parent], branch.token))
                    .collect();
                scheduler.branch(&moves);
                self.ids = ids;
                for id in &self.ids[..branches.len()] {
                    scheduler.set_paused(*id, false);
                }
                branches.len()
            }
            None => {
                self.finish(scheduler);
                0
            }
        }
    }

    fn finish(&mut self, scheduler: &mut Scheduler) {
        let cached = scheduler.cached_tokens(self.first());
        self.end(scheduler);
        for (hypothesis, outbox) in self.search.results().iter().zip(&mut self.outboxes) {
            for event in events(hypothesis, self.prompt, cached) {
                outbox.push(event);
            }
        }
    }

    /// Fail the search.
    pub(crate) fn fail(&mut self, error: &SequenceError, scheduler: &mut Scheduler) {
        if self.ended {
            return;
        }
        self.end(scheduler);
        self.failed = true;
        for outbox in &mut self.outboxes {
            outbox.push(TokenEvent::Failed(error.clone()));
        }
    }

    /// Flag of a good end.
    pub(crate) fn is_complete(&self) -> bool {
        self.ended && !self.failed
    }

    /// The sequence that computed the prompt has the lowest number.
    fn first(&self) -> SequenceId {
        self.ids.iter().copied().min().unwrap_or_default()
    }

    fn end(&mut self, scheduler: &mut Scheduler) {
        self.ended = true;
        for id in &self.ids {
            scheduler.remove(*id);
        }
    }

    /// Send events to the readers. Returns whether the search stays: an ended one does until its last
    /// event has found room; a cancelled one does not.
    pub(crate) fn deliver(&mut self, scheduler: &mut Scheduler) -> bool {
        for outbox in &mut self.outboxes {
            outbox.flush();
        }
        let abandoned = self.outboxes.iter().all(Outbox::is_closed);
        if abandoned && !self.ended {
            self.end(scheduler);
        }
        let told = self.outboxes.iter().all(Outbox::is_empty);
        !(self.ended && told)
    }
}

/// Assign each branch one of `places`: the first branch of a parent stays at the parent's place, where
/// its blocks are; the others take places that are left. Places without a branch come last.
fn keep_places(parents: &[usize], places: usize) -> Vec<usize> {
    let mut order: Vec<Option<usize>> = Vec::with_capacity(places);
    let mut free = vec![true; places];
    for parent in parents {
        let kept = std::mem::replace(&mut free[*parent], false);
        order.push(kept.then_some(*parent));
    }
    let mut left: VecDeque<usize> = (0..places).filter(|place| free[*place]).collect();
    let placed = order
        .into_iter()
        .map(|place| place.or_else(|| left.pop_front()));
    let mut placed: Vec<usize> = placed.flatten().collect();
    placed.extend(left);
    placed
}

/// The events of a result.
fn events(
    hypothesis: &Hypothesis,
    prompt: usize,
    cached: usize,
) -> impl Iterator<Item = TokenEvent> + '_ {
    let count = |tokens: usize| u32::try_from(tokens).unwrap_or(u32::MAX);
    let tokens = hypothesis.tokens.iter().map(|id| {
        TokenEvent::Token(GeneratedToken {
            id: *id,
            logprobs: None,
        })
    });
    tokens.chain(std::iter::once(TokenEvent::Finished {
        reason: match hypothesis.stopped {
            true => SequenceEnd::Stop,
            false => SequenceEnd::Length,
        },
        usage: SequenceUsage {
            prompt_tokens: count(prompt),
            cached_tokens: count(cached),
            completion_tokens: count(hypothesis.tokens.len()),
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::keep_places;

    #[test]
    fn beams_stay_where_their_blocks_are() {
        assert_eq!(keep_places(&[0, 0, 0], 3), [0, 1, 2], "the first step");
        assert_eq!(keep_places(&[2, 0, 2, 0], 4), [2, 0, 1, 3]);
        assert_eq!(keep_places(&[3, 3, 3, 3], 4), [3, 0, 1, 2]);
        assert_eq!(keep_places(&[1, 0], 4), [1, 0, 2, 3]);
    }
}
