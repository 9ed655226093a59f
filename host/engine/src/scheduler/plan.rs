//! The plan of a step.

use std::sync::Arc;

use crate::block_pool::Parent;
use crate::cached_prefix::shareable;

use super::task::StepTask;
use super::{CONTENTION_STEPS, SCORED_ROWS_MAX, Scheduler, SequenceId, Slice};

impl Scheduler {
    /// Admit sequences, then plan a step: one token for each decoding sequence, then prefill with the rest
    /// of the token budget. Draft tokens are added to the plan afterwards.
    pub(crate) fn schedule(&mut self) -> Vec<Slice> {
        self.steps += 1;
        if self.fair_queue.present() > 1 {
            self.contended_until = self.steps + CONTENTION_STEPS;
        }
        self.admit();
        let mut plan = self.divide_budget();
        self.find_blocks(&mut plan);
        while plan.is_empty()
            && let Some(first) = self.running.iter().position(StepTask::runnable)
        {
            // All wait for blocks of others: the first in rank that can run gets its own.
            let id = self.running[first].id;
            plan.push(slice(&self.running[first], self.limits.tokens));
            self.find_blocks(&mut plan);
            if plan.is_empty() && !self.preempt_one_blocked(id) {
                break;
            }
        }
        self.preempts_blocked = false;
        plan
    }

    /// Preempt the last in rank of the sequences that wait for masks, if that is allowed now, so that
    /// `id` gets blocks.
    fn preempt_one_blocked(&mut self, id: SequenceId) -> bool {
        let blocked = |task: &StepTask| task.id != id && task.awaits_mask();
        let victim = self.running.iter().rposition(blocked);
        match victim.filter(|_| self.preempts_blocked) {
            Some(victim) => {
                self.preempt(victim);
                true
            }
            None => false,
        }
    }

    /// Divide the token budget among the running sequences.
    fn divide_budget(&mut self) -> Vec<Slice> {
        let prompts = self.prompts_in_turn();
        let yielding = self.yielding(&prompts);
        self.yielded = !yielding.is_empty();
        let decoding = |task: &&StepTask| {
            task.runnable() && task.decoding && !yielding.contains(&task.share.tenant)
        };
        let decoders = self.running.iter().filter(decoding).count();
        // Each decodes one token; forced tokens are computed along with it.
        let mut left = self.limits.tokens.saturating_sub(decoders);
        let mut plan = Vec::new();
        for task in self.running.iter().filter(decoding) {
            let slice = slice(task, 1 + left);
            left -= slice.count - 1;
            plan.push(slice);
        }
        if decoders > 0 {
            left = left.min(self.prefill_chunk);
        }
        if self.is_contended() {
            left = left.min(self.contended_chunk);
        }
        self.divide_among_prompts(&prompts, left, &mut plan);
        plan
    }

    /// Tenants whose decoding sequences are left out of the step because a first token of another tenant is
    /// computed in it: those that run more sequences than they are entitled to and have not less virtual time. A
    /// step without their rows is short, so that a flood delays that token by little. They yield no two steps in
    /// a row, so that no number of newcomers stops them.
    fn yielding(&self, prompts: &[usize]) -> Vec<Arc<str>> {
        let newcomer = prompts.first().map(|index| &self.running[*index]);
        let ends =
            |task: &&StepTask| task.remaining() <= self.contended_chunk.min(self.limits.tokens);
        let Some(newcomer) = newcomer.filter(ends) else {
            return Vec::new();
        };
        if self.yielded || !self.is_contended() || self.contended_chunk == usize::MAX {
            return Vec::new();
        }
        let mut above = self.served();
        above.retain(|_, (running, entitled)| running > entitled);
        let yields = |task: &&StepTask| {
            above.contains_key(&task.share.tenant)
                && task.share.tenant != newcomer.share.tenant
                && self.fair_queue.lead(&newcomer.share, &task.share) == 0
        };
        let mut yielding: Vec<Arc<str>> = Vec::new();
        for task in self.running.iter().filter(yields) {
            if task.priority > newcomer.priority {
                return Vec::new();
            }
            if !yielding.contains(&task.share.tenant) {
                yielding.push(Arc::clone(&task.share.tenant));
            }
        }
        yielding
    }

    /// Whether several tenants are active, or were lately.
    fn is_contended(&self) -> bool {
        self.steps < self.contended_until
    }

    /// Running sequences with prompts to compute, in the order of virtual time. What the cache holds of them
    /// is taken from it.
    fn prompts_in_turn(&mut self) -> Vec<usize> {
        let mut prompts: Vec<usize> = Vec::new();
        for (index, task) in self.running.iter_mut().enumerate() {
            if task.runnable() && !task.decoding {
                self.tally.hit_tokens += task.advance(&mut self.pool) as u64;
                prompts.push(index);
            }
        }
        let served = self.served();
        prompts.sort_by_cached_key(|index| {
            let task = &self.running[*index];
            (self.turn(task, &served), task.admission)
        });
        prompts
    }

