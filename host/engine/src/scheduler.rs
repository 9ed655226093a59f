//! Who computes which tokens in the next step: a state machine of integers. It knows no logits, no
//! clock and no thread.
//!
//! ```text
//! enqueue → waiting ⇄ running → remove        (⇄: admitted, and preempted where room is short)
//! ```
//!
//! A sequence has *known* tokens (the prompt, and every token committed since) of which the first
//! *computed* have their keys and values in the cache. It takes part in a step while it has tokens
//! to compute and is not paused; once all are computed it is *scored* and waits to be extended. Its
//! last token may be *undecided*: steps are planned with it as with any other, and it is known before
//! [`Scheduler::computed`] hears of it.
//!
//! Sequences are ranked by priority, and among equals by who was admitted first. A sequence is
//! admitted when there is room for the tokens that it has, not for those that it may come to have.
//! When blocks run out, the last in rank gives its own up and waits; later it is computed again, as
//! far as the cache has forgotten it. The first in rank can displace all others, so that it always
//! goes on, and everyone is first at last.

mod admission;
mod plan;
mod task;

use std::collections::BTreeMap;

use crate::block_pool::{BlockPool, Salt};
use crate::shares::{Share, Shares};

use self::task::Task;

/// Names a sequence for as long as the engine lives. Later arrivals have higher numbers.
pub(crate) type SequenceId = u64;

/// Stands for a token that is chosen and not known yet. No vocabulary is as large.
pub(crate) const UNDECIDED: u32 = u32::MAX;

/// Bounds of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepLimits {
    /// Sequences that run at once.
    pub(crate) sequences: usize,
    /// Tokens computed in one step; at least as many as sequences, so that each can decode.
    pub(crate) tokens: usize,
}

/// A sequence to be queued.
#[derive(Debug, Default)]
pub(crate) struct Arrival {
    pub(crate) id: SequenceId,
    /// At least one token.
    pub(crate) prompt: Vec<u32>,
    /// The sequence will never have more tokens: a number that the cache must be able to hold.
    pub(crate) tokens_max: usize,
    /// Higher ones come first, whatever the shares.
    pub(crate) priority: i32,
    /// Who may share its blocks.
    pub(crate) salt: Salt,
    /// Whose turn it takes.
    pub(crate) share: Share,
    /// Most tokens to draft in a step; 0 drafts none.
    pub(crate) draft_max: usize,
}

/// Tokens of one sequence to be computed in a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) id: SequenceId,
    /// Position of the first.
    pub(crate) first: usize,
    /// Known tokens to compute.
    pub(crate) count: usize,
    /// Whether these are the last known tokens, so that the next one is to be sampled.
    pub(crate) last: bool,
    /// Tokens that may follow, computed on the chance that they do. Only after a single last token.
    pub(crate) draft: Vec<u32>,
}

/// What the scheduler has counted so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Prompt tokens of the sequences that were admitted.
    pub(crate) queried_tokens: u64,
    /// Of those, tokens that were found in the cache.
    pub(crate) hit_tokens: u64,
    /// Sequences that had to give up their blocks.
    pub(crate) preemptions: u64,
    /// Tokens computed that had been computed before, for sequences that were preempted.
    pub(crate) recomputed_tokens: u64,
    /// Tokens computed as drafts.
    pub(crate) drafted_tokens: u64,
    /// Of those, tokens that turned out to follow.
    pub(crate) accepted_tokens: u64,
}

#[derive(Debug)]
pub(crate) struct Scheduler {
    limits: StepLimits,
    pool: BlockPool,
    shares: Shares,
    waiting: BTreeMap<SequenceId, Task>,
    /// By rank, the first in rank first.
    running: Vec<Task>,
    /// Admissions so far, each sequence counted once.
    turns: u64,
    /// Sequences that were never admitted.
    queued: usize,
    tally: Tally,
    /// Most tokens of prompts in a step in which somebody decodes.
    prefill_chunk: usize,
}

impl Scheduler {
    pub(crate) fn new(limits: StepLimits, pool: BlockPool) -> Self {
        Self {
            limits,
            pool,
            shares: Shares::default(),
            waiting: BTreeMap::new(),
            running: Vec::new(),
            turns: 0,
            queued: 0,
            tally: Tally::default(),
            prefill_chunk: usize::MAX,
        }
    }

    /// From now on, prompts have at most so many tokens in a step in which somebody decodes.
    pub(crate) fn set_prefill_chunk(&mut self, tokens: usize) {
        self.prefill_chunk = tokens.max(1);
    }

    pub(crate) fn pool(&self) -> &BlockPool {
        &self.pool
    }

    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// Whether a sequence waits for its first turn.
    pub(crate) fn is_queued(&self, id: SequenceId) -> bool {
        let waiting = self.waiting.get(&id);
        waiting.is_some_and(|task| task.turn.is_none())
    }

