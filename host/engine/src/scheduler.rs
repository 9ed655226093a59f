//! The scheduler: admission, preemption, and the plan of each step, as a state machine of integers
//! without logits, clocks or threads.
//!
//! ```text
//! enqueue → waiting ⇄ running → remove        (⇄: admission, and preemption where room is short)
//! ```
//!
//! A sequence has *known* tokens (the prompt, and every token committed since) of which the first
//! *computed* have their keys and values in the cache. It takes part in a step while it has tokens to
//! compute and is not paused; once all are computed it is *scored* and waits to be extended. Its last
//! token may be *pending*: steps are planned with it as with any other, and it is known before
//! [`Scheduler::computed`] is called.
//!
//! Sequences are ranked by priority, and among equals by their first admission. A sequence is admitted
//! when there is room for the tokens that it has, not for those that it may come to have. When blocks
//! run out, the last in rank is preempted: it loses its blocks, and computes later what the cache no
//! longer holds. The first in rank can preempt all others, so every sequence ends at last.

mod admission;
mod plan;
mod task;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::block_pool::{BlockPool, Salt};
use crate::fair_queue::{FairQueue, Share};
use crate::tenant_load::TenantLoad;

use self::task::StepTask;

/// Identifies a sequence for the lifetime of the engine. Later arrivals have higher numbers.
pub(crate) type SequenceId = u64;

/// Steps for which tenants count as contending after more than one of them had sequences.
const CONTENTION_STEPS: u64 = 1024;

/// Contended chunks that a tenant which returns may have computed before it counts as even with those present: the
/// prompts of two or three short requests, and about 40 ms of the others' time.
const CREDIT_CHUNKS: usize = 8;

/// Most rows of logits in a step that score prompt tokens and are not sampled from. A row has one number for each token
/// of the vocabulary, so this bounds the memory of a step.
pub(crate) const SCORED_ROWS_MAX: usize = 64;

/// Placeholder of a token that is sampled but not known yet. No vocabulary is as large.
pub(crate) const PENDING_TOKEN: u32 = u32::MAX;

/// Bounds of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepLimits {
    /// Sequences that run at once.
    pub(crate) sequences: usize,
    /// Tokens computed in one step; at least as many as sequences, so that each can decode.
    pub(crate) tokens: usize,
    /// Most places that a tenant is entitled to; 0 is no bound.
    pub(crate) per_tenant: usize,
    /// Seconds after which a tenant without sequences is forgotten; 0 is never.
    pub(crate) idle_tenant_s: u64,
}

/// A sequence to be queued.
#[derive(Debug, Default)]
pub(crate) struct Arrival {
    pub(crate) id: SequenceId,
    /// Tokens of the prompt; at least one.
    pub(crate) prompt: Vec<u32>,
    /// Most tokens that the sequence will have, prompt and output together; the KV cache must be able to hold them.
    pub(crate) tokens_max: usize,
    /// Priority; higher ones come first, whatever the virtual times.
    pub(crate) priority: i32,
    /// Sequences with equal salts share blocks.
    pub(crate) salt: Salt,
    /// Account that the tokens of the sequence are charged to.
    pub(crate) share: Share,
    /// Most tokens to draft in a step; 0 drafts none.
    pub(crate) draft_max: usize,
    /// Rows of logits of all tokens of the prompt are wanted.
    pub(crate) scores_prompt: bool,
}

/// Tokens of one sequence to be computed in a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) id: SequenceId,
    /// Position of the first token.
    pub(crate) first: usize,
    /// Known tokens to compute.
    pub(crate) count: usize,
    /// Whether these are the last known tokens, so that the next one is to be sampled.
    pub(crate) last: bool,
    /// Rows of logits of all tokens are wanted, which are of the prompt.
    pub(crate) scored: bool,
    /// Draft tokens behind the known ones. Only a single last token has any.
    pub(crate) draft: Vec<u32>,
}

