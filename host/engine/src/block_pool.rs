//! The blocks of the KV cache as numbers: who owns which.
//!
//! A sequence reserves the blocks of its longest possible run when it is admitted and takes them
//! one by one as it grows. A reservation is a promise, not memory: blocks are touched only when
//! taken. Since promises never exceed the free blocks, a running sequence always finds its next
//! block, and sequences cannot wait for one another.

/// Free blocks and promises on them.
#[derive(Debug)]
pub(crate) struct BlockPool {
    block_tokens: usize,
    total: usize,
    /// Blocks that nobody owns; the last is handed out first.
    free: Vec<u32>,
    /// How many of the free blocks are promised; never more than there are.
    promised: usize,
}

/// The blocks of one sequence. Comes from [`BlockPool::reserve`], ends in [`BlockPool::release`].
#[derive(Debug, Default)]
pub(crate) struct BlockTable {
    blocks: Vec<u32>,
    /// Blocks promised beyond those taken.
    promised: usize,
}

impl BlockTable {
    /// The blocks in the order of the tokens that they hold.
    pub(crate) fn blocks(&self) -> &[u32] {
        &self.blocks
    }
}

impl BlockPool {
    pub(crate) fn new(total: usize, block_tokens: usize) -> Self {
        let last = u32::try_from(total).unwrap_or(u32::MAX);
        let free: Vec<u32> = (0..last).rev().collect();
        Self {
            block_tokens,
            total: free.len(),
            free,
            promised: 0,
        }
    }

    /// Blocks in all.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Blocks that hold tokens.
    pub(crate) fn used(&self) -> usize {
        self.total - self.free.len()
    }

    /// Promise the blocks for `tokens` tokens, if they are to be had.
    pub(crate) fn reserve(&mut self, tokens: usize) -> Option<BlockTable> {
        let wanted = tokens.div_ceil(self.block_tokens);
        if wanted > self.free.len() - self.promised {
            return None;
        }
        self.promised += wanted;
        Some(BlockTable {
            blocks: Vec::new(),
            promised: wanted,
        })
    }

    /// Take promised blocks until the table holds `tokens` tokens. Returns whether it does, which
    /// is so for whoever stays within the reservation.
    #[must_use]
    pub(crate) fn grow(&mut self, table: &mut BlockTable, tokens: usize) -> bool {
        while table.blocks.len() * self.block_tokens < tokens {
            if table.promised == 0 {
                return false;
            }
            let Some(block) = self.free.pop() else {
                return false;
            };
            table.promised -= 1;
            self.promised -= 1;
            table.blocks.push(block);
        }
        true
    }

    /// Give back blocks and promises.
    pub(crate) fn release(&mut self, table: BlockTable) {
        self.promised -= table.promised;
        self.free.extend(table.blocks.into_iter().rev());
    }
}
