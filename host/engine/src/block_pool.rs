//! The blocks of the KV cache as numbers: which are free, which hold tokens that somebody uses, and
//! which hold tokens that somebody may use again.
//!
//! Full blocks form a radix tree whose edges are exactly one block long: a block is found by its
//! parent and the tokens in it, so that a path from the root spells out a whole prefix. A chain of
//! hashes would need no tree, yet two prefixes with one hash would share keys and values; here the
//! tokens themselves are compared, and the table that finds them is keyed at random.
//!
//! ```text
//! free → take → private (one owner writes it) → commit → shared (read by all whose prefix it ends)
//!   ↑                     │ release                           │ release by the last reader
//!   └─────────────────────┴──────────── evict ←── idle ───────┘ acquire takes it back
//! ```
//!
//! A sequence refers to every block on its path, so whoever is referred to has a parent that is
//! referred to, and idle blocks can be evicted leaf by leaf, the least recently used first.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Keeps prefixes apart: sequences share blocks only if their salts are equal.
pub(crate) type Salt = Option<Arc<str>>;

/// Where a block hangs in the tree.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Parent {
    /// It holds the first tokens of all sequences with this salt.
    Root(Salt),
    /// It follows this block.
    Block(u32),
}

/// What a full block is found by.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Edge {
    parent: Parent,
    tokens: Box<[u32]>,
}

/// All blocks of a cache.
#[derive(Debug)]
pub(crate) struct BlockPool {
    block_tokens: usize,
    /// Whether full blocks are kept for others.
    caching: bool,
    blocks: Vec<Block>,
    /// Blocks without tokens; the last is handed out first.
    free: Vec<u32>,
    tree: HashMap<Arc<Edge>, u32>,
    /// Blocks in the tree that nobody refers to and that have no children, by when they were last
    /// used.
    evictable: BTreeSet<(u64, u32)>,
    /// Blocks in the tree that nobody refers to, with children or without.
    idle: usize,
    /// Counts releases: the measure of what was used how recently.
    releases: u64,
    evictions: u64,
}

#[derive(Debug, Default)]
struct Block {
    references: u32,
    /// `None` while the block is free or private.
    node: Option<Node>,
}

/// A block's place in the tree.
#[derive(Debug)]
struct Node {
    edge: Arc<Edge>,
    children: u32,
    last_used: u64,
}

impl BlockPool {
    /// `total` free blocks of `block_tokens` tokens. Without `caching`, nothing is shared.
    pub(crate) fn new(total: usize, block_tokens: usize, caching: bool) -> Self {
        let last = u32::try_from(total).unwrap_or(u32::MAX);
        let free: Vec<u32> = (0..last).rev().collect();
        Self {
            block_tokens,
            caching,
            blocks: free.iter().map(|_| Block::default()).collect(),
            free,
            tree: HashMap::new(),
            evictable: BTreeSet::new(),
            idle: 0,
            releases: 0,
            evictions: 0,
        }
    }

    /// Whether full blocks are kept for others.
    pub(crate) fn caches(&self) -> bool {
        self.caching
    }

    /// Tokens in a block.
    pub(crate) fn block_tokens(&self) -> usize {
        self.block_tokens
    }