/// Counters of the scheduler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SchedulerTally {
    /// Prompt tokens of the sequences that were admitted.
    pub(crate) queried_tokens: u64,
    /// Prompt tokens of admitted sequences that were found in the prefix cache.
    pub(crate) hit_tokens: u64,
    /// Preemptions.
    pub(crate) preemptions: u64,
    /// Tokens computed again after preemptions.
    pub(crate) recomputed_tokens: u64,
    /// Draft tokens computed.
    pub(crate) drafted_tokens: u64,
    /// Draft tokens that were accepted.
    pub(crate) accepted_tokens: u64,
}

#[derive(Debug)]
pub(crate) struct Scheduler {
    limits: StepLimits,
    pool: BlockPool,
    fair_queue: FairQueue,
    waiting: BTreeMap<SequenceId, StepTask>,
    /// Running sequences in the order of their rank, the first in rank first.
    running: Vec<StepTask>,
    /// First admissions so far.
    admissions: u64,
    /// Number of waiting sequences that were never admitted.
    queued: usize,
    tally: SchedulerTally,
    /// Most prompt tokens in a step in which a sequence decodes.
    prefill_chunk: usize,
    /// Most prompt tokens in a step while tenants contend.
    contended_chunk: usize,
    /// Steps so far, and the first one for which tenants no longer count as contending.
    steps: u64,
    contended_until: u64,
    /// Tenants were left out of the last step for another's first token.
    yielded: bool,
    /// The next step may preempt sequences that wait for masks.
    preempts_blocked: bool,
}

impl Scheduler {
    pub(crate) fn new(limits: StepLimits, pool: BlockPool) -> Self {
        Self {
            limits,
            pool,
            fair_queue: FairQueue::new(limits.per_tenant, limits.idle_tenant_s),
            waiting: BTreeMap::new(),
            running: Vec::new(),
            admissions: 0,
            queued: 0,
            tally: SchedulerTally::default(),
            prefill_chunk: usize::MAX,
            contended_chunk: usize::MAX,
            steps: 0,
            contended_until: 0,
            yielded: false,
            preempts_blocked: false,
        }
    }

    /// Scheduler with the same bounds, without sequences and with an empty KV cache. Counters go on.
    pub(crate) fn anew(&self) -> Self {
        Self {
            tally: self.tally,
            ..Self::new(self.limits, self.pool.anew())
        }
    }

    /// Bound the prompt tokens of steps in which a sequence decodes.
    pub(crate) fn set_prefill_chunk(&mut self, tokens: usize) {
        self.prefill_chunk = tokens.max(1);
    }

    /// Bound the prompt tokens of steps while several tenants are active, or were lately: the time to first
    /// token of one tenant is at least the time of a step with the prompts of another. Without a bound, tenants that
    /// return have no credit either.
    pub(crate) fn set_contended_chunk(&mut self, tokens: usize) {
        self.contended_chunk = tokens.max(1);
        // No more than the tokens of a step, by which others may be ahead before they are preempted for it.
        let credit = match tokens {
            usize::MAX => 0,
            tokens => tokens.saturating_mul(CREDIT_CHUNKS).min(self.limits.tokens),
        };
        self.fair_queue.set_credit(credit);
    }

    /// Tell the time, in seconds since any moment, by which idle tenants are forgotten.
    pub(crate) fn set_time(&mut self, now_s: u64) {
        self.fair_queue.set_time(now_s);
    }

    pub(crate) fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// Forget the cached prefixes that no sequence uses. Returns how many blocks held them.
    pub(crate) fn clear_prefixes(&mut self) -> usize {
        self.pool.clear()
    }

    pub(crate) fn tally(&self) -> SchedulerTally {
        self.tally
    }

    /// Whether a sequence was never admitted.
    pub(crate) fn is_queued(&self, id: SequenceId) -> bool {
        let waiting = self.waiting.get(&id);
        waiting.is_some_and(|task| task.admission.is_none())
    }

