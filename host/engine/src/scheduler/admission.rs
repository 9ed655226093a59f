//! Admission and preemption.

use std::cmp::Reverse;

use crate::cached_prefix::shareable;
use crate::fair_queue::TOKEN;

use super::Scheduler;
use super::task::Task;

impl Scheduler {
    /// Admit waiting sequences one by one while there is room. A sequence that does not fit holds up
    /// those behind it, so that long prompts are not starved.
    pub(super) fn admit(&mut self) {
        // Fairness preempts one sequence a step, so that no tenant loses all places at once.
        let mut displaced = false;
        while let Some(mut task) = self.next_in_line() {
            if !self.make_room(&task, &mut displaced) {
                self.waiting.insert(task.id, task);
                return;
            }
            task.expected = self.computed_by_others(&task);
            if task.admission.is_none() {
                task.admission = Some(self.admissions);
                self.admissions += 1;
                self.queued -= 1;
                self.tally.queried_tokens += task.prompt as u64;
            }
            self.tally.hit_tokens += task.advance(&mut self.pool) as u64;
            let rank = task.rank();
            let place = self.running.partition_point(|other| other.rank() < rank);
            self.running.insert(place, task);
        }
    }

    /// Remove the next sequence to admit: of the highest priority, that with the lowest virtual time, by
    /// tenant and then by key, and of these the first to arrive.
    fn next_in_line(&mut self) -> Option<Task> {
        let candidates = self.waiting.values().filter(|task| task.runnable());
        let next = candidates.min_by_key(|task| {
            let virtual_time = self.fair_queue.virtual_time(&task.share);
            (Reverse(task.priority), virtual_time, task.id)
        });
        let id = next?.id;
        self.waiting.remove(&id)
    }

    /// Make room for the known tokens of `task`, if need be by preemption; `displaced` says whether this
    /// step preempted a sequence for fairness already. Returns whether there is room.
    fn make_room(&mut self, task: &Task, displaced: &mut bool) -> bool {
        loop {
            if self.running.is_empty() {
                return true;
            }
            let free_place = self.running.len() < self.limits.sequences;
            if free_place && self.spare_blocks() >= self.needed_blocks(task) {
                return true;
            }
            if let Some(victim) = self.displaceable(task) {
                self.preempt(victim);
                continue;
            }
            match self.ahead_of(task) {
                Some(victim) if !*displaced => self.preempt(victim),
                _ => return false,
            }
            *displaced = true;
        }
    }

    /// Blocks that are neither in use nor needed for known tokens of running sequences, less one for each
    /// running sequence and the new one: each may soon need another.
    fn spare_blocks(&self) -> usize {
        let missing = |task: &Task| {
            let held = task.kv.table.len().max(task.expected);
            self.pool.blocks_for(task.tokens.len()).saturating_sub(held)
        };
        let promised: usize = self.running.iter().map(missing).sum();
        let reserve = self.running.len() + 1;
        self.pool.available().saturating_sub(promised + reserve)
    }

    /// Spare blocks that `task` would take.
    fn needed_blocks(&self, task: &Task) -> usize {
        let found = task.kv.matches(&task.tokens, &self.pool);
        let idle = found.iter().filter(|block| self.pool.is_idle(**block));
        let shared = found.len().max(self.computed_by_others(task));
        self.pool.blocks_for(task.tokens.len()) - shared + idle.count()
    }

    /// Leading blocks of `task` that running sequences have or will have computed.
    fn computed_by_others(&self, task: &Task) -> usize {
        if !self.pool.caches() {
            return 0;
        }
        let size = self.pool.block_tokens();
        let alike = self
            .running
            .iter()
            .filter(|other| other.kv.salt == task.kv.salt);
        let shared = alike.map(|other| {
            let pairs = task
                .tokens
                .chunks_exact(size)
                .zip(other.tokens.chunks_exact(size));
            pairs.take_while(|(mine, theirs)| mine == theirs).count()
        });
        shared.max().unwrap_or(0).min(shareable(&task.tokens, size))
    }

    /// The sequence to preempt for `task`, if any: first a paused one, then one of lower priority, then,
    /// where nothing else could be computed, one that waits for its mask; of these the last in rank.
    fn displaceable(&self, task: &Task) -> Option<usize> {
        let paused = self.running.iter().rposition(|other| other.paused);
        let lower = |other: &Task| other.priority < task.priority;
        paused
            .or_else(|| self.running.iter().rposition(lower))
            .or_else(|| self.blocked())
    }

    /// The last in rank of the sequences that wait for masks, if they may be preempted and no running
    /// sequence can be computed.
    fn blocked(&self) -> Option<usize> {
        if !self.preempts_blocked || self.running.iter().any(Task::runnable) {
            return None;
        }
        self.running.iter().rposition(Task::awaits_mask)
    }

    /// The last in rank of the sequences whose virtual time is ahead of that of `task` by more than the
    /// tokens of a step.
    fn ahead_of(&self, task: &Task) -> Option<usize> {
        let allowance = TOKEN.saturating_mul(self.limits.tokens as u64);
        self.running.iter().rposition(|other| {
            other.priority == task.priority
                && self.fair_queue.lead(&other.share, &task.share) > allowance
        })
    }

    /// Preempt a running sequence: it loses its place and blocks and waits for readmission.
    pub(super) fn preempt(&mut self, index: usize) {
        let mut task = self.running.remove(index);
        task.release(&mut self.pool);
        self.tally.preemptions += 1;
        self.waiting.insert(task.id, task);
    }
}
