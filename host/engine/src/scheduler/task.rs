//! One sequence as the scheduler sees it.

use std::cmp::Reverse;

use crate::block_pool::BlockPool;
use crate::cached_prefix::CachedPrefix;
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
    pub(super) share: Share,
    /// As the how-manieth it was admitted first; `None` before that.
    pub(super) turn: Option<u64>,
    /// Its blocks, with at most the known tokens in them.
    pub(super) kv: CachedPrefix,
    /// Blocks from the first on that it will have from others, as it seemed when it was admitted.
    pub(super) expected: usize,
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
            share: arrival.share,
            turn: None,
            kv: CachedPrefix::new(arrival.salt),
            expected: 0,
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
        self.tokens.len() - self.kv.computed
    }

    /// Go on as far as the tree holds blocks for the known tokens. Returns the prompt tokens that
    /// were found so for the first time.
    pub(super) fn advance(&mut self, pool: &mut BlockPool) -> usize {
        let before = self.kv.computed;
        self.kv.advance(&self.tokens, pool);
        let new = self.kv.computed.min(self.prompt);
        let new = new.saturating_sub(before.max(self.reached));
        self.reached = self.reached.max(self.kv.computed);
        self.cached += new;
        new
    }

    /// Give up all blocks.
    pub(super) fn give_up(&mut self, pool: &mut BlockPool) {
        self.kv.give_up(pool);
        self.expected = 0;
        self.decoding = false;
    }
}