    /// Number of sequences that were never admitted. For tests.
    #[cfg(test)]
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// Number of preempted sequences that wait for readmission.
    pub(crate) fn preempted(&self) -> usize {
        self.waiting.len() - self.queued
    }

    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    /// Figures of the tenants that have an account, but for those of the queue.
    pub(crate) fn tenants(&self) -> Vec<TenantLoad> {
        let accounts = self.fair_queue.accounts(self.limits.sequences);
        let mut loads: BTreeMap<Arc<str>, TenantLoad> = accounts
            .map(|load| (Arc::clone(&load.tenant), load))
            .collect();
        for task in &self.running {
            if let Some(load) = loads.get_mut(&task.share.tenant) {
                load.running += 1;
            }
        }
        let waiting = self.waiting.values();
        for task in waiting.filter(|task| task.admission.is_some()) {
            if let Some(load) = loads.get_mut(&task.share.tenant) {
                load.preempted += 1;
            }
        }
        for (tenant, load) in &mut loads {
            load.kv_blocks = self.pool.shares().held(tenant);
        }
        loads.into_values().collect()
    }

    /// Queue a sequence.
    pub(crate) fn enqueue(&mut self, arrival: Arrival) {
        self.fair_queue.enter(&arrival.share);
        self.queued += 1;
        let Share { tenant, weight, .. } = &arrival.share;
        let account = self.pool.enter(tenant, *weight);
        self.waiting
            .insert(arrival.id, StepTask::new(arrival, account));
    }

    /// Whether a sequence has tokens to compute and is not paused, be it admitted or not.
    pub(crate) fn has_runnable(&self) -> bool {
        let mut all = self.running.iter().chain(self.waiting.values());
        all.any(StepTask::runnable)
    }

    /// If nothing else can be computed in the next step, let it preempt sequences that wait for masks.
    pub(crate) fn preempt_blocked(&mut self) {
        self.preempts_blocked = true;
    }

    /// The known tokens of a sequence.
    pub(crate) fn tokens(&self, id: SequenceId) -> &[u32] {
        self.task(id).map_or(&[], |task| &task.tokens)
    }

    /// The blocks of a running sequence, in the order of the tokens that they hold.
    pub(crate) fn blocks(&self, id: SequenceId) -> &[u32] {
        let running = self.running.iter().find(|task| task.id == id);
        running.map_or(&[], |task| &task.kv.table)
    }

    /// Prompt tokens of a sequence that were found in the cache.
    pub(crate) fn cached_tokens(&self, id: SequenceId) -> usize {
        self.task(id).map_or(0, |task| task.cached)
    }

    /// The salt of a sequence.
    pub(crate) fn salt(&self, id: SequenceId) -> Salt {
        self.task(id)
            .map_or_else(Salt::default, |task| task.kv.salt.clone())
    }

    /// Whether a running sequence has computed its prompt.
    pub(crate) fn decodes(&self, id: SequenceId) -> bool {
        self.running
            .iter()
            .any(|task| task.id == id && task.decoding)
    }

    /// Record that the known tokens of a slice were computed.
    pub(crate) fn computed(&mut self, slice: &Slice) {
        let Some(task) = self.running.iter_mut().find(|task| task.id == slice.id) else {
            return;
        };
        let end = slice.first + slice.count;
        let anew = end.saturating_sub(task.reached.max(slice.first));
        self.tally.recomputed_tokens += (slice.count - anew) as u64;
        self.tally.drafted_tokens += slice.draft.len() as u64;
        // Tokens computed again after a preemption are not charged.
        self.fair_queue.charge(&task.share, anew);
        task.reached = task.reached.max(end);
        task.kv.computed = end;
        task.scored = slice.last;
        task.decoding |= slice.last;
        task.scores_prompt &= !slice.last;
        task.kv.commit(&task.tokens, &mut self.pool);
    }

    /// Append a committed token, or put it in the place of the pending one.
    pub(crate) fn extend(&mut self, id: SequenceId, token: u32) {
        let Some(task) = self.task_mut(id) else {
            return;
        };
        match task.tokens.last_mut() {
            Some(last) if *last == PENDING_TOKEN => *last = token,
            _ => {
                task.tokens.push(token);
                task.scored = false;
            }
        }
    }

