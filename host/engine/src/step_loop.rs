//! The engine's thread: schedule, forward, sample, commit.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use mortise_model::{LogitRows, Logits, ModelInput, SequenceInput};

use crate::event::SequenceError;
use crate::forward::ForwardPass;
use crate::load::Counters;
use crate::scheduler::{Scheduler, SequenceId, Slice};
use crate::sequence::{Decision, Sequence, Submission, panic_message};

/// What the thread shares with its handle.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) counters: Counters,
    pub(crate) stopping: AtomicBool,
}

pub(crate) struct StepLoop {
    pub(crate) model: Box<dyn ForwardPass>,
    pub(crate) scheduler: Scheduler,
    pub(crate) submissions: mpsc::Receiver<Submission>,
    pub(crate) shared: Arc<Shared>,
    /// In order of arrival.
    pub(crate) sequences: BTreeMap<SequenceId, Sequence>,
    pub(crate) next_id: SequenceId,
    /// Sequences of which the queue's counter knows that they wait in the scheduler.
    pub(crate) counted_waiting: usize,
}

/// What a forward pass gave.
#[derive(Default)]
struct Scored {
    /// Logits, with the sequences whose rows they are.
    rows: Vec<(Vec<SequenceId>, Logits)>,
    /// Sequences that could not be computed even alone.
    failed: Vec<(SequenceId, SequenceError)>,
}

impl StepLoop {
    /// Work until the handle says stop. Whatever is unfinished then is dropped, which closes the
    /// streams.
    pub(crate) fn run(mut self) {
        while self.receive() {
            let plan = self.scheduler.schedule();
            let scored = self.forward(&plan);
            let decisions = self.sample(scored);
            let idle = plan.is_empty() && decisions.is_empty();
            self.commit(decisions);
            if idle {
                self.rest();
            }
        }
    }

    /// Take in new sequences, forget those whose readers have gone, and see which streams have
    /// room again. Returns whether to go on.
    fn receive(&mut self) -> bool {
        while let Ok(submission) = self.submissions.try_recv() {
            let sequence = Sequence::new(submission);
            self.scheduler.enqueue(
                self.next_id,
                sequence.prompt(),
                sequence.tokens_max(),
                sequence.priority(),
            );
            self.sequences.insert(self.next_id, sequence);
            self.next_id += 1;
            self.counted_waiting += 1;
        }
        let scheduler = &mut self.scheduler;
        self.sequences
            .retain(|id, sequence| deliver(scheduler, *id, sequence));
        self.publish();
        !self.shared.stopping.load(Ordering::Acquire)
    }

    /// Compute the planned tokens. When a batch fails, each sequence is tried alone, so that only
    /// the culprit fails.
    fn forward(&mut self, plan: &[Slice]) -> Scored {
        let mut scored = Scored::default();
        if plan.is_empty() {
            return scored;
        }
        match self.compute(plan) {
            Ok(rows) => scored.rows.push(rows),
            Err(error) => {
                tracing::error!(%error, sequences = plan.len(), "forward pass failed");
                for slice in plan {
                    let alone = std::slice::from_ref(slice);
                    let result = if plan.len() > 1 {
                        self.compute(alone)
                    } else {
                        Err(error.clone())
                    };
                    match result {
                        Ok(rows) => scored.rows.push(rows),
                        Err(error) => {
                            scored
                                .failed
                                .push((slice.id, SequenceError::Inference(error)));
                        }
                    }
                }
            }
        }
        scored
    }

