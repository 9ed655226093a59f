//! Who computes which tokens in the next step: a state machine of integers. It knows no tokens, no
//! clock and no thread.
//!
//! ```text
//! enqueue → waiting → (a place and all its blocks are free) → running → remove
//! ```
//!
//! A running sequence has *known* tokens (the prompt, and every token committed since) of which the
//! first *computed* have their keys and values in the cache. It takes part in a step while it has
//! tokens to compute and is not paused; once all are computed it waits to be extended.

use std::collections::VecDeque;

use crate::block_pool::{BlockPool, BlockTable};

/// Names a sequence for as long as the engine lives.
pub(crate) type SequenceId = u64;

/// Bounds of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepLimits {
    /// Sequences that run at once.
    pub(crate) sequences: usize,
    /// Tokens computed in one step; at least as many as sequences, so that each can decode.
    pub(crate) tokens: usize,
}

/// Tokens `first..first + count` of one sequence, to be computed in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) id: SequenceId,
    pub(crate) first: usize,
    pub(crate) count: usize,
    /// Whether these are the last known tokens, so that the next one is to be sampled.
    pub(crate) last: bool,
}

#[derive(Debug)]
pub(crate) struct Scheduler {
    limits: StepLimits,
    pool: BlockPool,
    /// By falling priority, and among equals in order of arrival.
    waiting: VecDeque<Waiting>,
    /// In order of admission.
    running: Vec<Running>,
}

#[derive(Debug)]
struct Waiting {
    id: SequenceId,
    prompt: usize,
    tokens_max: usize,
    priority: i32,
}

#[derive(Debug)]
struct Running {
    id: SequenceId,
    table: BlockTable,
    prompt: usize,
    known: usize,
    /// At most `known`.
    computed: usize,
    paused: bool,
}

impl Running {
    fn runnable(&self) -> bool {
        !self.paused && self.computed < self.known
    }

    fn decodes(&self) -> bool {
        self.computed >= self.prompt
    }
}

impl Scheduler {
    pub(crate) fn new(limits: StepLimits, pool: BlockPool) -> Self {
        Self {
            limits,
            pool,
            waiting: VecDeque::new(),
            running: Vec::new(),
        }
    }

    pub(crate) fn pool(&self) -> &BlockPool {
        &self.pool
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    /// Queue a sequence of `prompt` tokens that will never have more than `tokens_max`, a number
    /// that the cache must be able to hold. It stands before all of lower priority.
    pub(crate) fn enqueue(
        &mut self,
        id: SequenceId,
        prompt: usize,
        tokens_max: usize,
        priority: i32,
    ) {
        let place = self
            .waiting
            .partition_point(|other| other.priority >= priority);
        self.waiting.insert(
            place,
            Waiting {
                id,
                prompt,
                tokens_max,
                priority,
            },
        );
    }

    /// Admit whom there is room for, then plan a step: one token for each sequence that decodes,
    /// and what the budget leaves for prompts, in order of admission.
    pub(crate) fn schedule(&mut self) -> Vec<Slice> {
        self.admit();
        let mut budget = self.limits.tokens;
        let mut plan = Vec::new();
        for decoding in [true, false] {
            for sequence in &mut self.running {
                if !sequence.runnable() || sequence.decodes() != decoding || budget == 0 {
                    continue;
                }
                let count = (sequence.known - sequence.computed).min(budget);
                let end = sequence.computed + count;
                if !self.pool.grow(&mut sequence.table, end) {
                    // Only a sequence that outgrew its reservation comes here; it stays put.
                    continue;
                }
                budget -= count;
                plan.push(Slice {
                    id: sequence.id,
                    first: sequence.computed,
                    count,
                    last: end == sequence.known,
                });
            }
        }
        plan
    }

    /// First in line, first served: whoever stands behind a sequence that does not fit waits too, so
    /// that long ones are not starved.
    fn admit(&mut self) {
        while self.running.len() < self.limits.sequences {
            let Some(next) = self.waiting.front() else {
                return;
            };
            let Some(table) = self.pool.reserve(next.tokens_max) else {
                return;
            };
            self.running.push(Running {
                id: next.id,
                table,
                prompt: next.prompt,
                known: next.prompt,
                computed: 0,
                paused: false,
            });
            self.waiting.pop_front();
        }
    }

    /// The blocks of a running sequence.
    pub(crate) fn blocks(&self, id: SequenceId) -> &[u32] {
        let sequence = self.running.iter().find(|sequence| sequence.id == id);
        sequence.map_or(&[], |sequence| sequence.table.blocks())
    }

    /// The tokens of a slice are in the cache.
    pub(crate) fn computed(&mut self, slice: &Slice) {
        if let Some(sequence) = self.find(slice.id) {
            sequence.computed = slice.first + slice.count;
        }
    }

    /// A token was committed.
    pub(crate) fn extend(&mut self, id: SequenceId) {
        if let Some(sequence) = self.find(id) {
            sequence.known += 1;
        }
    }

    /// A paused sequence keeps its blocks and takes part in no step.
    pub(crate) fn set_paused(&mut self, id: SequenceId, paused: bool) {
        if let Some(sequence) = self.find(id) {
            sequence.paused = paused;
        }
    }

    /// Forget a sequence, wherever it is, and free its blocks.
    pub(crate) fn remove(&mut self, id: SequenceId) {
        self.waiting.retain(|sequence| sequence.id != id);
        if let Some(index) = self.running.iter().position(|sequence| sequence.id == id) {
            let sequence = self.running.remove(index);
            self.pool.release(sequence.table);
        }
    }

    fn find(&mut self, id: SequenceId) -> Option<&mut Running> {
        self.running.iter_mut().find(|sequence| sequence.id == id)
    }
}

#[cfg(test)]
mod tests;
