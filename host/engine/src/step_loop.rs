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
use crate::queue::Queue;
use crate::scheduler::{Arrival, Scheduler, SequenceId, Slice};
use crate::sequence::{Decision, Sequence, Submission, panic_message};

/// Tokens without a choice that one sequence commits before a step.
const JUMP_MAX: usize = 64;

/// What the thread shares with its handle.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) counters: Counters,
    pub(crate) queue: Queue,
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
    /// Most tokens to draft for a sequence in a step.
    pub(crate) draft_max: usize,
}

/// What a forward pass gave.
#[derive(Default)]
struct Scored {
    /// Logits, with the slices whose rows they are: each has a row for its last known token and one
    /// for each token of its draft.
    rows: Vec<(Vec<Slice>, Logits)>,
    /// Sequences that could not be computed even alone.
    failed: Vec<(SequenceId, SequenceError)>,
}

impl StepLoop {
    /// Work until the handle says stop. Whatever is unfinished then is dropped, which closes the
    /// streams.
    pub(crate) fn run(mut self) {
        while self.receive() {
            let jumped = self.jump();
            let plan = self.schedule();
            let idle = plan.is_empty();
            let scored = self.forward(plan);
            let sampled = self.sample(scored);
            if idle && !jumped && !sampled {
                self.rest();
            }
        }
    }

    /// Take in new sequences, forget those whose readers have gone, and see which streams have
    /// room again. Returns whether to go on.
    fn receive(&mut self) -> bool {
        while let Ok(submission) = self.submissions.try_recv() {
            self.take_in(submission);
        }
        self.deliver();
        self.publish();
        !self.shared.stopping.load(Ordering::Acquire)
    }

    fn take_in(&mut self, submission: Submission) {
        let request = &submission.request;
        let arrival = Arrival {
            id: self.next_id,
            tokens_max: submission.tokens_max,
            priority: request.priority,
            salt: request.salt.clone(),
            share: request.share.clone(),
            // What follows a guess is constrained by the guess: its mask would come too late.
            draft_max: match request.constraint {
                None => self.draft_max,
                Some(_) => 0,
            },
            prompt: Vec::new(),
        };
        let (sequence, prompt) = Sequence::new(submission, self.model.vocabulary());
        self.scheduler.enqueue(Arrival { prompt, ..arrival });
        self.sequences.insert(self.next_id, sequence);
        self.next_id += 1;
    }

    /// Plan a step. Whoever has a turn now leaves the queue before anybody hears of it.
    fn schedule(&mut self) -> Vec<Slice> {
        let plan = self.scheduler.schedule();
        for (id, sequence) in &mut self.sequences {
            if !self.scheduler.is_queued(*id) {
                sequence.leave_queue();
            }
        }
        plan
    }

    /// Commit tokens about which there is no choice: they are computed together, in one slice.
    /// Returns whether anything was decided.
    fn jump(&mut self) -> bool {
        let mut jumped = false;
        for (id, sequence) in &mut self.sequences {
            if sequence.is_paused() || !self.scheduler.decodes(*id) {
                continue;
            }
            for _ in 0..JUMP_MAX {
                let decision = sequence.decide_unscored();
                if decision == Decision::NotYet {
                    break;
                }
                jumped = true;
                if commit(
                    &mut self.scheduler,
                    &self.shared.counters,
                    *id,
                    sequence,
                    decision,
                ) {
                    let counter = &self.shared.counters.forced_tokens;
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        if jumped {
            self.deliver();
        }
        jumped
    }

    /// Compute the planned tokens. When a batch fails, each sequence is tried alone, so that only
    /// the culprit fails.
    fn forward(&mut self, plan: Vec<Slice>) -> Scored {
        let mut scored = Scored::default();
        if plan.is_empty() {
            return scored;
        }
        let error = match self.compute(&plan) {
            Ok(logits) => {
                scored.rows.push((plan, logits));
                return scored;
            }
            Err(error) => error,
        };
        tracing::error!(%error, sequences = plan.len(), "forward pass failed");
        let single = plan.len() == 1;
        for slice in plan {
            let alone = std::slice::from_ref(&slice);
            let result = if single {
                Err(error.clone())
            } else {
                self.compute(alone)
            };
            match result {
                Ok(logits) => scored.rows.push((vec![slice], logits)),
                Err(error) => {
                    let error = SequenceError::Inference(error);
                    scored.failed.push((slice.id, error));
                }
            }
        }
        scored
    }

    /// One forward pass over `slices`, fenced.
    fn compute(&mut self, slices: &[Slice]) -> Result<Logits, String> {
        let mut input = ModelInput::new();
        for slice in slices {
            let known = self.scheduler.tokens(slice.id);
            let known = known.get(slice.first..slice.first + slice.count);
            let mut tokens = known.unwrap_or(&[]).to_vec();
            tokens.extend(&slice.draft);
            input.push(SequenceInput {
                tokens: &tokens,
                first_position: slice.first,
                block_table: self.scheduler.blocks(slice.id),
                logits: match (slice.last, slice.draft.is_empty()) {
                    (false, _) => LogitRows::None,
                    (true, true) => LogitRows::Last,
                    (true, false) => LogitRows::All,
                },
            });
        }
        let model = &mut self.model;
        let logits = catch_unwind(AssertUnwindSafe(|| model.forward(&input)))
            .map_err(|panic| format!("the forward pass panicked: {}", panic_message(&*panic)))?
            .map_err(|error| error.to_string())?;
        let wanted: usize = slices.iter().map(rows).sum();
        if logits.rows().len() != wanted {
            let rows = logits.rows().len();
            return Err(format!("the model gave {rows} rows of logits for {wanted}"));
        }
        for slice in slices {
            self.scheduler.computed(slice);
            self.count_prefill(slice);
        }
        self.shared.counters.steps.fetch_add(1, Ordering::Relaxed);
        Ok(logits)
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
    /// from an earlier step. Returns whether anything was decided.
    fn sample(&mut self, scored: Scored) -> bool {
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
        for (slices, mut logits) in scored.rows {
            let mut all = logits.rows_mut();
            for slice in &slices {
                let own: Vec<&mut [f32]> = all.by_ref().take(rows(slice)).collect();
                decided |= self.sample_slice(slice, own);
            }
        }
        for (id, error) in scored.failed {
            decided = true;
            if let Some(sequence) = self.sequences.get_mut(&id) {
                let failed = Decision::Fail(error);
                commit(
                    &mut self.scheduler,
                    &self.shared.counters,
                    id,
                    sequence,
                    failed,
                );
            }
        }
        self.deliver();
        decided
    }

    /// Choose what follows a slice. While that is what its draft guessed, the next row tells what
    /// follows the guess.
    fn sample_slice(&mut self, slice: &Slice, rows: Vec<&mut [f32]>) -> bool {
        let Some(sequence) = self.sequences.get_mut(&slice.id) else {
            return false;
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

    /// Hand events to the readers, and forget the sequences that are over.
    fn deliver(&mut self) {
        let before = self.sequences.len();
        let scheduler = &mut self.scheduler;
        self.sequences
            .retain(|id, sequence| deliver(scheduler, *id, sequence));
        let over = before - self.sequences.len();
        let counter = &self.shared.counters.finished;
        counter.fetch_add(over as u64, Ordering::Relaxed);
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
        self.shared.counters.publish(&self.scheduler);
    }
}

/// Rows of logits that a slice has.
fn rows(slice: &Slice) -> usize {
    usize::from(slice.last) + slice.draft.len()
}

/// Take a decision into account. Returns whether a token was added.
fn commit(
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
