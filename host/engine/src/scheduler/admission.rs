//! Admission and preemption.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cached_prefix::shareable;
use crate::fair_queue::TOKEN;

use super::Scheduler;
use super::task::StepTask;

/// Running sequences by tenant, and the number that each tenant is entitled to.
pub(super) type Served = BTreeMap<Arc<str>, (usize, usize)>;

/// Order of admission and prefill: lower is sooner.
pub(super) type AdmissionOrder = (Reverse<i32>, u64, bool, u64);

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

    /// Remove the next sequence to admit: the first by [`turn`](Self::turn), and of these the first to
    /// arrive.
    fn next_in_line(&mut self) -> Option<StepTask> {
        let candidates = self.waiting.values().filter(|task| task.runnable());
        let served = self.served();
        let next = candidates.min_by_key(|task| (self.turn(task, &served), task.id));
        let id = next?.id;
        self.waiting.remove(&id)
    }

    /// Running sequences of each tenant that has any, and its entitlement.
    pub(super) fn served(&self) -> Served {
        let mut served = Served::new();
        for task in &self.running {
            let (running, entitled) = served.entry(Arc::clone(&task.share.tenant)).or_default();
            if *running == 0 {
                let places = self.limits.sequences;
                *entitled = self.fair_queue.entitlement(&task.share.tenant, places);
            }
            *running += 1;
        }
        served
    }

    /// The order in which sequences are admitted and prompts are computed: by priority, then the tenant
    /// with the lowest virtual time, of equals one below its entitlement, then by key.
    pub(super) fn turn(&self, task: &StepTask, served: &Served) -> AdmissionOrder {
        let (tenant, key) = self.fair_queue.virtual_time(&task.share);
        let served = served.get(&task.share.tenant);
        let full = served.is_some_and(|(running, entitled)| running >= entitled);
        (Reverse(task.priority), tenant, full, key)
    }

    /// Make room for the known tokens of `task`, if need be by preemption; `displaced` says whether this
    /// step preempted a sequence for fairness already. Returns whether there is room.
    fn make_room(&mut self, task: &StepTask, displaced: &mut bool) -> bool {
        loop {
            if self.running.is_empty() {
                return true;
            }
            let free_place = self.running.len() < self.limits.sequences;
            if free_place && self.spare_blocks(task) >= self.needed_blocks(task) {
                return true;
            }
            let victim = self.displaceable(task);
            if let Some(victim) = victim.or_else(|| self.above_share(task, free_place)) {
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

    /// Blocks that `task` may take and that are not needed for known tokens of running sequences, less one
    /// for each running sequence and for `task`: each may soon need another.
    fn spare_blocks(&self, task: &StepTask) -> usize {
        let missing = |task: &StepTask| {
            let held = task.kv.table.len().max(task.expected);
            self.pool.blocks_for(task.tokens.len()).saturating_sub(held)
        };
        let promised: usize = self.running.iter().map(missing).sum();
        let reserve = self.running.len() + 1;
        let available = self.pool.available_to(task.account);
        available.saturating_sub(promised + reserve)
    }

    /// Spare blocks that `task` would take.
    fn needed_blocks(&self, task: &StepTask) -> usize {
        if task.scores_prompt {
            return self.pool.blocks_for(task.tokens.len());
        }
        let found = task.kv.matches(&task.tokens, &self.pool);
        let idle = found.iter().filter(|block| self.pool.is_idle(**block));
        let shared = found.len().max(self.computed_by_others(task));
        self.pool.blocks_for(task.tokens.len()) - shared + idle.count()
    }

    /// Leading blocks of `task` that running sequences have or will have computed.
    fn computed_by_others(&self, task: &StepTask) -> usize {
        if !self.pool.caches() || task.scores_prompt {
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
    fn displaceable(&self, task: &StepTask) -> Option<usize> {
        let paused = self.running.iter().rposition(|other| other.paused);
        let lower = |other: &StepTask| other.priority < task.priority;
        paused
            .or_else(|| self.running.iter().rposition(lower))
            .or_else(|| self.blocked())
    }

    /// The last in rank of the sequences that wait for masks, if they may be preempted and no running
    /// sequence can be computed.
    fn blocked(&self) -> Option<usize> {
        if !self.preempts_blocked || self.running.iter().any(StepTask::runnable) {
            return None;
        }
        self.running.iter().rposition(StepTask::awaits_mask)
    }

    /// The last in rank of the sequences that hold what the tenant of `task` is entitled to: a place, if
    /// none is free, or else blocks. A tenant within its share does not wait until another, which holds
    /// more than its own, has fallen behind in virtual time.
    fn above_share(&self, task: &StepTask, free_place: bool) -> Option<usize> {
        let served = self.served();
        let shares = self.pool.shares();
        let within = match free_place {
            true => shares.is_within_share(task.account, self.needed_blocks(task)),
            // A tenant with no sequence running is entitled to one at least.
            false => served
                .get(&task.share.tenant)
                .is_none_or(|(running, entitled)| running < entitled),
        };
        if !within {
            return None;
        }
        self.running.iter().rposition(|other| {
            other.priority == task.priority
                && other.share.tenant != task.share.tenant
                && match free_place {
                    true => shares.uses_more_than_share(other.account),
                    false => served
                        .get(&other.share.tenant)
                        .is_some_and(|(running, entitled)| running > entitled),
                }
        })
    }

    /// The last in rank of the sequences whose virtual time is ahead of that of `task` by more than the
    /// tokens of a step.
    fn ahead_of(&self, task: &StepTask) -> Option<usize> {
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
