//! What the engine is doing, readable from any thread.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::queue::Queue;
use crate::scheduler::Scheduler;

/// Gauges and counters of an engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineLoad {
    /// Sequences in the batch.
    pub running: usize,
    /// Sequences queued.
    pub waiting: usize,
    /// Tokens of their prompts.
    pub waiting_tokens: usize,
    /// Sequences that gave up their blocks and wait to go on.
    pub preempted: usize,
    /// KV cache blocks in use.
    pub kv_blocks_used: usize,
    /// KV cache blocks that nobody uses and that hold tokens for whoever asks for them again.
    pub kv_blocks_idle: usize,
    /// KV cache blocks in all.
    pub kv_blocks_total: usize,
    /// Sequences that have ended so far, however they did.
    pub finished: u64,
    /// Forward passes so far.
    pub steps: u64,
    /// Prompt tokens computed so far.
    pub prefill_tokens: u64,
    /// Tokens generated so far.
    pub decode_tokens: u64,
    /// Of those, tokens about which a constraint left no choice, and which cost no step of their own.
    pub forced_tokens: u64,
    /// Prompt tokens of all sequences that were admitted.
    pub prefix_queried_tokens: u64,
    /// Of those, tokens that were found in the cache.
    pub prefix_hit_tokens: u64,
    /// Blocks of cached tokens that were evicted.
    pub prefix_evicted_blocks: u64,
    /// Sequences that had to give up their blocks.
    pub preemptions: u64,
    /// Tokens computed again for sequences that were preempted.
    pub recomputed_tokens: u64,
    /// Tokens computed on the chance that they follow.
    pub drafted_tokens: u64,
    /// Of those, tokens that did follow.
    pub accepted_tokens: u64,
}

/// The same, being written. The figures are independent of one another: no order is needed.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) running: AtomicUsize,
    pub(crate) preempted: AtomicUsize,
    pub(crate) kv_blocks_used: AtomicUsize,
    pub(crate) kv_blocks_idle: AtomicUsize,
    pub(crate) kv_blocks_total: AtomicUsize,
    pub(crate) finished: AtomicU64,
    pub(crate) steps: AtomicU64,
    pub(crate) prefill_tokens: AtomicU64,
    pub(crate) decode_tokens: AtomicU64,
    pub(crate) forced_tokens: AtomicU64,
    pub(crate) prefix_queried_tokens: AtomicU64,
    pub(crate) prefix_hit_tokens: AtomicU64,
    pub(crate) prefix_evicted_blocks: AtomicU64,
    pub(crate) preemptions: AtomicU64,
    pub(crate) recomputed_tokens: AtomicU64,
    pub(crate) drafted_tokens: AtomicU64,
    pub(crate) accepted_tokens: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self, queue: &Queue) -> EngineLoad {
        let (waiting, waiting_tokens) = queue.waiting();
        let gauge = |value: &AtomicUsize| value.load(Ordering::Relaxed);
        let count = |value: &AtomicU64| value.load(Ordering::Relaxed);
        EngineLoad {
            running: gauge(&self.running),
            waiting,
            waiting_tokens,
            preempted: gauge(&self.preempted),
            kv_blocks_used: gauge(&self.kv_blocks_used),
            kv_blocks_idle: gauge(&self.kv_blocks_idle),
            kv_blocks_total: gauge(&self.kv_blocks_total),
            finished: count(&self.finished),
            steps: count(&self.steps),
            prefill_tokens: count(&self.prefill_tokens),
            decode_tokens: count(&self.decode_tokens),
            forced_tokens: count(&self.forced_tokens),
            prefix_queried_tokens: count(&self.prefix_queried_tokens),
            prefix_hit_tokens: count(&self.prefix_hit_tokens),
            prefix_evicted_blocks: count(&self.prefix_evicted_blocks),
            preemptions: count(&self.preemptions),
            recomputed_tokens: count(&self.recomputed_tokens),
            drafted_tokens: count(&self.drafted_tokens),
            accepted_tokens: count(&self.accepted_tokens),
        }
    }

    /// Take over what the scheduler says.
    pub(crate) fn publish(&self, scheduler: &Scheduler) {
        let (pool, tally) = (scheduler.pool(), scheduler.tally());
        for (gauge, value) in [
            (&self.running, scheduler.running()),
            (&self.preempted, scheduler.preempted()),
            (&self.kv_blocks_used, pool.used()),
            (&self.kv_blocks_idle, pool.idle()),
            (&self.kv_blocks_total, pool.total()),
        ] {
            gauge.store(value, Ordering::Relaxed);
        }
        for (counter, value) in [
            (&self.prefix_queried_tokens, tally.queried_tokens),
            (&self.prefix_hit_tokens, tally.hit_tokens),
            (&self.prefix_evicted_blocks, pool.evictions()),
            (&self.preemptions, tally.preemptions),
            (&self.recomputed_tokens, tally.recomputed_tokens),
            (&self.drafted_tokens, tally.drafted_tokens),
            (&self.accepted_tokens, tally.accepted_tokens),
        ] {
            counter.store(value, Ordering::Relaxed);
        }
    }
}
