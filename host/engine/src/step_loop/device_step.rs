//! Steps of a model whose logits stay in device memory.
//!
//! Tokens are sampled on the device, and only the sampled tokens come back. Where every sequence of a
//! step can be enqueued ahead, the next step is planned and enqueued with *pending* tokens (overlap
//! scheduling): the device reads them from where it sampled them, and the host commits one step while
//! the device computes the next. If a sequence finished or was cancelled while its next step was in
//! flight, that step's result is discarded; the next owner of its blocks writes to them later.
//!
//! Other steps are waited for: prefill that continues, masks, penalties, speculation and beam search
//! need the last token first. Whole rows are copied to the host only for draft tokens, for beams and
//! for masks that are late.

use mortise_kernels::linear::RowLogits;
use mortise_model::{InputError, SampleParams, SampledToken, TokenSource};

use super::{StepLoop, catch_panic, rows, scored_rows};
use crate::decision::RowDecision;
use crate::forward::{DeviceLogits, ForwardPass};
use crate::scheduler::{PENDING_TOKEN, SequenceId, Slice};

/// A slice with the number of its first row of logits.
type PlacedSlice = (usize, Slice);

impl StepLoop {
    /// Enqueue a step, commit the previous one, and wait for the new one if its tokens are needed to
    /// plan on. Returns whether anything was decided.
    pub(super) fn device_step(&mut self, plan: Vec<Slice>) -> bool {
        let before = std::mem::take(&mut self.in_flight);
        let (sampled, params) = self.params_ahead(&plan, &before).unzip();
        let queued = self.enqueue(&plan, &before, params);
        let mut decided = self.decide_held();
        decided |= !before.is_empty();
        self.commit_previous(before);
        let slices = self.living(plan);
        decided |= match (queued, sampled) {
            (Ok(()), Some(sampled)) => {
                self.keep_in_flight(&slices, sampled);
                false
            }
            (Ok(()), None) => self.finish(slices),
            (Err(error), _) => self.compute_alone(slices, error),
        };
        self.deliver();
        decided
    }

    /// Sampling parameters behind each slice, if they can be given before the tokens of the previous
    /// step are known and sampling ahead is worth it.
    fn params_ahead(
        &self,
        plan: &[Slice],
        before: &[SequenceId],
    ) -> Option<(Vec<SequenceId>, Vec<SampleParams>)> {
        // Rows of a scored prompt are copied before anything else is enqueued.
        if plan.iter().any(|slice| slice.scored) {
            return None;
        }
        let vocabulary = self.model.vocabulary();
        let (mut sampled, mut params) = (Vec::new(), Vec::new());
        for slice in plan.iter().filter(|slice| slice.last) {
            let sequence = self.sequences.get(&slice.id)?;
            // Draft tokens continue known tokens.
            if self.draft_max > 0 || !sequence.can_enqueue_ahead() {
                return None;
            }
            let ahead = usize::from(before.contains(&slice.id));
            params.push(sequence.sample_params_ahead(params.len(), ahead, vocabulary)?);
            sampled.push(slice.id);
        }
        (!sampled.is_empty()).then_some((sampled, params))
    }

    /// Enqueue a plan and, if its parameters are given, the sampling of its rows.
    fn enqueue(
        &mut self,
        plan: &[Slice],
        before: &[SequenceId],
        params: Option<Vec<SampleParams>>,
    ) -> Result<(), String> {
        if plan.is_empty() {
            return Ok(());
        }
        let input = self.input(plan);
        let sources = self.sources(plan, before);
        on_device(&mut *self.model, |device| {
            device.queue(&input, &sources)?;
            params.map_or(Ok(()), |params| device.sample(params))
        })
    }

    /// The pending tokens of a plan, with the row that each was sampled from in the previous step.
    fn sources(&self, plan: &[Slice], before: &[SequenceId]) -> Vec<TokenSource> {
        let mut sources = Vec::new();
        let mut row = 0;
        for slice in plan {
            row += slice.count + slice.draft.len();
            let pending = self.scheduler.tokens(slice.id).last() == Some(&PENDING_TOKEN);
            if slice.last
                && pending
                && let Some(choice) = before.iter().position(|id| *id == slice.id)
            {
                sources.push(TokenSource {
                    row: row - 1,
                    sample: choice,
                });
            }
        }
        sources
    }

    /// Commit the tokens that were sampled in the previous step.
    fn commit_previous(&mut self, before: Vec<SequenceId>) {
        if before.is_empty() {
            return;
        }
        let sampled = on_device(&mut *self.model, |device| device.sampled());
        self.commit_sampled(before, sampled);
        self.deliver();
    }

    fn commit_sampled(&mut self, ids: Vec<SequenceId>, sampled: Result<Vec<SampledToken>, String>) {
        let sampled = sampled.and_then(|sampled| match sampled.len() == ids.len() {
            true => Ok(sampled),
            false => Err(format!(
                "the model sampled {} tokens for {} sequences",
                sampled.len(),
                ids.len()
            )),
        });
        match sampled {
            Ok(sampled) => {
                for (id, sampled) in ids.into_iter().zip(sampled) {
                    let sequence = self.sequences.get_mut(&id);
                    if let Some(sequence) = sequence.filter(|sequence| !sequence.has_ended()) {
                        let decision = sequence.accept_sampled(sampled);
                        self.decide(id, decision);
                    }
                }
            }
            Err(error) => {
                for id in ids {
                    self.fail(id, error.clone());
                }
            }
        }
    }