    /// Blocks that `tokens` tokens take.
    pub(crate) fn blocks_for(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.block_tokens)
    }

    /// Blocks in all.
    pub(crate) fn total(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks that sequences refer to.
    pub(crate) fn used(&self) -> usize {
        self.total() - self.available()
    }

    /// Blocks that nobody refers to and that hold tokens.
    pub(crate) fn idle(&self) -> usize {
        self.idle
    }

    /// Blocks that can be taken: those free, and those idle, which are evicted for it.
    pub(crate) fn available(&self) -> usize {
        self.free.len() + self.idle
    }

    /// Blocks evicted so far.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Whether nobody refers to a block.
    pub(crate) fn is_idle(&self, block: u32) -> bool {
        self.blocks[block as usize].references == 0
    }

    /// The block that holds these tokens after that parent.
    pub(crate) fn find(&self, parent: &Parent, tokens: &[u32]) -> Option<u32> {
        if self.tree.is_empty() {
            return None;
        }
        let edge = Edge {
            parent: parent.clone(),
            tokens: tokens.into(),
        };
        self.tree.get(&edge).copied()
    }

    /// Refer to a block that was found.
    pub(crate) fn acquire(&mut self, block: u32) {
        let entry = &mut self.blocks[block as usize];
        entry.references += 1;
        if entry.references == 1
            && let Some(node) = &entry.node
        {
            self.idle -= 1;
            self.evictable.remove(&(node.last_used, block));
        }
    }

    /// A block to write: a free one, or the idle one that was not used for longest.
    pub(crate) fn take(&mut self) -> Option<u32> {
        if self.free.is_empty() {
            self.evict();
        }
        let block = self.free.pop()?;
        self.blocks[block as usize].references = 1;
        Some(block)
    }

    /// A private block is full: give it its place in the tree. Returns the block to use from now
    /// on, which is another one if the same tokens were there already; the one given is then free.
    pub(crate) fn commit(&mut self, parent: Parent, tokens: &[u32], block: u32) -> u32 {
        debug_assert_eq!(tokens.len(), self.block_tokens);
        if !self.caching {
            return block;
        }
        if let Some(same) = self.find(&parent, tokens) {
            self.acquire(same);
            self.release([block]);
            return same;
        }
        if let Parent::Block(parent) = parent
            && let Some(node) = &mut self.blocks[parent as usize].node
        {
            node.children += 1;
        }
        let edge = Arc::new(Edge {
            parent,
            tokens: tokens.into(),
        });
        self.tree.insert(Arc::clone(&edge), block);
        self.blocks[block as usize].node = Some(Node {
            edge,
            children: 0,
            last_used: 0,
        });
        block
    }

    /// Refer to these blocks no more. Private ones become free, those in the tree idle.
    pub(crate) fn release(&mut self, blocks: impl IntoIterator<Item = u32>) {
        self.releases += 1;
        for block in blocks {
            let entry = &mut self.blocks[block as usize];
            entry.references -= 1;
            if entry.references > 0 {
                continue;
            }
            match &mut entry.node {
                None => self.free.push(block),
                Some(node) => {
                    self.idle += 1;
                    node.last_used = self.releases;
                    if node.children == 0 {
                        self.evictable.insert((node.last_used, block));
                    }
                }
            }
        }
    }

    /// Free the leaf that was not used for longest.
    fn evict(&mut self) {
        let Some((_, block)) = self.evictable.pop_first() else {
            return;
        };
        let Some(node) = self.blocks[block as usize].node.take() else {
            return;
        };
        self.tree.remove(&node.edge);
        self.free.push(block);
        self.idle -= 1;
        self.evictions += 1;
        let Parent::Block(parent) = node.edge.parent else {
            return;
        };
        let entry = &mut self.blocks[parent as usize];
        if let Some(node) = &mut entry.node {
            node.children -= 1;
            if node.children == 0 && entry.references == 0 {
                self.evictable.insert((node.last_used, parent));
            }
        }
    }

    /// Check the books against who refers to which block. For tests.
    #[cfg(test)]
    pub(crate) fn audit(&self, references: &std::collections::BTreeMap<u32, u32>) {
        let mut idle = 0;
        let mut seen = BTreeSet::new();
        for (number, block) in self.blocks.iter().enumerate() {
            let number = number as u32;
            let expected = references.get(&number).copied().unwrap_or(0);
            assert_eq!(block.references, expected, "references to block {number}");
            let is_free = self.free.contains(&number);
            assert_eq!(
                is_free,
                expected == 0 && block.node.is_none(),
                "block {number} is lost, or free and in use"
            );
            assert!(
                !is_free || seen.insert(number),
                "block {number} is free twice"
            );
            let Some(node) = &block.node else { continue };
            assert_eq!(self.tree.get(&node.edge), Some(&number), "block {number}");
            let children = self.tree.keys();
            let children = children.filter(|edge| edge.parent == Parent::Block(number));
            assert_eq!(children.count(), node.children as usize);
            if let Parent::Block(parent) = node.edge.parent {
                let parent = &self.blocks[parent as usize];
                assert!(parent.node.is_some(), "block {number} hangs in the air");
                assert!(parent.references > 0 || expected == 0);
            }
            idle += usize::from(expected == 0);
            let leaf = expected == 0 && node.children == 0;
            assert_eq!(leaf, self.evictable.contains(&(node.last_used, number)));
        }
        assert_eq!(idle, self.idle);
        assert_eq!(seen.len(), self.free.len());
        let nodes = self.blocks.iter().filter(|block| block.node.is_some());
        assert_eq!(nodes.count(), self.tree.len());
        assert!(self.evictable.len() <= self.idle);
    }
}

#[cfg(test)]
mod tests;
