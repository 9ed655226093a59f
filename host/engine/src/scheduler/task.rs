//! One sequence as the scheduler sees it.

use std::cmp::Reverse;

use crate::block_pool::{BlockPool, Parent, Salt};
use crate::draft::DraftLength;
use crate::shares::Share;

use super::{Arrival, SequenceId};

/// Where a sequence stands among those that run: lower is better.
pub(super) type Rank = (Reverse<i32>, u64);

#[derive(Debug)]
pub(super) struct Task {
    pub(super) id: SequenceId,
    pub(super) tokens: Vec<u32>,
    /// Tokens of the prompt.
    pub(super) prompt: usize,
    pub(super) tokens_max: usize,
    pub(super) priority: i32,
    pub(super) salt: Salt,
    pub(super) share: Share,
    /// As the how-manieth it was admitted first; `None` before that.
    pub(super) turn: Option<u64>,
    /// Its blocks. The first `committed` are in the tree and never written again.
    pub(super) table: Vec<u32>,
    pub(super) committed: usize,
    /// Blocks from the first on that it will have from others, as it seemed when it was admitted.
    pub(super) expected: usize,
    /// Tokens whose keys and values are in the cache; at most those known.
    pub(super) computed: usize,
    /// The most that was ever computed, preemptions apart.
    pub(super) reached: usize,
    /// Prompt tokens found in the cache.
    pub(super) cached: usize,
    pub(super) paused: bool,
    /// All tokens were computed, and what follows is not decided yet.
    pub(super) scored: bool,
    /// It was scored since it was last admitted.
    pub(super) decoding: bool,
    pub(super) draft_length: DraftLength,
}

impl Task {
    pub(super) fn new(arrival: Arrival) -> Self {
        Self {
            id: arrival.id,
            prompt: arrival.prompt.len(),
            tokens: arrival.prompt,
            tokens_max: arrival.tokens_max,
            priority: arrival.priority,
            salt: arrival.salt,
            share: arrival.share,
            turn: None,
            table: Vec::new(),
            committed: 0,
            expected: 0,
            computed: 0,
            reached: 0,
            cached: 0,
            paused: false,
            scored: false,
            decoding: false,
            draft_length: DraftLength::new(arrival.draft_max),
        }
    }

    /// Whether it would compute something if it had a place.
    pub(super) fn runnable(&self) -> bool {
        !self.paused && !self.scored
    }

    pub(super) fn rank(&self) -> Rank {
        (Reverse(self.priority), self.turn.unwrap_or(u64::MAX))
    }

    /// Known tokens that are not computed.
    pub(super) fn remaining(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// Blocks that it may have from others: at least the last token is its own to compute.
    pub(super) fn shareable(&self, block_tokens: usize) -> usize {
        (self.tokens.len() - 1) / block_tokens
    }

    /// The parent of the block after the first `blocks` of these.
    pub(super) fn parent(&self, blocks: &[u32]) -> Parent {
        match blocks.last() {
            Some(block) => Parent::Block(*block),
            None => Parent::Root(self.salt.clone()),
        }
    }

    /// The first block that is not in the tree yet, if all its tokens are known: its parent and its
    /// tokens.
    pub(super) fn frontier(&self, block_tokens: usize) -> Option<(Parent, &[u32])> {
        let first = self.committed * block_tokens;
        let tokens = self.tokens.get(first..first + block_tokens)?;
        Some((self.parent(&self.table[..self.committed]), tokens))
    }

    /// Blocks that the tree holds for the known tokens.
    pub(super) fn matches(&self, pool: &BlockPool) -> Vec<u32> {
        let mut found = Vec::new();
        let chunks = self.tokens.chunks_exact(pool.block_tokens());
        for tokens in chunks.take(self.shareable(pool.block_tokens())) {
            match pool.find(&self.parent(&found), tokens) {
                Some(block) => found.push(block),
                None => break,
            }
        }
        found
    }

    /// Go on as far as the tree holds blocks for the known tokens. Returns the prompt tokens that
    /// were found so for the first time.
    pub(super) fn advance(&mut self, pool: &mut BlockPool) -> usize {
        let size = pool.block_tokens();
        let before = self.computed;
        while self.committed < self.shareable(size) {
            let Some((parent, tokens)) = self.frontier(size) else {
                break;
            };
            let Some(block) = pool.find(&parent, tokens) else {
                break;
            };
            pool.acquire(block);
            match self.table.get_mut(self.committed) {
                // What was begun is there already, complete.
                Some(own) => pool.release([std::mem::replace(own, block)]),
                None => self.table.push(block),
            }
            self.committed += 1;
            self.computed = self.committed * size;
        }
        let new = self.computed.min(self.prompt);
        let new = new.saturating_sub(before.max(self.reached));
        self.reached = self.reached.max(self.computed);
        self.cached += new;
        new
    }

    /// Give the full blocks their place in the tree.
    pub(super) fn commit_blocks(&mut self, pool: &mut BlockPool) {
        let size = pool.block_tokens();
        while (self.committed + 1) * size <= self.computed {
            let first = self.committed * size;
            let parent = self.parent(&self.table[..self.committed]);
            let own = self.table[self.committed];
            let tokens = &self.tokens[first..first + size];
            self.table[self.committed] = pool.commit(parent, tokens, own);
            self.committed += 1;
        }
    }

    /// Give up all blocks.
    pub(super) fn give_up(&mut self, pool: &mut BlockPool) {
        pool.release(self.table.drain(..).rev());
        self.committed = 0;
        self.expected = 0;
        self.computed = 0;
        self.decoding = false;
    }
}
