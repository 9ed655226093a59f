//! Shares of the KV cache by tenant, with borrowing.
//!
//! Each tenant is entitled to a part of the blocks by its weight. A tenant may hold more while others need
//! less. When no block is free, eviction takes from the tenant that holds most above its share; a tenant
//! that holds no more than its share keeps its cached prefixes, also from sequences of other tenants that
//! are running. A tenant that goes unused keeps its entitlement until the cache was turned over
//! [`PROTECTED_TURNS`] times, so that unused prefixes do not take room for ever.
//!
//! Everything is counted in blocks, and time in blocks taken: no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Turnovers of the whole cache after which a tenant without sequences is entitled to nothing.
pub(crate) const PROTECTED_TURNS: u64 = 16;

/// Identifies a tenant while it has sequences or blocks.
pub(crate) type AccountId = u64;

/// A leaf of the prefix tree that can be evicted: its last use, and its number.
pub(crate) type Leaf = (u64, u32);

/// The blocks of all tenants.
#[derive(Debug)]
pub(crate) struct CacheShares {
    /// Blocks of the cache.
    total: usize,
    accounts: BTreeMap<AccountId, Account>,
    ids: BTreeMap<Arc<str>, AccountId>,
    next_id: AccountId,
    /// Blocks taken so far.
    taken: u64,
}

#[derive(Debug)]
struct Account {
    tenant: Arc<str>,
    weight: u32,
    /// Sequences, waiting or running.
    sequences: usize,
    /// Blocks, in use or idle.
    held: usize,
    /// Blocks that no sequence refers to.
    idle: usize,
    /// The idle blocks that have no children.
    leaves: BTreeSet<Leaf>,
    /// Value of `taken` when it last had a sequence.
    last_active: u64,
}

impl CacheShares {
    pub(crate) fn new(total: usize) -> Self {
        Self {
            total,
            accounts: BTreeMap::new(),
            ids: BTreeMap::new(),
            next_id: 0,
            taken: 0,
        }
    }

    /// Add a sequence of a tenant.
    pub(crate) fn enter(&mut self, tenant: &Arc<str>, weight: u32) -> AccountId {
        let id = *self.ids.entry(Arc::clone(tenant)).or_insert_with(|| {
            self.next_id += 1;
            self.next_id
        });
        let account = self.accounts.entry(id).or_insert_with(|| Account {
            tenant: Arc::clone(tenant),
            weight: 1,
            sequences: 0,
            held: 0,
            idle: 0,
            leaves: BTreeSet::new(),
            last_active: 0,
        });
        account.weight = weight.max(1);
        account.sequences += 1;
        id
    }

    /// Remove a sequence.
    pub(crate) fn leave(&mut self, id: AccountId) {
        let taken = self.taken;
        self.change(id, |account| {
            account.sequences -= 1;
            account.last_active = taken;
        });
    }

    /// A block was taken for the account.
    pub(crate) fn take(&mut self, id: AccountId) {
        self.taken += 1;
        self.change(id, |account| account.held += 1);
    }

    /// A block of the account was freed.
    pub(crate) fn free(&mut self, id: AccountId) {
        self.change(id, |account| account.held -= 1);
    }

    /// A cached block of the account became idle.
    pub(crate) fn idle(&mut self, id: AccountId) {
        self.change(id, |account| account.idle += 1);
    }

    /// An idle block of the account is in use again, or was evicted.
    pub(crate) fn not_idle(&mut self, id: AccountId, leaf: Leaf) {
        self.change(id, |account| {
            account.idle -= 1;
            account.leaves.remove(&leaf);
        });
    }

    /// An idle block has no children.
    pub(crate) fn add_leaf(&mut self, id: AccountId, leaf: Leaf) {
        self.change(id, |account| {
            account.leaves.insert(leaf);
        });
    }

