//! The loop of the engine's thread: schedule, forward pass, sampling, commit.
//!
//! The loop waits for nothing but the model's own computation. With an empty plan the thread parks until
//! its waker is called: by a new request, by a reader that made room, or by a mask that became ready.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::Waker;
use std::time::{Duration, Instant};

use mortise_kernels::linear::{Scores, WantedLogits};
use mortise_model::{Adapter, InputError, LogitRows, ModelInput, SequenceInput};

use crate::beam_group::{BeamGroup, BeamSubmission};
use crate::block_pool::Salt;
use crate::circuit::Circuit;
use crate::decision::RowDecision;
use crate::draft_model::DraftRequest;
use crate::forward::ForwardPass;
use crate::load::LoadCounters;
use crate::panics::panic_message;
use crate::prefill_chunk::PrefillChunk;
use crate::queue::Queue;
use crate::scheduler::{Arrival, PENDING_TOKEN, Scheduler, SequenceId, Slice};
use crate::sequence::{Sequence, Submission};
use crate::speculator::Speculator;
use crate::tenant_load::TenantQuery;

mod device_step;
mod restart;
mod sampling;

use self::sampling::commit;

/// Most forced tokens that one sequence commits before a step.
const FORCED_MAX: usize = 64;

/// Time without any computation after which sequences that wait for masks give their places and blocks
/// to queued ones that need them. Most masks are ready sooner, and preemption costs a block's tokens.
const MASK_GRACE: Duration = Duration::from_millis(5);

/// Pause before the loop begins anew, so that a panic in every turn does not take a processor.
const RESTART_PAUSE: Duration = Duration::from_millis(100);

/// State shared by the thread and its handle.
#[derive(Debug)]
pub(crate) struct EngineShared {
    pub(crate) counters: LoadCounters,
    pub(crate) queue: Queue,
    pub(crate) circuit: Circuit,
    pub(crate) stopping: AtomicBool,
    /// Questions of other threads, which wait for the answers.
    pub(crate) questions: Mutex<Vec<TenantQuery>>,
}

pub(crate) struct StepLoop {
    pub(crate) model: Box<dyn ForwardPass>,
    /// Wakes this thread.
    pub(crate) waker: Waker,
    pub(crate) scheduler: Scheduler,
    pub(crate) prefill_chunk: PrefillChunk,
    pub(crate) submissions: mpsc::Receiver<Submitted>,
    pub(crate) shared: Arc<EngineShared>,
    /// By arrival.
    pub(crate) sequences: BTreeMap<SequenceId, Sequence>,
    pub(crate) beams: Vec<BeamGroup>,
    pub(crate) next_id: SequenceId,
    /// Most draft tokens of a sequence in a step.
    pub(crate) draft_max: usize,
    pub(crate) speculator: Speculator,
    /// Sequences whose next tokens are being sampled on the device, in the order of the sampled rows.
    pub(crate) in_flight: Vec<SequenceId>,
    /// Since when nothing could be computed although sequences could run, but for those that hold
    /// places and blocks while they wait for masks.
    pub(crate) blocked_since: Option<Instant>,
    /// When the loop was started.
    pub(crate) began: Instant,
    /// Called in each turn; see [`EngineConfig::fault`](crate::EngineConfig::fault).
    pub(crate) fault: Option<fn()>,
}

/// A request from the handle.
pub(crate) enum Submitted {
    Sequence(Submission),
    Beams(BeamSubmission),
}

/// The result of a forward pass.
#[derive(Default)]
struct ForwardOutput {
    /// Logits, or what was searched of them, with the slices that they belong to: each slice has a row
    /// for its last known token and one for each draft token, or one for each token of a prompt that is scored.
    rows: Vec<(Vec<Slice>, Scores)>,
    /// Sequences that failed even when computed alone, with the error.
    failed: Vec<(SequenceId, String)>,
}

