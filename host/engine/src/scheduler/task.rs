//! One sequence as the scheduler sees it.

use std::cmp::Reverse;

use crate::block_pool::BlockPool;
use crate::cache_shares::AccountId;
use crate::cached_prefix::CachedPrefix;
use crate::fair_queue::Share;
use crate::prompt_lookup::DraftLength;

use super::{Arrival, SequenceId};

/// Order of preemption among running sequences: the highest rank is preempted first.
pub(super) type Rank = (Reverse<i32>, u64);

#[derive(Debug)]
pub(super) struct StepTask {
    pub(super) id: SequenceId,
    pub(super) tokens: Vec<u32>,
    /// Tokens of the prompt.
    pub(super) prompt: usize,
    pub(super) tokens_max: usize,
    pub(super) priority: i32,
    pub(super) share: Share,
    /// Number of its first admission; `None` before that.
    pub(super) admission: Option<u64>,
    /// Account of its tenant in the shares of the cache.
    pub(super) account: AccountId,
    /// Its blocks, with at most the known tokens in them.
    pub(super) kv: CachedPrefix,
    /// Leading blocks that it expects to take from the cache, estimated at admission.
    pub(super) expected: usize,
    /// Most tokens ever computed, regardless of preemptions.
    pub(super) reached: usize,
    /// Prompt tokens found in the cache.
    pub(super) cached: usize,
    pub(super) paused: bool,
    /// All known tokens are computed, and the next one is not committed yet.
    pub(super) scored: bool,
    /// Scored since its last admission.
    pub(super) decoding: bool,
    pub(super) draft_length: DraftLength,
    /// The prompt is computed for the logits of all its tokens, and takes nothing from the cache.
    pub(super) scores_prompt: bool,
}

impl StepTask {
    pub(super) fn new(arrival: Arrival, account: AccountId) -> Self {
        Self {
            id: arrival.id,
            prompt: arrival.prompt.len(),
            tokens: arrival.prompt,
            tokens_max: arrival.tokens_max,
            priority: arrival.priority,
            share: arrival.share,
            admission: None,
            account,
            kv: CachedPrefix::new(arrival.salt),
            expected: 0,
            reached: 0,
            cached: 0,
            paused: false,
            scored: false,
            decoding: false,
            draft_length: DraftLength::new(arrival.draft_max),
            scores_prompt: arrival.scores_prompt,
        }
    }

    /// Whether it has tokens to compute and is not paused.
    pub(super) fn runnable(&self) -> bool {
        !self.paused && !self.scored
    }

    /// Whether it holds its place only to wait for a mask.
    pub(super) fn awaits_mask(&self) -> bool {
        self.scored && !self.paused
    }

    pub(super) fn rank(&self) -> Rank {
        (Reverse(self.priority), self.admission.unwrap_or(u64::MAX))
    }

    /// Known tokens that are not computed.
    pub(super) fn remaining(&self) -> usize {
        self.tokens.len() - self.kv.computed
    }

    /// Take blocks from the cache as far as it holds the known tokens. Returns the prompt tokens that
    /// were found there for the first time.
    pub(super) fn advance(&mut self, pool: &mut BlockPool) -> usize {
        if self.scores_prompt {
            return 0;
        }
        let before = self.kv.computed;
        self.kv.advance(&self.tokens, pool);
        let new = self.kv.computed.min(self.prompt);
        let new = new.saturating_sub(before.max(self.reached));
        self.reached = self.reached.max(self.kv.computed);
        self.cached += new;
        new
    }

    /// Release all blocks.
    pub(super) fn release(&mut self, pool: &mut BlockPool) {
        self.kv.release(pool);
        self.expected = 0;
        self.decoding = false;
    }
}
