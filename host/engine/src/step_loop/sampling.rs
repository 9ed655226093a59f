//! Sampling after a forward pass: tokens are sampled, committed, and sent to the readers.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Instant;

use mortise_kernels::linear::RowLogits;
use mortise_kernels::pool::for_each_piece;

use super::{ForwardOutput, StepLoop, rows, scored_rows};
use crate::decision::RowDecision;
use crate::event::SequenceError;
use crate::load::LoadCounters;
use crate::scheduler::{Scheduler, SequenceId, Slice};
use crate::sequence::Sequence;

/// A sequence, its row of logits, and the decision once it is made.
type Sampling<'a> = (&'a mut Sequence, RowLogits<'a>, Option<RowDecision>);

impl StepLoop {
    /// Sample a token for each sequence whose logits and mask are ready, from new rows and from rows kept
    /// from earlier steps. Returns whether anything was decided.
    pub(super) fn sample(&mut self, output: ForwardOutput) -> bool {
        let mut decided = self.decide_held();
        for (slices, mut scores) in output.rows {
            let mut all = scores.rows_mut();
            let own = slices
                .iter()
                .map(|slice| all.by_ref().take(rows(slice)).collect());
            let mut own: Vec<Vec<RowLogits<'_>>> = own.collect();
            decided |= self.score_prompts(&slices, &mut own);
            let firsts = self.decide_together(&slices, &mut own);
            for ((slice, rows), first) in slices.iter().zip(own).zip(firsts) {
                decided |= self.sample_slice(slice, first, rows);
            }
        }
        for (id, error) in output.failed {
            decided = true;
            self.fail(id, error);
        }
        self.deliver();
        decided
    }