    /// Sequences that wait for their first turn. For tests.
    #[cfg(test)]
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// Sequences that gave up their blocks and wait to go on.
    pub(crate) fn preempted(&self) -> usize {
        self.waiting.len() - self.queued
    }

    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    /// Queue a sequence.
    pub(crate) fn enqueue(&mut self, arrival: Arrival) {
        self.shares.enter(&arrival.share);
        self.queued += 1;
        self.waiting.insert(arrival.id, Task::new(arrival));
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

    /// Who may share the blocks of a sequence.
    pub(crate) fn salt(&self, id: SequenceId) -> Salt {
        self.task(id).and_then(|task| task.kv.salt.clone())
    }

    /// Whether a running sequence has come past its prompt.
    pub(crate) fn decodes(&self, id: SequenceId) -> bool {
        self.running
            .iter()
            .any(|task| task.id == id && task.decoding)
    }

    /// The known tokens of a slice are in the cache.
    pub(crate) fn computed(&mut self, slice: &Slice) {
        let Some(task) = self.running.iter_mut().find(|task| task.id == slice.id) else {
            return;
        };
        let end = slice.first + slice.count;
        let anew = end.saturating_sub(task.reached.max(slice.first));
        self.tally.recomputed_tokens += (slice.count - anew) as u64;
        self.tally.drafted_tokens += slice.draft.len() as u64;
        // What was lost to others is computed again at nobody's cost.
        self.shares.charge(&task.share, anew);
        task.reached = task.reached.max(end);
        task.kv.computed = end;
        task.scored = slice.last;
        task.decoding |= slice.last;
        task.kv.commit(&task.tokens, &mut self.pool);
    }

    /// A token was committed: the one that was undecided, or else another one.
    pub(crate) fn extend(&mut self, id: SequenceId, token: u32) {
        let Some(task) = self.task_mut(id) else {
            return;
        };
        match task.tokens.last_mut() {
            Some(last) if *last == UNDECIDED => *last = token,
            _ => {
                task.tokens.push(token);
                task.scored = false;
            }
        }
    }

    /// Let sequences go on as others: each of `branches` names one, whose tokens it takes over, and the
    /// token that follows. Full blocks are shared; what is left of the last one is computed again.
    pub(crate) fn branch(&mut self, branches: &[(SequenceId, SequenceId, u32)]) {
        let others = branches.iter().filter(|(id, parent, _)| id != parent);
        let mut taken = Vec::new();
        // What is taken over is referred to before anything is given up.
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
            task.kv.give_up(&mut self.pool);
            task.kv.committed = blocks.len();
            task.kv.computed = blocks.len() * self.pool.block_tokens();
            task.kv.table = blocks;
            task.reached = tokens.len();
            task.tokens = tokens;
            // It is somewhere in the middle, wherever its own tokens had got to.
            task.decoding = task.kv.computed > 0;
        }
        for (id, _, token) in branches {
            self.extend(*id, *token);
        }
    }

    /// The token that was committed last had been computed as a draft.
    pub(crate) fn confirm_draft(&mut self, id: SequenceId) {
        let Some(task) = self.running.iter_mut().find(|task| task.id == id) else {
            return;
        };
        self.tally.accepted_tokens += 1;
        self.shares.charge(&task.share, 1);
        task.kv.computed += 1;
        task.reached = task.reached.max(task.kv.computed);
        task.scored = true;
        task.kv.commit(&task.tokens, &mut self.pool);
    }

    /// All drafts of a step are judged, `accepted` of them followed: give up the blocks of the rest.
    pub(crate) fn settle_drafts(&mut self, slice: &Slice, accepted: usize) {
        if slice.draft.is_empty() {
            return;
        }
        if let Some(task) = self.running.iter_mut().find(|task| task.id == slice.id) {
            task.draft_length.judge(slice.draft.len(), accepted);
            let kept = self.pool.blocks_for(task.tokens.len());
            task.kv.truncate(kept, &mut self.pool);
        }
    }

    /// A paused sequence takes part in no step. It keeps its blocks until somebody needs them.
    pub(crate) fn set_paused(&mut self, id: SequenceId, paused: bool) {
        if let Some(task) = self.task_mut(id) {
            task.paused = paused;
        }
    }

    /// Forget a sequence, wherever it is. Its full blocks stay in the cache until they are needed.
    pub(crate) fn remove(&mut self, id: SequenceId) {
        let task = match self.running.iter().position(|task| task.id == id) {
            Some(index) => Some(self.running.remove(index)),
            None => self.waiting.remove(&id),
        };
        let Some(mut task) = task else { return };
        if task.turn.is_none() {
            self.queued -= 1;
        }
        task.kv.give_up(&mut self.pool);
        self.shares.leave(&task.share);
    }

    fn task(&self, id: SequenceId) -> Option<&Task> {
        let running = self.running.iter().find(|task| task.id == id);
        running.or_else(|| self.waiting.get(&id))
    }

    fn task_mut(&mut self, id: SequenceId) -> Option<&mut Task> {
        let running = self.running.iter_mut().find(|task| task.id == id);
        running.or_else(|| self.waiting.get_mut(&id))
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
