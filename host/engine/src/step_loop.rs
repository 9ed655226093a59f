//! The engine's thread: schedule, forward, sample, commit.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use mortise_kernels::linear::{Scores, WantedLogits};
use mortise_model::{InputError, LogitRows, ModelInput, SequenceInput};

use crate::beam_group::{BeamGroup, BeamSubmission};
use crate::draft_model::Wanted;
use crate::drafter::Drafter;
use crate::forward::ForwardPass;
use crate::load::Counters;
use crate::prefill_chunk::PrefillChunk;
use crate::queue::Queue;
use crate::scheduler::{Arrival, Scheduler, SequenceId, Slice, UNDECIDED};
use crate::sequence::{Decision, Sequence, Submission, panic_message};

mod remote;
mod sampling;

use self::sampling::commit;

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
    pub(crate) prefill_chunk: PrefillChunk,
    pub(crate) submissions: mpsc::Receiver<Submitted>,
    pub(crate) shared: Arc<Shared>,
    /// In order of arrival.
    pub(crate) sequences: BTreeMap<SequenceId, Sequence>,
    pub(crate) beams: Vec<BeamGroup>,
    pub(crate) next_id: SequenceId,
    /// Most tokens to draft for a sequence in a step.
    pub(crate) draft_max: usize,
    pub(crate) drafter: Drafter,
    /// Sequences whose next tokens are chosen where the logits lie, by the number of the choice, and
    /// not known yet.
    pub(crate) in_flight: Vec<SequenceId>,
}

/// What comes from the handle.
pub(crate) enum Submitted {
    Sequence(Submission),
    Beams(BeamSubmission),
}

/// What a forward pass gave.
#[derive(Default)]
struct Scored {
    /// What was found of rows of logits, with the slices whose rows they are: each has a row for its last
    /// known token and one for each token of its draft.
    rows: Vec<(Vec<Slice>, Scores)>,
    /// Sequences that could not be computed even alone, and why.
    failed: Vec<(SequenceId, String)>,
}

impl StepLoop {
    /// Work until the handle says stop. Whatever is unfinished then is dropped, which closes the
    /// streams.
    pub(crate) fn run(mut self) {
        while self.receive() {
            let jumped = self.jump();
            let begun = Instant::now();
            let mut plan = self.schedule();
            self.draft(&mut plan);
            let idle = plan.is_empty();
            // Whoever decodes computes one token; a step of such alone says nothing about prompts.
            let prefills = plan.iter().any(|slice| slice.count > 1);
            let tokens = plan.iter().map(|slice| slice.count).sum();
            let sampled = if self.model.remote().is_some() {
                self.step_remotely(plan)
            } else {
                let scored = self.forward(plan);
                self.sample(scored)
            };
            if prefills {
                self.prefill_chunk.measured(tokens, begun.elapsed());
            } else if !idle {
                self.prefill_chunk.decoded(begun.elapsed());
            }
            if idle && !jumped && !sampled {
                self.rest();
            }
        }
    }

    /// Take in new sequences, forget those whose readers have gone, and see which streams have
    /// room again. Returns whether to go on.
    fn receive(&mut self) -> bool {
        while let Ok(submission) = self.submissions.try_recv() {
            match submission {
                Submitted::Sequence(submission) => self.take_in(submission),
                Submitted::Beams(submission) => self.take_in_beams(submission),
            }
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
            draft_max: self.draft_max,
            prompt: Vec::new(),
        };
        let (sequence, prompt) = Sequence::new(submission, self.model.vocabulary());
        self.scheduler.enqueue(Arrival { prompt, ..arrival });
        self.sequences.insert(self.next_id, sequence);
        self.next_id += 1;
    }

    fn take_in_beams(&mut self, submission: BeamSubmission) {
        let group = BeamGroup::new(submission, self.next_id, &mut self.scheduler);
        self.next_id += group.ids().len() as SequenceId;
        self.beams.push(group);
    }

    /// Plan a step. Whoever has a turn now leaves the queue before anybody hears of it.
    fn schedule(&mut self) -> Vec<Slice> {
        self.scheduler
            .set_prefill_chunk(self.prefill_chunk.tokens());
        let plan = self.scheduler.schedule();
        for (id, sequence) in &mut self.sequences {
            if !self.scheduler.is_queued(*id) {
                sequence.leave_queue();
            }
        }
        for group in &mut self.beams {
            if !group.ids().iter().all(|id| self.scheduler.is_queued(*id)) {
                group.leave_queue();
            }
        }
        plan
    }

