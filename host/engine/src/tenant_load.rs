//! Figures of each tenant in an engine: its queue, its places and what was computed for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

/// Figures of one tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantLoad {
    /// Name of the tenant; empty for those without a name.
    pub tenant: Arc<str>,
    /// Weight of its last sequence; 0 if the engine's thread did not tell.
    pub weight: u32,
    /// Places of the batch that it is entitled to while the tenants of now have sequences.
    pub entitled: usize,
    /// Sequences in the batch.
    pub running: usize,
    /// Sequences queued.
    pub waiting: usize,
    /// Tokens of their prompts.
    pub waiting_tokens: usize,
    /// Preempted sequences that wait for readmission.
    pub preempted: usize,
    /// KV cache blocks that count for it, in use and cached.
    pub kv_blocks: usize,
    /// Tokens computed for it since it has an account: while it has sequences, and until others have caught up.
    pub computed_tokens: u64,
    /// Sequences that have left the queue.
    pub dequeued: u64,
    /// Time that these waited, together.
    pub waited: Duration,
}

impl TenantLoad {
    /// The sum of the figures of one tenant in two engines.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            tenant: self.tenant,
            weight: self.weight.max(other.weight),
            entitled: self.entitled + other.entitled,
            running: self.running + other.running,
            waiting: self.waiting + other.waiting,
            waiting_tokens: self.waiting_tokens + other.waiting_tokens,
            preempted: self.preempted + other.preempted,
            kv_blocks: self.kv_blocks + other.kv_blocks,
            computed_tokens: self.computed_tokens + other.computed_tokens,
            dequeued: self.dequeued + other.dequeued,
            waited: self.waited + other.waited,
        }
    }

    /// True if it has sequences.
    pub fn is_present(&self) -> bool {
        self.running + self.waiting + self.preempted > 0
    }
}

/// Figures of several engines as one, by name.
pub fn sum_tenants(loads: impl IntoIterator<Item = TenantLoad>) -> Vec<TenantLoad> {
    let mut all: BTreeMap<Arc<str>, TenantLoad> = BTreeMap::new();
    for load in loads {
        let name = Arc::clone(&load.tenant);
        let sum = match all.remove(&name) {
            Some(known) => known.plus(load),
            None => load,
        };
        all.insert(name, sum);
    }
    all.into_values().collect()
}

/// A question that the engine's thread answers between two steps.
#[derive(Debug)]
pub(crate) enum TenantQuery {
    /// Forget the cached prefixes that no sequence uses; the answer is how many blocks held them.
    ClearPrefixes(mpsc::Sender<usize>),
    /// Figures of tenants, but for those of the queue.
    Tenants(mpsc::Sender<Vec<TenantLoad>>),
}