    /// Prefill in turn. Of the prompts that need the same block next, only the first
    /// computes it; the others take it from the cache afterwards. While tenants contend, a step in which a
    /// prompt ends computes no prompts of tenants behind it: they would only delay its first token.
    fn divide_among_prompts(&self, prompts: &[usize], budget: usize, plan: &mut Vec<Slice>) {
        let contended = self.is_contended();
        let mut ending: Option<&StepTask> = None;
        let size = self.pool.block_tokens();
        let mut claimed: Vec<(Parent, &[u32])> = Vec::new();
        let (mut left, mut scored) = (budget, SCORED_ROWS_MAX);
        for task in prompts.iter().map(|index| &self.running[*index]) {
            if left == 0 {
                return;
            }
            if task.scores_prompt && scored == 0 {
                continue;
            }
            let delays = |other: &StepTask| other.share.tenant != task.share.tenant;
            if contended && ending.is_some_and(delays) {
                continue;
            }
            let next = task
                .kv
                .frontier(&task.tokens, size)
                .filter(|_| self.pool.caches());
            if let Some(next) = next {
                let shared = task.kv.committed < shareable(&task.tokens, size);
                if shared && !task.scores_prompt && claimed.contains(&next) {
                    continue;
                }
                claimed.push(next);
            }
            let most = if task.scores_prompt { scored } else { left };
            let slice = slice(task, left.min(most));
            left -= slice.count;
            scored -= if slice.scored { slice.count } else { 0 };
            if slice.last {
                ending = Some(task);
            }
            plan.push(slice);
        }
    }

    /// Allocate blocks for the slices, for the first in rank first. A slice without blocks preempts the
    /// last in rank, unless that is its own sequence; then it is left out of the step.
    fn find_blocks(&mut self, plan: &mut Vec<Slice>) {
        let mut order: Vec<SequenceId> = self.running.iter().map(|task| task.id).collect();
        order.retain(|id| plan.iter().any(|slice| slice.id == *id));
        for id in order {
            let Some(slice) = plan.iter().position(|slice| slice.id == id) else {
                continue;
            };
            let needed = self.pool.blocks_for(plan[slice].first + plan[slice].count);
            if !self.grow(id, needed) {
                plan.remove(slice);
            }
        }
        plan.retain(|slice| self.running.iter().any(|task| task.id == slice.id));
    }

    /// Extend a running sequence to `needed` blocks. Returns whether it has them and still runs.
    fn grow(&mut self, id: SequenceId, needed: usize) -> bool {
        loop {
            let Some(index) = self.running.iter().position(|task| task.id == id) else {
                return false;
            };
            let missing = needed.saturating_sub(self.running[index].kv.table.len());
            if missing == 0 {
                return true;
            }
            let account = self.running[index].account;
            if let Some(block) = self.pool.take(account) {
                self.running[index].kv.table.push(block);
                continue;
            }
            let others = |task: &StepTask| task.id != id && task.paused;
            let paused = self.running.iter().rposition(others);
            let last = self.running.len() - 1;
            match paused {
                Some(paused) => self.preempt(paused),
                None if last > index => self.preempt(last),
                // No sequence is left to preempt: evict what other tenants have cached.
                None if last == 0 => match self.pool.take_unprotected(account) {
                    Some(block) => self.running[index].kv.table.push(block),
                    None => return false,
                },
                None => return false,
            }
        }
    }

    /// Most draft tokens of each slice, within the budget that the plan leaves. Only a decoding sequence
    /// that computes a single last token gets any.
    pub(crate) fn draft_room(&self, plan: &[Slice]) -> Vec<usize> {
        let planned: usize = plan.iter().map(|slice| slice.count).sum();
        let mut left = self.limits.tokens.saturating_sub(planned);
        let room = |slice: &Slice| {
            let task = self.running.iter().find(|task| task.id == slice.id);
            let single = slice.last && slice.count == 1;
            let Some(task) = task.filter(|task| single && task.decoding) else {
                return 0;
            };
            // The last token that may still come need not be computed.
            let to_come = task.tokens_max.saturating_sub(task.tokens.len());
            let most = task
                .draft_length
                .get()
                .min(to_come.saturating_sub(1))
                .min(left);
            left -= most;
            most
        };
        plan.iter().map(room).collect()
    }

    /// Add `draft`, which is no longer than the slice's room, as far as there are blocks.
    pub(crate) fn add_draft(&mut self, slice: &mut Slice, mut draft: Vec<u32>) {
        let task = self.running.iter_mut().find(|task| task.id == slice.id);
        let Some(task) = task.filter(|_| !draft.is_empty()) else {
            return;
        };
        let size = self.pool.block_tokens();
        while task.kv.table.len() * size < task.tokens.len() + draft.len() {
            match self.pool.take(task.account) {
                Some(block) => task.kv.table.push(block),
                None => draft.truncate(task.kv.table.len() * size - task.tokens.len()),
            }
        }
        slice.draft = draft;
    }
}

/// The next tokens of a sequence, at most `most`.
fn slice(task: &StepTask, most: usize) -> Slice {
    let most = match task.scores_prompt {
        true => most.min(SCORED_ROWS_MAX),
        false => most,
    };
    let count = task.remaining().min(most);
    Slice {
        id: task.id,
        first: task.kv.computed,
        count,
        last: count == task.remaining(),
        scored: task.scores_prompt,
        draft: Vec::new(),
    }
}
