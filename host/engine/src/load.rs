//! What the engine is doing, readable from any thread.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Gauges and counters of an engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineLoad {
    /// Sequences in the batch.
    pub running: usize,
    /// Sequences queued.
    pub waiting: usize,
    /// KV cache blocks in use.
    pub kv_blocks_used: usize,
    /// KV cache blocks in all.
    pub kv_blocks_total: usize,
    /// Forward passes so far.
    pub steps: u64,
    /// Prompt tokens computed so far.
    pub prefill_tokens: u64,
    /// Tokens generated so far.
    pub decode_tokens: u64,
}

/// The same, being written. The figures are independent of one another: no order is needed.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) running: AtomicUsize,
    /// Submitted and not yet admitted; also the measure of the queue's bound.
    pub(crate) queued: AtomicUsize,
    pub(crate) kv_blocks_used: AtomicUsize,
    pub(crate) kv_blocks_total: AtomicUsize,
    pub(crate) steps: AtomicU64,
    pub(crate) prefill_tokens: AtomicU64,
    pub(crate) decode_tokens: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self) -> EngineLoad {
        EngineLoad {
            running: self.running.load(Ordering::Relaxed),
            waiting: self.queued.load(Ordering::Relaxed),
            kv_blocks_used: self.kv_blocks_used.load(Ordering::Relaxed),
            kv_blocks_total: self.kv_blocks_total.load(Ordering::Relaxed),
            steps: self.steps.load(Ordering::Relaxed),
            prefill_tokens: self.prefill_tokens.load(Ordering::Relaxed),
            decode_tokens: self.decode_tokens.load(Ordering::Relaxed),
        }
    }

    /// Take a place in a queue of `limit`; whether there was one.
    pub(crate) fn enter_queue(&self, limit: usize) -> bool {
        let enter = |queued| (queued < limit).then_some(queued + 1);
        self.queued
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter)
            .is_ok()
    }

    pub(crate) fn leave_queue(&self, sequences: usize) {
        self.queued.fetch_sub(sequences, Ordering::Relaxed);
    }
}