    /// Branch sequences of a beam search: each of `branches` names a sequence, the parent whose tokens it
    /// takes over, and the next token. Full blocks are shared; the rest of the last block is computed again.
    pub(crate) fn branch(&mut self, branches: &[(SequenceId, SequenceId, u32)]) {
        let others = branches.iter().filter(|(id, parent, _)| id != parent);
        let mut taken = Vec::new();
        // Parents' blocks are acquired before any are released.
        for (id, parent, _) in others {
            let running = self.running.iter().any(|task| task.id == *id);
            let Some(parent) = self.task(*parent) else {
                continue;
            };
            let blocks = match running {
                true => parent.kv.table[..parent.kv.committed].to_vec(),
                false => Vec::new(),
            };
            taken.push((*id, parent.tokens.clone(), blocks));
        }
        for block in taken.iter().flat_map(|(_, _, blocks)| blocks) {
            self.pool.acquire(*block);
        }
        for (id, tokens, blocks) in taken {
            let running = self.running.iter_mut().find(|task| task.id == id);
            let Some(task) = running.or_else(|| self.waiting.get_mut(&id)) else {
                continue;
            };
            task.kv.release(&mut self.pool);
            task.kv.committed = blocks.len();
            task.kv.computed = blocks.len() * self.pool.block_tokens();
            task.kv.table = blocks;
            task.reached = tokens.len();
            task.tokens = tokens;
            // Whether it decodes depends on the blocks that it took over, not on its own progress.
            task.decoding = task.kv.computed > 0;
        }
        for (id, _, token) in branches {
            self.extend(*id, *token);
        }
    }

    /// Record that the token committed last equals its draft token, whose keys and values are in the cache.
    pub(crate) fn confirm_draft(&mut self, id: SequenceId) {
        let Some(task) = self.running.iter_mut().find(|task| task.id == id) else {
            return;
        };
        self.tally.accepted_tokens += 1;
        self.fair_queue.charge(&task.share, 1);
        task.kv.computed += 1;
        task.reached = task.reached.max(task.kv.computed);
        task.scored = true;
        task.kv.commit(&task.tokens, &mut self.pool);
    }

    /// Record how many draft tokens of a slice were accepted, and release the blocks of the rest.
    pub(crate) fn resolve_draft(&mut self, slice: &Slice, accepted: usize) {
        if slice.draft.is_empty() {
            return;
        }
        if let Some(task) = self.running.iter_mut().find(|task| task.id == slice.id) {
            task.draft_length.update(slice.draft.len(), accepted);
            let kept = self.pool.blocks_for(task.tokens.len());
            task.kv.truncate(kept, &mut self.pool);
        }
    }

    /// Pause or resume a sequence. A paused one takes part in no step, and is preempted first.
    pub(crate) fn set_paused(&mut self, id: SequenceId, paused: bool) {
        if let Some(task) = self.task_mut(id) {
            task.paused = paused;
        }
    }

    /// Remove a sequence, waiting or running. Its full blocks stay in the cache until they are evicted.
    pub(crate) fn remove(&mut self, id: SequenceId) {
        let task = match self.running.iter().position(|task| task.id == id) {
            Some(index) => Some(self.running.remove(index)),
            None => self.waiting.remove(&id),
        };
        let Some(mut task) = task else { return };
        if task.admission.is_none() {
            self.queued -= 1;
        }
        task.kv.release(&mut self.pool);
        self.pool.leave(task.account);
        self.fair_queue.leave(&task.share);
    }

    fn task(&self, id: SequenceId) -> Option<&StepTask> {
        let running = self.running.iter().find(|task| task.id == id);
        running.or_else(|| self.waiting.get(&id))
    }

    fn task_mut(&mut self, id: SequenceId) -> Option<&mut StepTask> {
        let running = self.running.iter_mut().find(|task| task.id == id);
        running.or_else(|| self.waiting.get_mut(&id))
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