    /// The slices of a plan whose sequences are still there.
    fn living(&self, plan: Vec<Slice>) -> Vec<PlacedSlice> {
        let mut row = 0;
        let placed = plan.into_iter().map(|slice| {
            let first = row;
            row += rows(&slice);
            (first, slice)
        });
        let lives = |(_, slice): &PlacedSlice| !self.scheduler.tokens(slice.id).is_empty();
        placed.filter(lives).collect()
    }

    /// Leave a step in flight: each sampled sequence is extended by a pending token.
    fn keep_in_flight(&mut self, slices: &[PlacedSlice], sampled: Vec<SequenceId>) {
        self.count(slices);
        for (_, slice) in slices.iter().filter(|(_, slice)| slice.last) {
            let known = slice.first + slice.count;
            let sequence = self.sequences.get(&slice.id);
            if sequence.is_some_and(|sequence| sequence.may_continue(known)) {
                self.scheduler.extend(slice.id, PENDING_TOKEN);
            }
        }
        self.in_flight = sampled;
    }

    fn count(&mut self, slices: &[PlacedSlice]) {
        let slices: Vec<Slice> = slices.iter().map(|(_, slice)| slice.clone()).collect();
        if !slices.is_empty() {
            self.record_computed(&slices);
        }
    }

    /// Wait for a step that was enqueued, and sample behind it.
    fn finish(&mut self, slices: Vec<PlacedSlice>) -> bool {
        if slices.is_empty() {
            return false;
        }
        match on_device(&mut *self.model, |device| device.wait()) {
            Ok(()) => {
                self.count(&slices);
                self.sample_on_device(&slices)
            }
            Err(error) => self.compute_alone(slices, error),
        }
    }

    /// Compute each sequence of a failed batch alone, so that only the one at fault fails.
    fn compute_alone(&mut self, slices: Vec<PlacedSlice>, error: String) -> bool {
        tracing::error!(%error, sequences = slices.len(), "forward pass failed");
        let single = slices.len() == 1;
        for (_, slice) in slices {
            let alone = [slice];
            let computed = match single {
                true => Err(error.clone()),
                false => self
                    .enqueue(&alone, &[], None)
                    .and_then(|()| on_device(&mut *self.model, |device| device.wait())),
            };
            let [slice] = alone;
            match computed {
                Ok(()) => {
                    let placed = [(0, slice)];
                    self.count(&placed);
                    self.sample_on_device(&placed);
                }
                Err(error) => self.fail(slice.id, error),
            }
        }
        true
    }

    /// Sample behind computed slices, on the device where possible. Returns whether anything was decided.
    fn sample_on_device(&mut self, slices: &[PlacedSlice]) -> bool {
        let vocabulary = self.model.vocabulary();
        let (mut ids, mut params) = (Vec::new(), Vec::new());
        let mut decided = self.score_copied(slices);
        for (first, slice) in slices.iter().filter(|(_, slice)| slice.last) {
            let first = first + scored_rows(slice);
            let sequence = self.sequences.get_mut(&slice.id);
            if sequence.as_ref().is_some_and(|one| one.has_ended()) {
                continue;
            }
            let Some(sequence) = sequence.filter(|_| slice.draft.is_empty()) else {
                decided |= self.sample_copied(first, slice);
                continue;
            };
            match sequence.sample_params(first, vocabulary) {
                Ok(row) => {
                    ids.push(slice.id);
                    params.push(row);
                }
                Err(RowDecision::Pending) => decided |= self.keep_row(first, slice.id),
                Err(decision) => {
                    decided = true;
                    self.decide(slice.id, decision);
                }
            }
        }
        if ids.is_empty() {
            return decided;
        }
        let sampled = on_device(&mut *self.model, |device| {
            device.sample(params)?;
            device.sampled()
        });
        self.commit_sampled(ids, sampled);
        true
    }

    /// Report the log-probabilities of prompts, from rows that are copied to the host one after another. Returns
    /// whether there were any.
    fn score_copied(&mut self, slices: &[PlacedSlice]) -> bool {
        let mut any = false;
        for (first, slice) in slices.iter().filter(|(_, slice)| slice.scored) {
            any = true;
            let rows = *first..first + scored_rows(slice);
            let copied: Result<Vec<Vec<f32>>, _> = rows
                .map(|row| on_device(&mut *self.model, |device| device.logit_row(row)))
                .collect();
            match copied {
                Ok(copied) => {
                    let rows: Vec<&[f32]> = copied.iter().map(Vec::as_slice).collect();
                    self.score_prompt(slice, &rows);
                }
                Err(error) => self.fail(slice.id, error),
            }
        }
        any
    }

    /// Sample from rows that are copied to the host.
    fn sample_copied(&mut self, first: usize, slice: &Slice) -> bool {
        let copied: Result<Vec<_>, _> = (first..first + rows(slice))
            .map(|row| on_device(&mut *self.model, |device| device.logit_row(row)))
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

    /// Keep a row until its mask is ready. Returns whether the sequence failed for want of the row.
    fn keep_row(&mut self, row: usize, id: SequenceId) -> bool {
        let copied = on_device(&mut *self.model, |device| device.logit_row(row));
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

/// Call a model whose logits stay on the device. Panics and errors become messages.
fn on_device<T>(
    model: &mut dyn ForwardPass,
    call: impl FnOnce(&mut dyn DeviceLogits) -> Result<T, InputError>,
) -> Result<T, String> {
    match model.device() {
        Some(device) => catch_panic(|| call(device)),
        None => Err("the model keeps no logits on a device".to_owned()),
    }
}
