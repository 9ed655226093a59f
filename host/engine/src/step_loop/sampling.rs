//! What comes of a forward pass: tokens are chosen and committed, and handed to the readers.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use mortise_kernels::linear::RowLogits;
use mortise_kernels::pool::for_each_piece;

use super::{Scored, StepLoop, rows};
use crate::event::SequenceError;
use crate::load::Counters;
use crate::scheduler::{Scheduler, SequenceId, Slice};
use crate::sequence::{Decision, Sequence};

/// A sequence, what was found of its row, and what it decides.
type Choosing<'a> = (&'a mut Sequence, RowLogits<'a>, Option<Decision>);

impl StepLoop {
    /// Choose a token for each sequence whose logits and mask are there, the logits new or kept
    /// from an earlier step. Returns whether anything was decided.
    pub(super) fn sample(&mut self, scored: Scored) -> bool {
        let mut decided = self.decide_held();
        for (slices, mut scores) in scored.rows {
            let mut all = scores.rows_mut();
            let own = slices
                .iter()
                .map(|slice| all.by_ref().take(rows(slice)).collect());
            let mut own: Vec<Vec<RowLogits<'_>>> = own.collect();
            let firsts = self.decide_together(&slices, &mut own);
            for ((slice, rows), first) in slices.iter().zip(own).zip(firsts) {
                decided |= self.sample_slice(slice, first, rows);
            }
        }
        for (id, error) in scored.failed {
            decided = true;
            self.fail(id, error);
        }
        self.deliver();
        decided
    }

    /// Choose what follows the last known token of each slice, for all sequences at once: whole rows take
    /// long, and no sequence's choice depends on another's. Takes the rows that this uses.
    fn decide_together(
        &mut self,
        slices: &[Slice],
        own: &mut [Vec<RowLogits<'_>>],
    ) -> Vec<Option<Decision>> {
        let sequences = self.sequences.iter_mut();
        let mut sequences: BTreeMap<SequenceId, &mut Sequence> =
            sequences.map(|(id, sequence)| (*id, sequence)).collect();
        let choices = slices.iter().zip(own).map(|(slice, rows)| {
            let sequence = sequences.remove(&slice.id).filter(|_| !rows.is_empty())?;
            Some((sequence, rows.remove(0), None))
        });
        let mut choices: Vec<Option<Choosing<'_>>> = choices.collect();
        let decide = |choices: &mut [Option<Choosing<'_>>]| {
            for (sequence, row, decision) in choices.iter_mut().flatten() {
                *decision = Some(sequence.decide(row));
            }
        };
        let all = choices.iter().flatten();
        match all
            .filter(|(_, row, _)| matches!(row, RowLogits::All(_)))
            .count()
        {
            0 | 1 => decide(&mut choices),
            _ => for_each_piece(&mut choices, 1, |_, piece| decide(piece)),
        }
        let decisions = choices.into_iter().map(|choice| choice?.2);
        decisions.collect()
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

    /// Choose what follows a slice, unless the `first` of that is decided already. While it is what the
    /// draft guessed, the next row tells what follows the guess.
    pub(super) fn sample_slice(
        &mut self,
        slice: &Slice,
        mut first: Option<Decision>,
        rows: Vec<RowLogits<'_>>,
    ) -> bool {
        let Some(sequence) = self.sequences.get_mut(&slice.id) else {
            return self.take_offers(slice, rows);
        };
        let mut decided = false;
        let mut accepted = 0;
        let mut rows = rows.into_iter();
        for index in 0.. {
            let next = || rows.next().map(|mut row| sequence.decide(&mut row));
            let Some(decision) = first.take().or_else(next) else {
                break;
            };
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

    /// A beam is computed, if the slice is one's.
    fn take_offers(&mut self, slice: &Slice, rows: Vec<RowLogits<'_>>) -> bool {
        let mut groups = self.beams.iter_mut();
        let group = groups.find(|group| group.ids().contains(&slice.id));
        let (Some(group), Some(RowLogits::All(row))) = (group, rows.into_iter().next()) else {
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