    /// The leaf to evict so that `requester` gets a block: the least recently used one of the account that
    /// holds most above its share, or of the requester itself. With `unprotected`, accounts within their
    /// shares come last instead of not at all.
    pub(crate) fn victim(&self, requester: AccountId, unprotected: bool) -> Option<u32> {
        let weights = self.weights();
        let candidates = self.accounts.iter().filter_map(|(id, account)| {
            let (used, block) = *account.leaves.first()?;
            let excess = self.excess(account, weights);
            let may = excess > 0 || *id == requester || unprotected;
            may.then_some(((excess, std::cmp::Reverse(used)), block))
        });
        candidates.max().map(|(_, block)| block)
    }

    /// Idle blocks that `requester` may have by eviction: its own, and those of others above their shares.
    pub(crate) fn evictable_for(&self, requester: AccountId) -> usize {
        let weights = self.weights();
        let of = |(id, account): (&AccountId, &Account)| match *id == requester {
            true => account.idle,
            false => self.blocks_above(account, weights).min(account.idle),
        };
        self.accounts.iter().map(of).sum()
    }

    /// Whether the sequences of an account use more blocks than its share, its idle ones aside.
    pub(crate) fn uses_more_than_share(&self, id: AccountId) -> bool {
        !self.is_within_share(id, 0)
    }

    /// Whether the sequences of an account would use no more than its share with so many blocks more.
    pub(crate) fn is_within_share(&self, id: AccountId, more: usize) -> bool {
        let weights = self.weights();
        let account = self.accounts.get(&id);
        account.is_some_and(|account| {
            let used = (account.held - account.idle + more) as u128;
            used * weights <= self.total as u128 * self.weight(account)
        })
    }

    /// The weight that counts: that of a tenant which was not active for long is 0.
    fn weight(&self, account: &Account) -> u128 {
        let turns = PROTECTED_TURNS.saturating_mul(self.total as u64);
        let lapsed = account.sequences == 0 && self.taken - account.last_active >= turns;
        if lapsed { 0 } else { account.weight.into() }
    }

    fn weights(&self) -> u128 {
        let weights = self.accounts.values().map(|one| self.weight(one));
        weights.sum::<u128>().max(1)
    }

    /// Blocks above the share, times the sum of weights: exact in integers.
    fn excess(&self, account: &Account, weights: u128) -> i128 {
        let held = account.held as u128 * weights;
        let share = self.total as u128 * self.weight(account);
        held as i128 - share as i128
    }

    fn blocks_above(&self, account: &Account, weights: u128) -> usize {
        let excess = self.excess(account, weights).max(0) as u128;
        usize::try_from(excess.div_ceil(weights)).unwrap_or(usize::MAX)
    }

    /// Change an account, and drop it if it has nothing left.
    fn change(&mut self, id: AccountId, change: impl FnOnce(&mut Account)) {
        let Some(account) = self.accounts.get_mut(&id) else {
            return;
        };
        change(account);
        if account.sequences == 0
            && account.held == 0
            && let Some(account) = self.accounts.remove(&id)
        {
            self.ids.remove(&account.tenant);
        }
    }

    /// Compare with the blocks of each account: held, idle, leaves. For tests.
    #[cfg(test)]
    pub(crate) fn audit(&self, found: &BTreeMap<AccountId, (usize, usize, BTreeSet<Leaf>)>) {
        let none = (0, 0, BTreeSet::new());
        for (id, account) in &self.accounts {
            let found = found.get(id).unwrap_or(&none);
            assert_eq!((account.held, account.idle), (found.0, found.1));
            assert_eq!(account.leaves, found.2);
            assert!(account.sequences > 0 || account.held > 0, "a dead account");
        }
        assert!(found.keys().all(|id| self.accounts.contains_key(id)));
        assert_eq!(self.ids.len(), self.accounts.len());
    }

    /// Blocks that a tenant holds.
    pub(crate) fn held(&self, tenant: &str) -> usize {
        let id = self.ids.get(tenant);
        id.map_or(0, |id| self.accounts[id].held)
    }

    /// Share of a tenant in whole blocks, if it has no sequences. For tests.
    #[cfg(test)]
    pub(crate) fn absent_share(&self, tenant: &str) -> Option<usize> {
        let account = &self.accounts[self.ids.get(tenant)?];
        let share = self.total as u128 * self.weight(account) / self.weights();
        (account.sequences == 0).then_some(share as usize)
    }
}
