//! The block table of one sequence, whose leading full blocks are in the radix tree.

use crate::block_pool::{BlockPool, Parent, Salt};

/// Blocks of one sequence. The tokens themselves are kept elsewhere and handed in.
#[derive(Debug, Default)]
pub(crate) struct CachedPrefix {
    /// Sequences with equal salts share blocks.
    pub(crate) salt: Salt,
    /// In the order of the tokens. The first `committed` are in the tree and never written again.
    pub(crate) table: Vec<u32>,
    pub(crate) committed: usize,
    /// Tokens whose keys and values are in the cache.
    pub(crate) computed: usize,
}

impl CachedPrefix {
    pub(crate) fn new(salt: Salt) -> Self {
        Self {
            salt,
            ..Self::default()
        }
    }

    /// The parent of the block after the first `blocks` of these.
    fn parent(&self, blocks: &[u32]) -> Parent {
        match blocks.last() {
            Some(block) => Parent::Block(*block),
            None => Parent::Root(self.salt.clone()),
        }
    }

    /// The first block that is not in the tree yet, if all its tokens are known: its parent and its
    /// tokens.
    pub(crate) fn frontier<'a>(
        &self,
        tokens: &'a [u32],
        block_tokens: usize,
    ) -> Option<(Parent, &'a [u32])> {
        let first = self.committed * block_tokens;
        let tokens = tokens.get(first..first + block_tokens)?;
        Some((self.parent(&self.table[..self.committed]), tokens))
    }

    /// Blocks that the tree holds for `tokens`.
    pub(crate) fn matches(&self, tokens: &[u32], pool: &BlockPool) -> Vec<u32> {
        let mut found = Vec::new();
        let chunks = tokens.chunks_exact(pool.block_tokens());
        for tokens in chunks.take(shareable(tokens, pool.block_tokens())) {
            match pool.find(&self.parent(&found), tokens) {
                Some(block) => found.push(block),
                None => break,
            }
        }
        found
    }

    /// Take blocks from the tree as far as it holds `tokens`.
    pub(crate) fn advance(&mut self, tokens: &[u32], pool: &mut BlockPool) {
        let size = pool.block_tokens();
        while self.committed < shareable(tokens, size) {
            let Some((parent, tokens)) = self.frontier(tokens, size) else {
                break;
            };
            let Some(block) = pool.find(&parent, tokens) else {
                break;
            };
            pool.acquire(block);
            match self.table.get_mut(self.committed) {
                // Another sequence completed the block that this one was filling.
                Some(own) => pool.release([std::mem::replace(own, block)]),
                None => self.table.push(block),
            }
            self.committed += 1;
            self.computed = self.computed.max(self.committed * size);
        }
    }

    /// Put the computed full blocks of `tokens` into the tree.
    pub(crate) fn commit(&mut self, tokens: &[u32], pool: &mut BlockPool) {
        let size = pool.block_tokens();
        while (self.committed + 1) * size <= self.computed {
            let first = self.committed * size;
            let parent = self.parent(&self.table[..self.committed]);
            let own = self.table[self.committed];
            let tokens = &tokens[first..first + size];
            self.table[self.committed] = pool.commit(parent, tokens, own);
            self.committed += 1;
        }
    }

    /// Release the blocks after the first `kept`, which are all private.
    pub(crate) fn truncate(&mut self, kept: usize, pool: &mut BlockPool) {
        let kept = kept.min(self.table.len());
        pool.release(self.table.drain(kept..).rev());
    }

    /// Release all blocks.
    pub(crate) fn release(&mut self, pool: &mut BlockPool) {
        pool.release(self.table.drain(..).rev());
        self.committed = 0;
        self.computed = 0;
    }
}

/// Most blocks that a sequence may take from the cache: at least its last token is computed for its
/// logits.
pub(crate) fn shareable(tokens: &[u32], block_tokens: usize) -> usize {
    tokens.len().saturating_sub(1) / block_tokens
}
