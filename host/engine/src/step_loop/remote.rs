//! Steps of a model whose logits stay where they were computed.
//!
//! Tokens are chosen there, and of a step only those come back. Where every sequence of a step can be
//! asked ahead, the next step is planned and queued while its tokens are *undecided*: the model takes
//! them from where it chose them, and the host commits one step while the device computes the next. A
//! sequence that turns out to have ended, or whose reader has gone, was computed once in vain; nobody
//! hears of that, and whoever gets its blocks writes to them later.
//!
//! Other steps are waited for: those of prompts that go on, of masks, which are made meanwhile, of
//! penalties for what was said last, of guesses and of beams. Only rows of guesses, of beams and of late
//! masks are copied to the host.

use mortise_kernels::linear::RowLogits;
use mortise_model::{Choice, Chosen, InputError, TokenSource};

use super::{StepLoop, fenced, rows};
use crate::forward::{ForwardPass, RemoteLogits};
use crate::scheduler::{SequenceId, Slice, UNDECIDED};
use crate::sequence::Decision;

/// A slice with its first row of logits.
type Placed = (usize, Slice);

impl StepLoop {
    /// Queue a step, commit the one before, and wait for this one if it must be. Returns whether
    /// anything was decided.
    pub(super) fn step_remotely(&mut self, plan: Vec<Slice>) -> bool {
        let before = std::mem::take(&mut self.in_flight);
        let ahead = self.ask_ahead(&plan, &before);
        let (asked, choices) = match ahead {
            Some((asked, choices)) => (Some(asked), Some(choices)),
            None => (None, None),
        };
        let queued = self.queue(&plan, &before, choices);
        let mut decided = self.decide_held();
        decided |= !before.is_empty();
        self.settle(before);
        let slices = self.living(plan);
        decided |= match (queued, asked) {
            (Ok(()), Some(asked)) => {
                self.go_ahead(&slices, asked);
                false
            }
            (Ok(()), None) => self.finish(slices),
            (Err(error), _) => self.compute_alone(slices, error),
        };
        self.deliver();
        decided
    }

    /// How tokens are to be chosen after each slice, if that can be said before those of the step
    /// `before` are known and is worth it.
    fn ask_ahead(
        &self,
        plan: &[Slice],
        before: &[SequenceId],
    ) -> Option<(Vec<SequenceId>, Vec<Choice>)> {
        let vocabulary = self.model.vocabulary();
        let (mut asked, mut choices) = (Vec::new(), Vec::new());
        for slice in plan.iter().filter(|slice| slice.last) {
            let sequence = self.sequences.get(&slice.id)?;
            // Guesses are made from tokens that are known.
            if self.draft_max > 0 || !sequence.can_ask_ahead() {
                return None;
            }
            let ahead = usize::from(before.contains(&slice.id));
            choices.push(sequence.ask_ahead(choices.len(), ahead, vocabulary)?);
            asked.push(slice.id);
        }
        (!asked.is_empty()).then_some((asked, choices))
    }

    /// Queue a plan and, if they are known, what is chosen from it.
    fn queue(
        &mut self,
        plan: &[Slice],
        before: &[SequenceId],
        choices: Option<Vec<Choice>>,
    ) -> Result<(), String> {
        if plan.is_empty() {
            return Ok(());
        }
        let input = self.input(plan);
        let sources = self.sources(plan, before);
        remotely(&mut *self.model, |remote| {
            remote.queue(&input, &sources)?;
            choices.map_or(Ok(()), |choices| remote.choose(choices))
        })
    }

    /// Which tokens of a plan are undecided, and by which choice of the step before.
    fn sources(&self, plan: &[Slice], before: &[SequenceId]) -> Vec<TokenSource> {
        let mut sources = Vec::new();
        let mut row = 0;
        for slice in plan {
            row += slice.count + slice.draft.len();
            let undecided = self.scheduler.tokens(slice.id).last() == Some(&UNDECIDED);
            if slice.last
                && undecided
                && let Some(choice) = before.iter().position(|id| *id == slice.id)
            {
                sources.push(TokenSource {
                    row: row - 1,
                    choice,
                });
            }
        }
        sources
    }

    /// Commit what was chosen in the step before.
    fn settle(&mut self, before: Vec<SequenceId>) {
        if before.is_empty() {
            return;
        }
        let chosen = remotely(&mut *self.model, |remote| remote.chosen());
        self.take_chosen(before, chosen);
        self.deliver();
    }

    fn take_chosen(&mut self, asked: Vec<SequenceId>, chosen: Result<Vec<Chosen>, String>) {
        let chosen = chosen.and_then(|chosen| match chosen.len() == asked.len() {
            true => Ok(chosen),
            false => Err(format!(
                "the model chose {} tokens for {} sequences",
                chosen.len(),
                asked.len()
            )),
        });
        match chosen {
            Ok(chosen) => {
                for (id, chosen) in asked.into_iter().zip(chosen) {
                    let sequence = self.sequences.get_mut(&id);
                    if let Some(sequence) = sequence.filter(|sequence| !sequence.has_ended()) {
                        let decision = sequence.settle(chosen);
                        self.decide(id, decision);
                    }
                }
            }
            Err(error) => {
                for id in asked {
                    self.fail(id, error.clone());
                }
            }
        }
    }