    /// Report the log-probabilities of prompts, and remove the rows that nothing is sampled from. Returns whether
    /// there were any.
    fn score_prompts(&mut self, slices: &[Slice], own: &mut [Vec<RowLogits<'_>>]) -> bool {
        let mut any = false;
        for (slice, rows) in slices.iter().zip(own).filter(|(slice, _)| slice.scored) {
            any = true;
            let scored: Vec<RowLogits<'_>> = rows.drain(..scored_rows(slice)).collect();
            let whole = scored.iter().filter_map(|row| match row {
                RowLogits::All(logits) => Some(&**logits),
                // Whole rows were asked for.
                RowLogits::Highest(_) => None,
            });
            let whole: Vec<&[f32]> = whole.collect();
            if self.score_prompt(slice, &whole) {
                rows.clear();
            }
        }
        any
    }

    /// Report the log-probabilities of a part of a prompt. Returns whether the sequence ends with it.
    pub(super) fn score_prompt(&mut self, slice: &Slice, rows: &[&[f32]]) -> bool {
        let tokens = self.scheduler.tokens(slice.id);
        let Some(sequence) = self.sequences.get_mut(&slice.id) else {
            return true;
        };
        sequence.score_prompt(tokens, slice.first, rows);
        if slice.last {
            sequence.end_with_prompt(self.scheduler.cached_tokens(slice.id));
        }
        sequence.has_ended()
    }

    /// Sample behind the last known token of each slice, for all sequences in parallel: a whole row takes
    /// long, and sequences do not depend on each other. Removes the rows that it uses from `own`.
    fn decide_together(
        &mut self,
        slices: &[Slice],
        own: &mut [Vec<RowLogits<'_>>],
    ) -> Vec<Option<RowDecision>> {
        let sequences = self.sequences.iter_mut();
        let mut sequences: BTreeMap<SequenceId, &mut Sequence> =
            sequences.map(|(id, sequence)| (*id, sequence)).collect();
        let choices = slices.iter().zip(own).map(|(slice, rows)| {
            let sequence = sequences.remove(&slice.id).filter(|_| !rows.is_empty())?;
            Some((sequence, rows.remove(0), None))
        });
        let mut choices: Vec<Option<Sampling<'_>>> = choices.collect();
        let decide = |choices: &mut [Option<Sampling<'_>>]| {
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

    /// Sample from kept rows whose masks are ready now. Returns whether anything was decided.
    pub(super) fn decide_held(&mut self) -> bool {
        let mut decided = false;
        for (id, sequence) in &mut self.sequences {
            if sequence.awaits_mask() && !sequence.is_paused() {
                let decision = sequence.decide_held();
                decided |= decision != RowDecision::Pending;
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

    /// Fail a sequence, or the beam search that it belongs to.
    pub(super) fn fail(&mut self, id: SequenceId, error: String) {
        self.shared.circuit.failed(Instant::now());
        let error = SequenceError::Inference(error);
        let mut groups = self.beams.iter_mut();
        if let Some(group) = groups.find(|group| group.ids().contains(&id)) {
            group.fail(&error, &mut self.scheduler);
        }
        self.decide(id, RowDecision::Fail(error));
    }

    /// Commit a decision about a sequence, if it is still there.
    pub(super) fn decide(&mut self, id: SequenceId, decision: RowDecision) {
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

    /// Sample behind a slice; `first` is the decision behind its last known token if it is made already.
    /// While a sampled token equals the draft token, the next row tells what follows.
    pub(super) fn sample_slice(
        &mut self,
        slice: &Slice,
        mut first: Option<RowDecision>,
        rows: Vec<RowLogits<'_>>,
    ) -> bool {
        let Some(sequence) = self.sequences.get_mut(&slice.id) else {
            return self.step_beam(slice, rows);
        };
        let mut decided = false;
        let mut accepted = 0;
        let mut rows = rows.into_iter();
        for index in 0.. {
            let next = || rows.next().map(|mut row| sequence.decide(&mut row));
            let Some(decision) = first.take().or_else(next) else {
                break;
            };
            decided |= decision != RowDecision::Pending;
            let scheduler = &mut self.scheduler;
            let RowDecision::Token(token) = &decision else {
                commit(
                    scheduler,
                    &self.shared.counters,
                    slice.id,
                    sequence,
                    decision,
                );
                break;
            };
            let drafted = slice.draft.get(index) == Some(&token.id);
            let added = commit(
                scheduler,
                &self.shared.counters,
                slice.id,
                sequence,
                decision,
            );
            if !added || !drafted || sequence.has_ended() {
                break;
            }
            accepted += 1;
            scheduler.confirm_draft(slice.id);
        }
        self.scheduler.resolve_draft(slice, accepted);
        decided
    }

    /// Give the row of a beam to its search, if the slice belongs to one.
    fn step_beam(&mut self, slice: &Slice, rows: Vec<RowLogits<'_>>) -> bool {
        let mut groups = self.beams.iter_mut();
        let group = groups.find(|group| group.ids().contains(&slice.id));
        let (Some(group), Some(RowLogits::All(row))) = (group, rows.into_iter().next()) else {
            return false;
        };
        let committed = group.take(slice.id, row, &mut self.scheduler);
        let counter = &self.shared.counters.decode_tokens;
        counter.fetch_add(committed as u64, Ordering::Relaxed);
        true
    }

    /// Send events to the readers, and drop the sequences that are over.
    pub(super) fn deliver(&mut self) {
        let before = self.sequences.len();
        let scheduler = &mut self.scheduler;
        let mut well = false;
        self.sequences.retain(|id, sequence| {
            let stays = deliver(scheduler, *id, sequence);
            well |= !stays && sequence.is_complete();
            stays
        });
        let mut over = before - self.sequences.len();
        let scheduler = &mut self.scheduler;
        self.beams.retain_mut(|group| {
            let lives = group.deliver(scheduler);
            over += if lives { 0 } else { group.results() };
            well |= !lives && group.is_complete();
            lives
        });
        if well {
            self.shared.circuit.succeeded();
        }
        if over > 0 {
            let sequences = &self.sequences;
            self.speculator.retain(|id| sequences.contains_key(&id));
        }
        let counter = &self.shared.counters.finished;
        counter.fetch_add(over as u64, Ordering::Relaxed);
    }
}

/// Commit a decision. Returns whether a token was added.
pub(super) fn commit(
    scheduler: &mut Scheduler,
    counters: &LoadCounters,
    id: SequenceId,
    sequence: &mut Sequence,
    decision: RowDecision,
) -> bool {
    let Some(token) = sequence.commit(decision, scheduler.cached_tokens(id)) else {
        return false;
    };
    scheduler.extend(id, token);
    counters.decode_tokens.fetch_add(1, Ordering::Relaxed);
    true
}

/// Send events to the reader, and tell the scheduler whether the stream is full. Returns whether the
/// sequence stays: an ended one does until its last event has found room.
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