impl StepLoop {
    /// Run until the handle asks to stop. Unfinished sequences are dropped, which closes their streams.
    ///
    /// A panic that one sequence causes ends that sequence; see `compute` and `Sequence`. A panic that gets
    /// here is a defect of the loop itself: it ends the sequences there are, and the loop begins anew.
    pub(crate) fn run(mut self) {
        while let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.turns())) {
            self.begin_anew(panic_message(&*panic));
            std::thread::sleep(RESTART_PAUSE);
        }
    }

    /// Take turns until the handle asks to stop.
    fn turns(&mut self) {
        loop {
            self.shared.counters.turn_begins();
            if !self.receive() {
                return;
            }
            if let Some(fault) = self.fault {
                fault();
            }
            let forced = self.commit_forced();
            let begun = Instant::now();
            let mut plan = self.schedule();
            self.draft(&mut plan);
            let idle = plan.is_empty();
            // A decoding sequence computes one token: a step of only such says nothing about prefill.
            let prefills = plan.iter().any(|slice| slice.count > 1);
            let tokens = plan.iter().map(|slice| slice.count).sum();
            let sampled = if self.model.device().is_some() {
                self.device_step(plan)
            } else {
                let output = self.forward(plan);
                self.sample(output)
            };
            if prefills {
                self.prefill_chunk.measured(tokens, begun.elapsed());
            } else if !idle {
                self.prefill_chunk.decoded(begun.elapsed());
            }
            if !idle {
                self.shared.counters.worked(begun.elapsed());
                self.blocked_since = None;
            } else if !forced && !sampled {
                self.idle();
            }
        }
    }

    /// Accept new sequences, drop cancelled ones, and flush streams that have room again. Returns
    /// whether to go on.
    fn receive(&mut self) -> bool {
        self.scheduler.set_time(self.began.elapsed().as_secs());
        while let Ok(submission) = self.submissions.try_recv() {
            match submission {
                Submitted::Sequence(submission) => self.accept(submission),
                Submitted::Beams(submission) => self.accept_beams(submission),
            }
        }
        self.deliver();
        self.answer();
        self.publish();
        !self.shared.stopping.load(Ordering::Acquire)
    }

    /// Answer the questions of other threads.
    fn answer(&mut self) {
        let questions = self.shared.questions.lock();
        let asked = std::mem::take(&mut *questions.unwrap_or_else(PoisonError::into_inner));
        for question in asked {
            // Whoever has gone needs no answer.
            match question {
                TenantQuery::ClearPrefixes(asker) => {
                    let _ = asker.send(self.scheduler.clear_prefixes());
                }
                TenantQuery::Tenants(asker) => {
                    let _ = asker.send(self.scheduler.tenants());
                }
            }
        }
    }

    fn accept(&mut self, submission: Submission) {
        if submission.outbox.is_closed() {
            // Cancelled before the engine saw it: not even its constraint starts.
            self.shared
                .counters
                .finished
                .fetch_add(1, Ordering::Relaxed);
            return;
        }
        let request = &submission.request;
        let adapter = request.adapter.as_ref().map(|adapter| adapter.number());
        let arrival = Arrival {
            id: self.next_id,
            tokens_max: submission.tokens_max,
            priority: request.priority,
            salt: Salt::new(request.salt.clone(), adapter),
            share: request.share.clone(),
            draft_max: self.draft_max,
            scores_prompt: request.prompt_logprobs.is_some(),
            prompt: Vec::new(),
        };
        let vocabulary = self.model.vocabulary();
        let (sequence, prompt) = Sequence::new(submission, vocabulary, self.waker.clone());
        self.scheduler.enqueue(Arrival { prompt, ..arrival });
        self.sequences.insert(self.next_id, sequence);
        self.next_id += 1;
    }

    fn accept_beams(&mut self, submission: BeamSubmission) {
        let group = BeamGroup::new(submission, self.next_id, &mut self.scheduler);
        self.next_id += group.ids().len() as SequenceId;
        self.beams.push(group);
    }

    /// Plan a step. Admitted sequences free their places in the queue before their readers see events.
    fn schedule(&mut self) -> Vec<Slice> {
        self.scheduler
            .set_prefill_chunk(self.prefill_chunk.tokens());
        self.scheduler
            .set_contended_chunk(self.prefill_chunk.contended_tokens());
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

    /// Add draft tokens to the slices that have room for them. Under a constraint, the token behind an
    /// accepted draft token is sampled once its mask is ready, from the row that is kept for it.
    fn draft(&mut self, plan: &mut [Slice]) {
        let vocabulary = self.model.vocabulary();
        let mut drafting = Vec::new();
        let mut requests = Vec::new();
        for (index, room) in self.scheduler.draft_room(plan).into_iter().enumerate() {
            let id = plan[index].id;
            if let (1.., Some(sequence)) = (room, self.sequences.get(&id)) {
                drafting.push(index);
                requests.push(DraftRequest {
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
        if requests.is_empty() {
            return;
        }
        let drafts = self.speculator.propose(requests);
        for (index, draft) in drafting.into_iter().zip(drafts) {
            self.scheduler.add_draft(&mut plan[index], draft);
        }
        let steps = &self.shared.counters.draft_steps;
        steps.store(self.speculator.steps(), Ordering::Relaxed);
    }

    /// Commit forced tokens, which are computed together in one slice. Returns whether anything was
    /// decided.
    fn commit_forced(&mut self) -> bool {
        let mut decided = false;
        for (id, sequence) in &mut self.sequences {
            if sequence.is_paused() || !self.scheduler.decodes(*id) {
                continue;
            }
            for _ in 0..FORCED_MAX {
                let decision = sequence.decide_without_logits();
                if decision == RowDecision::Pending {
                    break;
                }
                decided = true;
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
        if decided {
            self.deliver();
        }
        decided
    }

    /// Compute the planned tokens. When a batch fails, each sequence is computed alone, so that only the
    /// one at fault fails.
    fn forward(&mut self, plan: Vec<Slice>) -> ForwardOutput {
        let mut output = ForwardOutput::default();
        if plan.is_empty() {
            return output;
        }
        let error = match self.compute(&plan) {
            Ok(scores) => {
                output.rows.push((plan, scores));
                return output;
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
                Ok(scores) => output.rows.push((vec![slice], scores)),
                Err(error) => output.failed.push((slice.id, error)),
            }
        }
        output
    }

    /// One forward pass over `slices`. A panic of the model becomes an error.
    fn compute(&mut self, slices: &[Slice]) -> Result<Scores, String> {
        let input = self.input(slices);
        let sequences = &mut self.sequences;
        let mut wanted = || {
            let mut wanted = Vec::new();
            for slice in slices {
                match sequences.get_mut(&slice.id) {
                    Some(sequence) if slice.last && !slice.scored => {
                        sequence.wanted_logits(rows(slice), &mut wanted)
                    }
                    _ => wanted.extend((0..rows(slice)).map(|_| WantedLogits::All)),
                }
            }
            wanted
        };
        let model = &mut self.model;
        let scores = catch_panic(|| model.score(&input, &mut wanted))?;
        let expected: usize = slices.iter().map(rows).sum();
        if scores.len() != expected {
            let found = scores.len();
            return Err(format!(
                "the model gave {found} rows of logits for {expected}"
            ));
        }
        self.record_computed(slices);
        Ok(scores)
    }

    /// The batch of a plan.
    fn input(&self, slices: &[Slice]) -> ModelInput {
        let mut input = ModelInput::new();
        for slice in slices {
            let known = self.scheduler.tokens(slice.id);
            let known = known.get(slice.first..slice.first + slice.count);
            let mut tokens = known.unwrap_or(&[]).to_vec();
            // The device has the sampled token in its own memory.
            if let Some(last @ &mut PENDING_TOKEN) = tokens.last_mut() {
                *last = 0;
            }
            tokens.extend(&slice.draft);
            let sequence = SequenceInput {
                tokens: &tokens,
                first_position: slice.first,
                block_table: self.scheduler.blocks(slice.id),
                logits: match (slice.last, slice.draft.is_empty()) {
                    _ if slice.scored => LogitRows::All,
                    (false, _) => LogitRows::None,
                    (true, true) => LogitRows::Last,
                    (true, false) => LogitRows::All,
                },
            };
            match self.adapter(slice.id) {
                Some(adapter) => input.push_adapted(sequence, adapter),
                None => input.push(sequence),
            }
        }
        input
    }

    /// The adapter of a sequence.
    fn adapter(&self, id: SequenceId) -> Option<&Arc<Adapter>> {
        match self.sequences.get(&id) {
            Some(sequence) => sequence.adapter(),
            None => self.group(id).and_then(BeamGroup::adapter),
        }
    }

    /// The beams that a sequence is one of.
    fn group(&self, id: SequenceId) -> Option<&BeamGroup> {
        self.beams.iter().find(|group| group.ids().contains(&id))
    }

    /// Record that a forward pass over these slices was done.
    fn record_computed(&mut self, slices: &[Slice]) {
        for slice in slices {
            self.scheduler.computed(slice);
            self.count_prefill(slice);
        }
        self.shared.counters.steps.fetch_add(1, Ordering::Relaxed);
    }

    fn count_prefill(&self, slice: &Slice) {
        let prompt = match self.sequences.get(&slice.id) {
            Some(sequence) => sequence.prompt(),
            None => self.group(slice.id).map_or(0, BeamGroup::prompt),
        };
        let of_prompt = prompt.saturating_sub(slice.first).min(slice.count);
        self.shared
            .counters
            .prefill_tokens
            .fetch_add(of_prompt as u64, Ordering::Relaxed);
    }

    /// Park until the waker is called. Sequences that could run if others, which wait for masks,
    /// gave up places or blocks wait for these no longer than [`MASK_GRACE`].
    fn idle(&mut self) {
        self.publish();
        self.shared.counters.waits();
        if !self.scheduler.has_runnable() {
            self.blocked_since = None;
            std::thread::park();
            return;
        }
        let since = *self.blocked_since.get_or_insert_with(Instant::now);
        let left = MASK_GRACE.saturating_sub(since.elapsed());
        if left.is_zero() {
            self.blocked_since = None;
            self.scheduler.preempt_blocked();
        } else {
            std::thread::park_timeout(left);
        }
    }

    fn publish(&mut self) {
        self.shared.counters.publish(&self.scheduler);
    }
}

/// Run the model. Panics and errors become messages.
fn catch_panic<T>(call: impl FnOnce() -> Result<T, InputError>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|panic| format!("the forward pass panicked: {}", panic_message(&*panic)))?
        .map_err(|error| error.to_string())
}

/// Rows of logits of a slice.
fn rows(slice: &Slice) -> usize {
    match slice.scored {
        true => slice.count,
        false => usize::from(slice.last) + slice.draft.len(),
    }
}

/// Rows of logits of a slice that are of the prompt alone. They come first.
fn scored_rows(slice: &Slice) -> usize {
    match slice.scored {
        true => slice.count - usize::from(slice.last),
        false => 0,
    }
}