    /// One forward pass over `slices`, fenced.
    fn compute(&mut self, slices: &[Slice]) -> Result<(Vec<SequenceId>, Logits), String> {
        let mut input = ModelInput::new();
        for slice in slices {
            let tokens = self
                .sequences
                .get(&slice.id)
                .map_or(&[][..], Sequence::tokens);
            input.push(SequenceInput {
                tokens: tokens
                    .get(slice.first..slice.first + slice.count)
                    .unwrap_or(&[]),
                first_position: slice.first,
                block_table: self.scheduler.blocks(slice.id),
                logits: if slice.last {
                    LogitRows::Last
                } else {
                    LogitRows::None
                },
            });
        }
        let model = &mut self.model;
        let logits = catch_unwind(AssertUnwindSafe(|| model.forward(&input)))
            .map_err(|panic| format!("the forward pass panicked: {}", panic_message(&*panic)))?
            .map_err(|error| error.to_string())?;
        let sampled: Vec<SequenceId> = slices
            .iter()
            .filter(|slice| slice.last)
            .map(|slice| slice.id)
            .collect();
        if logits.rows().len() != sampled.len() {
            let rows = logits.rows().len();
            return Err(format!(
                "the model gave {rows} rows of logits for {}",
                sampled.len()
            ));
        }
        for slice in slices {
            self.scheduler.computed(slice);
            self.count_prefill(slice);
        }
        self.shared.counters.steps.fetch_add(1, Ordering::Relaxed);
        Ok((sampled, logits))
    }

    fn count_prefill(&self, slice: &Slice) {
        let prompt = self.sequences.get(&slice.id).map_or(0, Sequence::prompt);
        let of_prompt = prompt.saturating_sub(slice.first).min(slice.count);
        self.shared
            .counters
            .prefill_tokens
            .fetch_add(of_prompt as u64, Ordering::Relaxed);
    }

    /// Choose a token for each sequence whose logits and mask are there, the logits new or kept
    /// from an earlier step.
    fn sample(&mut self, scored: Scored) -> Vec<(SequenceId, Decision)> {
        let mut decisions: Vec<(SequenceId, Decision)> = Vec::new();
        for (id, sequence) in &mut self.sequences {
            if sequence.holds_logits() && !sequence.is_paused() {
                decisions.push((*id, sequence.decide_held()));
            }
        }
        for (ids, mut logits) in scored.rows {
            for (id, row) in ids.into_iter().zip(logits.rows_mut()) {
                if let Some(sequence) = self.sequences.get_mut(&id) {
                    decisions.push((id, sequence.decide(row)));
                }
            }
        }
        decisions.retain(|(_, decision)| *decision != Decision::NotYet);
        let failed = scored.failed.into_iter();
        decisions.extend(failed.map(|(id, error)| (id, Decision::Fail(error))));
        decisions
    }

    fn commit(&mut self, decisions: Vec<(SequenceId, Decision)>) {
        for (id, decision) in decisions {
            let Some(sequence) = self.sequences.get_mut(&id) else {
                continue;
            };
            if sequence.commit(decision) {
                self.scheduler.extend(id);
                self.shared
                    .counters
                    .decode_tokens
                    .fetch_add(1, Ordering::Relaxed);
            }
            if !deliver(&mut self.scheduler, id, sequence) {
                self.sequences.remove(&id);
            }
        }
    }

    /// Nothing could be computed and nothing sampled: wait for a mask if one is being made, else
    /// sleep until somebody rings.
    fn rest(&mut self) {
        let waiting = self
            .sequences
            .values_mut()
            .find(|sequence| sequence.holds_logits() && !sequence.is_paused());
        match waiting {
            Some(sequence) => sequence.wait(),
            None => {
                self.publish();
                std::thread::park();
            }
        }
    }

    fn publish(&mut self) {
        let counters = &self.shared.counters;
        let waiting = self.scheduler.waiting();
        counters.leave_queue(self.counted_waiting.saturating_sub(waiting));
        self.counted_waiting = waiting;
        counters
            .running
            .store(self.scheduler.running(), Ordering::Relaxed);
        let pool = self.scheduler.pool();
        counters
            .kv_blocks_used
            .store(pool.used(), Ordering::Relaxed);
        counters
            .kv_blocks_total
            .store(pool.total(), Ordering::Relaxed);
    }
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
