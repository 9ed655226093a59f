//! The blocks of the KV cache as numbers: free blocks, blocks in use, and idle blocks that hold cached
//! prefixes.
//!
//! Full blocks form a radix tree whose edges are exactly one block long: a block is found by its parent
//! and its tokens, so that a path from the root spells a whole prefix. A chain of hashes would need no
//! tree, but two prefixes with equal hashes would share keys and values; here the tokens themselves are
//! compared, and the hash table is keyed at random.
//!
//! ```text
//! free → take → private (one owner writes it) → commit → shared (read by all sequences with its prefix)
//!   ↑                     │ release                           │ release by the last reader
//!   └─────────────────────┴──────────── evict ←── idle ───────┘ acquire takes it back
//! ```
//!
//! A sequence refers to every block on its path, so the parent of a block in use is in use, and idle
//! blocks are evicted leaf by leaf, the least recently used first. [`CacheShares`] says whose leaf: each
//! block counts for the tenant whose sequence took it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::cache_shares::{AccountId, CacheShares};

/// Separates prefixes: sequences share blocks only if their salts are equal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Salt {
    /// As the request says.
    own: Option<Arc<str>>,
    /// Number of the adapter, which changes keys and values.
    adapter: Option<u64>,
}

impl Salt {
    /// The salt of a request, and the number of its adapter.
    pub(crate) fn new(own: Option<Arc<str>>, adapter: Option<u64>) -> Self {
        Self { own, adapter }
    }
}

/// Parent of a block in the tree.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Parent {
    /// The block holds the first tokens of sequences with this salt.
    Root(Salt),
    /// The block follows this one.
    Block(u32),
}

/// Key of a full block.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Edge {
    parent: Parent,
    tokens: Box<[u32]>,
}

/// All blocks of a cache.
#[derive(Debug)]
pub(crate) struct BlockPool {
    block_tokens: usize,
    /// Whether full blocks are cached.
    caching: bool,
    blocks: Vec<Block>,
    /// Blocks without tokens; the last is taken first.
    free: Vec<u32>,
    tree: HashMap<Arc<Edge>, u32>,
    /// Blocks of each tenant, with the leaves that can be evicted.
    shares: CacheShares,
    /// Blocks in the tree that no sequence refers to, with children or without.
    idle: usize,
    /// Number of releases: the clock of least-recently-used eviction.
    releases: u64,
    evictions: u64,
    /// Evictions as a last resort.
    last_resorts: u64,
}

#[derive(Debug, Default)]
struct Block {
    references: u32,
    /// The account that took it; meaningless while it is free.
    owner: AccountId,
    /// `None` while the block is free or private.
    node: Option<Node>,
}

/// Position of a block in the tree.
#[derive(Debug)]
struct Node {
    edge: Arc<Edge>,
    children: u32,
    last_used: u64,
}

impl BlockPool {
    /// A pool of `total` free blocks of `block_tokens` tokens. Without `caching`, nothing is shared.
    pub(crate) fn new(total: usize, block_tokens: usize, caching: bool) -> Self {
        let last = u32::try_from(total).unwrap_or(u32::MAX);
        let free: Vec<u32> = (0..last).rev().collect();
        Self {
            block_tokens,
            caching,
            blocks: free.iter().map(|_| Block::default()).collect(),
            free,
            tree: HashMap::new(),
            shares: CacheShares::new(last as usize),
            idle: 0,
            releases: 0,
            evictions: 0,
            last_resorts: 0,
        }
    }

    /// One of as many free blocks. Counters go on.
    pub(crate) fn anew(&self) -> Self {
        Self {
            evictions: self.evictions,
            last_resorts: self.last_resorts,
            ..Self::new(self.total(), self.block_tokens, self.caching)
        }
    }

    /// Whether full blocks are cached.
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

    /// Blocks that hold cached prefixes and that no sequence refers to.
    pub(crate) fn idle(&self) -> usize {
        self.idle
    }

    /// Blocks that are free or idle.
    pub(crate) fn available(&self) -> usize {
        self.free.len() + self.idle
    }

    /// Blocks that an account may take: free ones, and idle ones that no other tenant is entitled to.
    pub(crate) fn available_to(&self, account: AccountId) -> usize {
        self.free.len() + self.shares.evictable_for(account)
    }

    /// Whether an account can take a block now. For tests.
    #[cfg(test)]
    pub(crate) fn can_take(&self, account: AccountId) -> bool {
        !self.free.is_empty() || self.shares.victim(account, false).is_some()
    }

    /// Evictions as a last resort, from tenants within their shares. For tests.
    #[cfg(test)]
    pub(crate) fn last_resorts(&self) -> u64 {
        self.last_resorts
    }

    /// Shares of the tenants.
    pub(crate) fn shares(&self) -> &CacheShares {
        &self.shares
    }