    /// Let the sequences that have room for it compute what may follow. Under a constraint, what
    /// follows a right guess is sampled when its mask is there, from the row that is kept for it.
    fn draft(&mut self, plan: &mut [Slice]) {
        let vocabulary = self.model.vocabulary();
        let mut guessing = Vec::new();
        let mut wanted = Vec::new();
        for (index, room) in self.scheduler.draft_room(plan).into_iter().enumerate() {
            let id = plan[index].id;
            if let (1.., Some(sequence)) = (room, self.sequences.get(&id)) {
                guessing.push(index);
                wanted.push(Wanted {
                    id,
                    tokens: self.scheduler.tokens(id),
                    room,
                    salt: self.scheduler.salt(id),
                    sampler: sequence.sampler().clone(),
                    stop_tokens: sequence.stop_tokens(),
                    vocabulary,
                });
            }
        }
        if wanted.is_empty() {
            return;
        }
        let drafts = self.drafter.propose(wanted);
        for (index, draft) in guessing.into_iter().zip(drafts) {
            self.scheduler.add_draft(&mut plan[index], draft);
        }
        let steps = &self.shared.counters.draft_steps;
        steps.store(self.drafter.steps(), Ordering::Relaxed);
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
            Ok(scores) => {
                scored.rows.push((plan, scores));
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
                Ok(scores) => scored.rows.push((vec![slice], scores)),
                Err(error) => scored.failed.push((slice.id, error)),
            }
        }
        scored
    }

    /// One forward pass over `slices`, fenced. Each sequence says what is wanted of its rows.
    fn compute(&mut self, slices: &[Slice]) -> Result<Scores, String> {
        let input = self.input(slices);
        let vocabulary = self.model.vocabulary();
        let sequences = &mut self.sequences;
        let mut wanted = || {
            let mut wanted = Vec::new();
            for slice in slices {
                match sequences.get_mut(&slice.id) {
                    Some(sequence) if slice.last => {
                        sequence.want(rows(slice), vocabulary, &mut wanted)
                    }
                    _ => wanted.extend((0..rows(slice)).map(|_| WantedLogits::All)),
                }
            }
            wanted
        };
        let model = &mut self.model;
        let scores = fenced(|| model.score(&input, &mut wanted))?;
        let expected: usize = slices.iter().map(rows).sum();
        if scores.len() != expected {
            let found = scores.len();
            return Err(format!(
                "the model gave {found} rows of logits for {expected}"
            ));
        }
        self.take_as_computed(slices);
        Ok(scores)
    }

    /// The batch of a plan.
    fn input(&self, slices: &[Slice]) -> ModelInput {
        let mut input = ModelInput::new();
        for slice in slices {
            let known = self.scheduler.tokens(slice.id);
            let known = known.get(slice.first..slice.first + slice.count);
            let mut tokens = known.unwrap_or(&[]).to_vec();
            // The model has it where it chose it.
            if let Some(last @ &mut UNDECIDED) = tokens.last_mut() {
                *last = 0;
            }
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
        input
    }

    /// A forward pass over these was done.
    fn take_as_computed(&mut self, slices: &[Slice]) {
        for slice in slices {
            self.scheduler.computed(slice);
            self.count_prefill(slice);
        }
        self.shared.counters.steps.fetch_add(1, Ordering::Relaxed);
    }

    fn count_prefill(&self, slice: &Slice) {
        let group = || {
            self.beams
                .iter()
                .find(|group| group.ids().contains(&slice.id))
        };
        let prompt = match self.sequences.get(&slice.id) {
            Some(sequence) => sequence.prompt(),
            None => group().map_or(0, BeamGroup::prompt),
        };
        let of_prompt = prompt.saturating_sub(slice.first).min(slice.count);
        self.shared
            .counters
            .prefill_tokens
            .fetch_add(of_prompt as u64, Ordering::Relaxed);
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

/// What the model does, with its panics and errors in words.
fn fenced<T>(call: impl FnOnce() -> Result<T, InputError>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|panic| format!("the forward pass panicked: {}", panic_message(&*panic)))?
        .map_err(|error| error.to_string())
}

/// Rows of logits that a slice has.
fn rows(slice: &Slice) -> usize {
    usize::from(slice.last) + slice.draft.len()
}