    /// The slices of a plan whose sequences are still there.
    fn living(&self, plan: Vec<Slice>) -> Vec<Placed> {
        let mut row = 0;
        let placed = plan.into_iter().map(|slice| {
            let first = row;
            row += rows(&slice);
            (first, slice)
        });
        let lives = |(_, slice): &Placed| !self.scheduler.tokens(slice.id).is_empty();
        placed.filter(lives).collect()
    }

    /// Plan on as if the tokens that were asked for were there.
    fn go_ahead(&mut self, slices: &[Placed], asked: Vec<SequenceId>) {
        self.count(slices);
        for (_, slice) in slices.iter().filter(|(_, slice)| slice.last) {
            let known = slice.first + slice.count;
            let sequence = self.sequences.get(&slice.id);
            if sequence.is_some_and(|sequence| sequence.may_go_on(known)) {
                self.scheduler.extend(slice.id, UNDECIDED);
            }
        }
        self.in_flight = asked;
    }

    fn count(&mut self, slices: &[Placed]) {
        let slices: Vec<Slice> = slices.iter().map(|(_, slice)| slice.clone()).collect();
        if !slices.is_empty() {
            self.take_as_computed(&slices);
        }
    }

    /// Wait for a step that was queued, and decide what follows.
    fn finish(&mut self, slices: Vec<Placed>) -> bool {
        if slices.is_empty() {
            return false;
        }
        match remotely(&mut *self.model, |remote| remote.wait()) {
            Ok(()) => {
                self.count(&slices);
                self.choose(&slices)
            }
            Err(error) => self.compute_alone(slices, error),
        }
    }

    /// A batch failed: try each sequence alone, so that only the culprit fails.
    fn compute_alone(&mut self, slices: Vec<Placed>, error: String) -> bool {
        tracing::error!(%error, sequences = slices.len(), "forward pass failed");
        let single = slices.len() == 1;
        for (_, slice) in slices {
            let alone = [slice];
            let computed = match single {
                true => Err(error.clone()),
                false => self
                    .queue(&alone, &[], None)
                    .and_then(|()| remotely(&mut *self.model, |remote| remote.wait())),
            };
            let [slice] = alone;
            match computed {
                Ok(()) => {
                    let placed = [(0, slice)];
                    self.count(&placed);
                    self.choose(&placed);
                }
                Err(error) => self.fail(slice.id, error),
            }
        }
        true
    }

    /// Choose what follows slices that are computed, most of it where the logits lie. Returns whether
    /// anything was decided.
    fn choose(&mut self, slices: &[Placed]) -> bool {
        let vocabulary = self.model.vocabulary();
        let (mut asked, mut choices) = (Vec::new(), Vec::new());
        let mut decided = false;
        for (first, slice) in slices.iter().filter(|(_, slice)| slice.last) {
            let sequence = self.sequences.get_mut(&slice.id);
            let Some(sequence) = sequence.filter(|_| slice.draft.is_empty()) else {
                decided |= self.choose_here(*first, slice);
                continue;
            };
            match sequence.ask(*first, vocabulary) {
                Ok(choice) => {
                    asked.push(slice.id);
                    choices.push(choice);
                }
                Err(Decision::NotYet) => decided |= self.keep_row(*first, slice.id),
                Err(decision) => {
                    decided = true;
                    self.decide(slice.id, decision);
                }
            }
        }
        if asked.is_empty() {
            return decided;
        }
        let chosen = remotely(&mut *self.model, |remote| {
            remote.choose(choices)?;
            remote.chosen()
        });
        self.take_chosen(asked, chosen);
        true
    }

    /// Choose from copied rows.
    fn choose_here(&mut self, first: usize, slice: &Slice) -> bool {
        let copied: Result<Vec<_>, _> = (first..first + rows(slice))
            .map(|row| remotely(&mut *self.model, |remote| remote.logit_row(row)))
            .collect();
        match copied {
            Ok(mut copied) => {
                let rows = copied.iter_mut().map(|row| RowLogits::All(row)).collect();
                self.sample_slice(slice, None, rows)
            }
            Err(error) => {
                self.fail(slice.id, error);
                true
            }
        }
    }

    /// Keep a row until its mask is ready. Returns whether that was decided by failing.
    fn keep_row(&mut self, row: usize, id: SequenceId) -> bool {
        let copied = remotely(&mut *self.model, |remote| remote.logit_row(row));
        match (copied, self.sequences.get_mut(&id)) {
            (Ok(logits), Some(sequence)) => {
                sequence.hold(logits);
                false
            }
            (Ok(_), None) => false,
            (Err(error), _) => {
                self.fail(id, error);
                true
            }
        }
    }
}

/// What a model with remote logits does, fenced.
fn remotely<T>(
    model: &mut dyn ForwardPass,
    call: impl FnOnce(&mut dyn RemoteLogits) -> Result<T, InputError>,
) -> Result<T, String> {
    match model.remote() {
        Some(remote) => fenced(|| call(remote)),
        None => Err("the model keeps no logits".to_owned()),
    }
}
