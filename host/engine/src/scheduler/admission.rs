//! Who gets a place, and who gives one up.

use std::cmp::Reverse;

use crate::shares::TOKEN;

use super::Scheduler;
use super::task::Task;

impl Scheduler {
    /// Give places to those who wait, one by one, while there is room. Whoever stands behind one
    /// that does not fit waits too, so that long ones are not starved.
    pub(super) fn admit(&mut self) {
        // Shares are evened out one sequence a step, so that nobody loses all places at once.
        let mut displaced = false;
        while let Some(mut task) = self.next_in_line() {
            if !self.make_room(&task, &mut displaced) {
                self.waiting.insert(task.id, task);
                return;
            }
            task.expected = self.computed_by_others(&task);
            if task.turn.is_none() {
                task.turn = Some(self.turns);
                self.turns += 1;
                self.queued -= 1;
                self.tally.queried_tokens += task.prompt as u64;
            }
            self.tally.hit_tokens += task.advance(&mut self.pool) as u64;
            let rank = task.rank();
            let place = self.running.partition_point(|other| other.rank() < rank);
            self.running.insert(place, task);
        }
    }

    /// Take out whose turn it is: of the highest priority, whoever has had least, by tenant and then
    /// by key, and of theirs the one that came first.
    fn next_in_line(&mut self) -> Option<Task> {
        let candidates = self.waiting.values().filter(|task| task.runnable());
        let next = candidates.min_by_key(|task| {
            let standing = self.shares.standing(&task.share);
            (Reverse(task.priority), standing, task.id)
        });
        let id = next?.id;
        self.waiting.remove(&id)
    }

    /// See that there is a place and room for the known tokens of `task`, if need be by displacing
    /// others; `displaced` says whether somebody already was for having had too much. Returns whether
    /// there is room.
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

    /// Blocks that neither are in use nor will be for tokens that are known, less one for each
    /// sequence that runs and for one more: each may soon need another.
    fn spare_blocks(&self) -> usize {
        let missing = |task: &Task| {
            let held = task.table.len().max(task.expected);
            self.pool.blocks_for(task.tokens.len()).saturating_sub(held)
        };
        let promised: usize = self.running.iter().map(missing).sum();
        let reserve = self.running.len() + 1;
        self.pool.available().saturating_sub(promised + reserve)
    }

    /// Blocks that `task` would take from those spare.
    fn needed_blocks(&self, task: &Task) -> usize {
        let found = task.matches(&self.pool);
        let idle = found.iter().filter(|block| self.pool.is_idle(**block));
        let shared = found.len().max(self.computed_by_others(task));
        self.pool.blocks_for(task.tokens.len()) - shared + idle.count()
    }

    /// Blocks at the start of `task` that those who run have or will have.
    fn computed_by_others(&self, task: &Task) -> usize {
        if !self.pool.caches() {
            return 0;
        }
        let size = self.pool.block_tokens();
        let alike = self.running.iter().filter(|other| other.salt == task.salt);
        let shared = alike.map(|other| {
            let pairs = task
                .tokens
                .chunks_exact(size)
                .zip(other.tokens.chunks_exact(size));
            pairs.take_while(|(mine, theirs)| mine == theirs).count()
        });
        shared.max().unwrap_or(0).min(task.shareable(size))
    }

    /// Who must yield to `task`, if anybody: first one that is paused, then one of lower priority;
    /// of those, the last in rank.
    fn displaceable(&self, task: &Task) -> Option<usize> {
        let paused = self.running.iter().rposition(|other| other.paused);
        let lower = |other: &Task| other.priority < task.priority;
        paused.or_else(|| self.running.iter().rposition(lower))
    }

    /// The last in rank of those whose share has had more than a step's tokens more than that of
    /// `task`.
    fn ahead_of(&self, task: &Task) -> Option<usize> {
        let allowance = TOKEN.saturating_mul(self.limits.tokens as u64);
        self.running.iter().rposition(|other| {
            other.priority == task.priority
                && self.shares.lead(&other.share, &task.share) > allowance
        })
    }

    /// Take place and blocks from a running sequence, which waits until it gets them back.
    pub(super) fn preempt(&mut self, index: usize) {
        let mut task = self.running.remove(index);
        task.give_up(&mut self.pool);
        self.tally.preemptions += 1;
        self.waiting.insert(task.id, task);
    }
}
