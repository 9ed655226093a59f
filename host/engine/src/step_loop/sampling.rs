//! What comes of a forward pass: tokens are chosen and committed, and handed to the readers.

use std::sync::atomic::Ordering;

use mortise_kernels::linear::Best;

use super::{Computed, Scored, StepLoop, rows};
use crate::event::SequenceError;
use crate::load::Counters;
use crate::scheduler::{Scheduler, SequenceId, Slice};
use crate::sequence::{Decision, Sequence};

impl StepLoop {
    /// Choose a token for each sequence whose logits and mask are there, the logits new or kept
    /// from an earlier step. Returns whether anything was decided.
    pub(super) fn sample(&mut self, scored: Scored) -> bool {
        let mut decided = self.decide_held();
        for (slices, computed) in scored.rows {
            match computed {
                Computed::Rows(mut logits) => {
                    let mut all = logits.rows_mut();
                    for slice in &slices {
                        let own: Vec<&mut [f32]> = all.by_ref().take(rows(slice)).collect();
                        decided |= self.sample_slice(slice, own);
                    }
                }
                Computed::Likeliest(all) => {
                    let sampled = slices.iter().filter(|slice| slice.last);
                    for (slice, best) in sampled.zip(&all) {
                        decided |= self.take_best(slice, best);
                    }
                }
            }
        }
        for (id, error) in scored.failed {
            decided = true;
            self.fail(id, error);
        }
        self.deliver();
        decided
    }

    /// Choose from the logits that are kept, where the masks are there now. Returns whether anything
    /// was decided.
    pub(super) fn decide_held(&mut self) -> bool {
        let mut decided = false;
        for (id, sequence) in &mut self.sequences {
            if sequence.holds_logits() && !sequence.is_paused() {
                let decision = sequence.decide_held();
                decided |= decision != Decision::NotYet;
                commit(
                    &mut self.scheduler,
                    &self.shared.counters,
                    *id,
                    sequence,
                    decision,
                );
            }
        }
        decided
    }

    /// A sequence, or the search that it is a beam of, could not be computed.
    pub(super) fn fail(&mut self, id: SequenceId, error: String) {
        let error = SequenceError::Inference(error);
        let mut groups = self.beams.iter_mut();
        if let Some(group) = groups.find(|group| group.ids().contains(&id)) {
            group.fail(&error, &mut self.scheduler);
        }
        self.decide(id, Decision::Fail(error));
    }

    /// Take a decision about a sequence into account, if it is still there.
    pub(super) fn decide(&mut self, id: SequenceId, decision: Decision) {
        if let Some(sequence) = self.sequences.get_mut(&id) {
            commit(
                &mut self.scheduler,
                &self.shared.counters,
                id,
                sequence,
                decision,
            );
        }
    }

    /// Choose what follows a slice. While that is what its draft guessed, the next row tells what
    /// follows the guess.
    pub(super) fn sample_slice(&mut self, slice: &Slice, rows: Vec<&mut [f32]>) -> bool {
        let Some(sequence) = self.sequences.get_mut(&slice.id) else {
            return self.take_offers(slice, &rows);
        };
        let mut decided = false;
        let mut accepted = 0;
        for (index, row) in rows.into_iter().enumerate() {
            let decision = sequence.decide(row);
            decided |= decision != Decision::NotYet;
            let scheduler = &mut self.scheduler;
            let Decision::Token(token) = &decision else {
                commit(
                    scheduler,
                    &self.shared.counters,
                    slice.id,
                    sequence,
                    decision,
                );
                break;
            };
            let guessed = slice.draft.get(index) == Some(&token.id);
            let added = commit(
                scheduler,
                &self.shared.counters,
                slice.id,
                sequence,
                decision,
            );
            if !added || !guessed || sequence.has_ended() {
                break;
            }
            accepted += 1;
            scheduler.confirm_draft(slice.id);
        }
        self.scheduler.settle_drafts(slice, accepted);
        decided
    }

    /// Take the likeliest token behind a slice.
    fn take_best(&mut self, slice: &Slice, best: &Best) -> bool {
        let Some(sequence) = self.sequences.get(&slice.id) else {
            return false;
        };
        let decision = sequence.decide_best(best);
        self.decide(slice.id, decision);
        true
    }

    /// A beam is computed, if the slice is one's.
    fn take_offers(&mut self, slice: &Slice, rows: &[&mut [f32]]) -> bool {
        let mut groups = self.beams.iter_mut();
        let group = groups.find(|group| group.ids().contains(&slice.id));
        let (Some(group), Some(row)) = (group, rows.first()) else {
            return false;
        };
        let chosen = group.take(slice.id, row, &mut self.scheduler);
        let counter = &self.shared.counters.decode_tokens;
        counter.fetch_add(chosen as u64, Ordering::Relaxed);
        true
    }

    /// Hand events to the readers, and forget the sequences that are over.
    pub(super) fn deliver(&mut self) {
        let before = self.sequences.len();
        let scheduler = &mut self.scheduler;
        self.sequences
            .retain(|id, sequence| deliver(scheduler, *id, sequence));
        let mut over = before - self.sequences.len();
        let scheduler = &mut self.scheduler;
        self.beams.retain_mut(|group| {
            let lives = group.deliver(scheduler);
            over += if lives { 0 } else { group.results() };
            lives
        });
        if over > 0 {
            let sequences = &self.sequences;
            self.drafter.retain(|id| sequences.contains_key(&id));
        }
        let counter = &self.shared.counters.finished;
        counter.fetch_add(over as u64, Ordering::Relaxed);
    }
}

/// Take a decision into account. Returns whether a token was added.
pub(super) fn commit(
    scheduler: &mut Scheduler,
    counters: &Counters,
    id: SequenceId,
    sequence: &mut Sequence,
    decision: Decision,
) -> bool {
    let Some(token) = sequence.commit(decision, scheduler.cached_tokens(id)) else {
        return false;
    };
    scheduler.extend(id, token);
    counters.decode_tokens.fetch_add(1, Ordering::Relaxed);
    true
}

/// Hand events to the reader and let the scheduler know how that went. Returns whether the
/// sequence lives on: an ended one does until its last event has found room.
fn deliver(scheduler: &mut Scheduler, id: SequenceId, sequence: &mut Sequence) -> bool {
    sequence.flush();
    let over = sequence.is_over();
    if over || sequence.has_ended() {
        scheduler.remove(id);
    } else {
        scheduler.set_paused(id, sequence.is_paused());
    }
    !over
}