    /// Add a sequence of a tenant, whose blocks count for the account that this returns.
    pub(crate) fn enter(&mut self, tenant: &Arc<str>, weight: u32) -> AccountId {
        self.shares.enter(tenant, weight)
    }

    /// Remove a sequence, which has released its blocks.
    pub(crate) fn leave(&mut self, account: AccountId) {
        self.shares.leave(account);
    }

    /// Number of evictions.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Whether no sequence refers to a block.
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
            self.shares.not_idle(entry.owner, (node.last_used, block));
        }
    }

    /// Take a block to write for an account: a free one, or an idle one that is evicted. `None` where all
    /// idle blocks are of other tenants within their shares.
    pub(crate) fn take(&mut self, account: AccountId) -> Option<u32> {
        self.take_block(account, false)
    }

    /// Take a block as [`take`](Self::take) does, as a last resort from a tenant within its share: for a
    /// sequence that runs alone and could not go on.
    pub(crate) fn take_unprotected(&mut self, account: AccountId) -> Option<u32> {
        self.take_block(account, true)
    }

    fn take_block(&mut self, account: AccountId, unprotected: bool) -> Option<u32> {
        if self.free.is_empty()
            && let Some(victim) = self.shares.victim(account, unprotected)
        {
            self.evict(victim);
            self.last_resorts += u64::from(unprotected);
        }
        let block = self.free.pop()?;
        let entry = &mut self.blocks[block as usize];
        entry.references = 1;
        entry.owner = account;
        self.shares.take(account);
        Some(block)
    }

    /// Put a full private block into the tree. Returns the block to use from now on, which is another one
    /// if the tree had the same tokens already; the given one is then free.
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

    /// Release references. Private blocks become free, blocks in the tree idle.
    pub(crate) fn release(&mut self, blocks: impl IntoIterator<Item = u32>) {
        self.releases += 1;
        for block in blocks {
            let entry = &mut self.blocks[block as usize];
            entry.references -= 1;
            if entry.references > 0 {
                continue;
            }
            match &mut entry.node {
                None => {
                    self.free.push(block);
                    self.shares.free(entry.owner);
                }
                Some(node) => {
                    self.idle += 1;
                    self.shares.idle(entry.owner);
                    node.last_used = self.releases;
                    if node.children == 0 {
                        self.shares.add_leaf(entry.owner, (node.last_used, block));
                    }
                }
            }
        }
    }

    /// Free a leaf.
    fn evict(&mut self, block: u32) {
        let entry = &mut self.blocks[block as usize];
        let Some(node) = entry.node.take() else {
            return;
        };
        self.shares.not_idle(entry.owner, (node.last_used, block));
        self.shares.free(entry.owner);
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
                self.shares.add_leaf(entry.owner, (node.last_used, parent));
            }
        }
    }

    /// Free all idle blocks. Returns how many there were.
    pub(crate) fn clear(&mut self) -> usize {
        let (idle, evictions) = (self.idle, self.evictions);
        let all = 0..u32::try_from(self.blocks.len()).unwrap_or(u32::MAX);
        let mut leaves: Vec<u32> = all.filter(|block| self.is_idle_leaf(*block)).collect();
        while let Some(block) = leaves.pop() {
            let node = self.blocks[block as usize].node.as_ref();
            let parent = node.map(|node| node.edge.parent.clone());
            self.evict(block);
            if let Some(Parent::Block(parent)) = parent
                && self.is_idle_leaf(parent)
            {
                leaves.push(parent);
            }
        }
        // Nobody needed their place.
        self.evictions = evictions;
        idle - self.idle
    }

    fn is_idle_leaf(&self, block: u32) -> bool {
        let block = &self.blocks[block as usize];
        let leaf = |node: &Node| node.children == 0;
        block.references == 0 && block.node.as_ref().is_some_and(leaf)
    }

    /// Compare with the references that sequences hold. For tests.
    #[cfg(test)]
    pub(crate) fn audit(&self, references: &std::collections::BTreeMap<u32, u32>) {
        let mut idle = 0;
        let mut seen = std::collections::BTreeSet::new();
        let mut accounts = std::collections::BTreeMap::<
            AccountId,
            (usize, usize, std::collections::BTreeSet<(u64, u32)>),
        >::new();
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
            if !is_free {
                accounts.entry(block.owner).or_default().0 += 1;
            }
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
            let account = accounts.entry(block.owner).or_default();
            account.1 += usize::from(expected == 0);
            if expected == 0 && node.children == 0 {
                account.2.insert((node.last_used, number));
            }
        }
        assert_eq!(idle, self.idle);
        assert_eq!(seen.len(), self.free.len());
        let nodes = self.blocks.iter().filter(|block| block.node.is_some());
        assert_eq!(nodes.count(), self.tree.len());
        self.shares.audit(&accounts);
    }
}

#[cfg(test)]
mod tests;
