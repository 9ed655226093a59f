//! Gauges and counters of an engine, readable from any thread.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::circuit::CircuitState;
use crate::config::Speculation;
use crate::queue::Queue;
use crate::scheduler::Scheduler;

/// Gauges and counters of an engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineLoad {
    /// Sequences in the batch.
    pub running: usize,
    /// Sequences that the batch may have; 0 where another server decides.
    pub max_running: usize,
    /// Sequences queued.
    pub waiting: usize,
    /// Prompt tokens of the queued sequences.
    pub waiting_tokens: usize,
    /// Preempted sequences that wait for readmission.
    pub preempted: usize,
    /// KV cache blocks in use.
    pub kv_blocks_used: usize,
    /// KV cache blocks not in use that hold cached prefixes.
    pub kv_blocks_idle: usize,
    /// KV cache blocks in all.
    pub kv_blocks_total: usize,
    /// Bytes of a block; 0 where they are not known.
    pub kv_block_bytes: usize,
    /// Sequences that ended, for any reason.
    pub finished: u64,
    /// Milliseconds in which the engine computed.
    pub busy_ms: u64,
    /// Times that the engine's loop was started again after a panic, which ended all sequences.
    pub restarts: u64,
    /// Forward passes.
    pub steps: u64,
    /// Prompt tokens computed (prefill throughput).
    pub prefill_tokens: u64,
    /// Tokens generated (decode throughput).
    pub decode_tokens: u64,
    /// Generated tokens that a constraint forced, which cost no step of their own.
    pub forced_tokens: u64,
    /// Prompt tokens of admitted sequences.
    pub prefix_queried_tokens: u64,
    /// Prompt tokens of admitted sequences that were found in the prefix cache.
    pub prefix_hit_tokens: u64,
    /// Evictions of cached blocks.
    pub prefix_evicted_blocks: u64,
    /// Preemptions.
    pub preemptions: u64,
    /// Tokens computed again after preemptions.
    pub recomputed_tokens: u64,
    /// Method of speculative decoding.
    pub speculation: Speculation,
    /// Forward passes of the draft model.
    pub draft_steps: u64,
    /// Draft tokens computed.
    pub drafted_tokens: u64,
    /// Draft tokens that were accepted.
    pub accepted_tokens: u64,
    /// Time that the present turn of the engine's loop has taken so far; `None` while it waits for work.
    pub step_time: Option<Duration>,
    /// State of the breaker.
    pub circuit: CircuitState,
    /// Times that the breaker opened.
    pub circuit_opened: u64,
    /// Requests go to upstreams that stand by for others, none of which can be asked.
    pub on_standby: bool,
    /// Requests that upstreams on standby were asked.
    pub standby_requests: u64,
}

impl EngineLoad {
    /// Bytes of the KV cache, whether they are used or not; 0 where they are not known.
    pub fn kv_cache_bytes(&self) -> u64 {
        let bytes = self.kv_blocks_total.saturating_mul(self.kv_block_bytes);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// The sum of two engines' figures. Both speculate in the same way.
    pub fn plus(self, other: Self) -> Self {
        Self {
            running: self.running + other.running,
            max_running: self.max_running + other.max_running,
            waiting: self.waiting + other.waiting,
            waiting_tokens: self.waiting_tokens + other.waiting_tokens,
            preempted: self.preempted + other.preempted,
            kv_blocks_used: self.kv_blocks_used + other.kv_blocks_used,
            kv_blocks_idle: self.kv_blocks_idle + other.kv_blocks_idle,
            kv_blocks_total: self.kv_blocks_total + other.kv_blocks_total,
            kv_block_bytes: self.kv_block_bytes.max(other.kv_block_bytes),
            finished: self.finished + other.finished,
            busy_ms: self.busy_ms + other.busy_ms,
            steps: self.steps + other.steps,
            prefill_tokens: self.prefill_tokens + other.prefill_tokens,
            decode_tokens: self.decode_tokens + other.decode_tokens,
            forced_tokens: self.forced_tokens + other.forced_tokens,
            prefix_queried_tokens: self.prefix_queried_tokens + other.prefix_queried_tokens,
            prefix_hit_tokens: self.prefix_hit_tokens + other.prefix_hit_tokens,
            prefix_evicted_blocks: self.prefix_evicted_blocks + other.prefix_evicted_blocks,
            preemptions: self.preemptions + other.preemptions,
            recomputed_tokens: self.recomputed_tokens + other.recomputed_tokens,
            speculation: other.speculation,
            draft_steps: self.draft_steps + other.draft_steps,
            drafted_tokens: self.drafted_tokens + other.drafted_tokens,
            accepted_tokens: self.accepted_tokens + other.accepted_tokens,
            restarts: self.restarts + other.restarts,
            step_time: self.step_time.max(other.step_time),
            circuit: self.circuit.max(other.circuit),
            circuit_opened: self.circuit_opened + other.circuit_opened,
            on_standby: self.on_standby || other.on_standby,
            standby_requests: self.standby_requests + other.standby_requests,
        }
    }
}

/// Counters of an engine as atomics, from which [`EngineLoad`] is read. The figures are independent of one another, so
/// that no ordering is needed.
#[derive(Debug, Default)]
pub(crate) struct LoadCounters {
    pub(crate) running: AtomicUsize,
    pub(crate) preempted: AtomicUsize,
    pub(crate) kv_blocks_used: AtomicUsize,
    pub(crate) kv_blocks_idle: AtomicUsize,
    pub(crate) kv_blocks_total: AtomicUsize,
    pub(crate) finished: AtomicU64,
    pub(crate) busy_micros: AtomicU64,
    pub(crate) restarts: AtomicU64,
    pub(crate) steps: AtomicU64,
    pub(crate) prefill_tokens: AtomicU64,
    pub(crate) decode_tokens: AtomicU64,
    pub(crate) forced_tokens: AtomicU64,
    pub(crate) prefix_queried_tokens: AtomicU64,
    pub(crate) prefix_hit_tokens: AtomicU64,
    pub(crate) prefix_evicted_blocks: AtomicU64,
    pub(crate) preemptions: AtomicU64,
    pub(crate) recomputed_tokens: AtomicU64,
    pub(crate) speculation: Speculation,
    pub(crate) draft_steps: AtomicU64,
    pub(crate) drafted_tokens: AtomicU64,
    pub(crate) accepted_tokens: AtomicU64,
    turn: Turn,
}

/// Time at which the present turn of the loop began, in milliseconds since the first one, plus 1; 0 while the loop
/// waits for work.
#[derive(Debug, Default)]
struct Turn {
    first: OnceLock<Instant>,
    begun: AtomicU64,
}

impl Turn {
    fn now(&self) -> u64 {
        let elapsed = self.first.get_or_init(Instant::now).elapsed().as_millis();
        u64::try_from(elapsed).map_or(u64::MAX, |now| now.saturating_add(1))
    }

    fn time(&self) -> Option<Duration> {
        match self.begun.load(Ordering::Relaxed) {
            0 => None,
            begun => Some(Duration::from_millis(self.now().saturating_sub(begun))),
        }
    }
}

impl LoadCounters {
    pub(crate) fn new(speculation: Speculation) -> Self {
        Self {
            speculation,
            ..Self::default()
        }
    }

    pub(crate) fn read(&self, queue: &Queue) -> EngineLoad {
        let (waiting, waiting_tokens) = queue.waiting();
        let gauge = |value: &AtomicUsize| value.load(Ordering::Relaxed);
        let count = |value: &AtomicU64| value.load(Ordering::Relaxed);
        EngineLoad {
            running: gauge(&self.running),
            max_running: 0,
            waiting,
            waiting_tokens,
            preempted: gauge(&self.preempted),
            kv_blocks_used: gauge(&self.kv_blocks_used),
            kv_blocks_idle: gauge(&self.kv_blocks_idle),
            kv_blocks_total: gauge(&self.kv_blocks_total),
            kv_block_bytes: 0,
            finished: count(&self.finished),
            busy_ms: count(&self.busy_micros) / 1000,
            restarts: count(&self.restarts),
            steps: count(&self.steps),
            prefill_tokens: count(&self.prefill_tokens),
            decode_tokens: count(&self.decode_tokens),
            forced_tokens: count(&self.forced_tokens),
            prefix_queried_tokens: count(&self.prefix_queried_tokens),
            prefix_hit_tokens: count(&self.prefix_hit_tokens),
            prefix_evicted_blocks: count(&self.prefix_evicted_blocks),
            preemptions: count(&self.preemptions),
            recomputed_tokens: count(&self.recomputed_tokens),
            speculation: self.speculation,
            draft_steps: count(&self.draft_steps),
            drafted_tokens: count(&self.drafted_tokens),
            accepted_tokens: count(&self.accepted_tokens),
            step_time: self.turn.time(),
            circuit: CircuitState::Closed,
            circuit_opened: 0,
            on_standby: false,
            standby_requests: 0,
        }
    }

    /// Time that the present turn of the loop has taken so far; `None` while it waits for work.
    pub(crate) fn turn_time(&self) -> Option<Duration> {
        self.turn.time()
    }

    /// A turn of the loop begins.
    pub(crate) fn turn_begins(&self) {
        self.turn.begun.store(self.turn.now(), Ordering::Relaxed);
    }

    /// The loop waits for work.
    pub(crate) fn waits(&self) {
        self.turn.begun.store(0, Ordering::Relaxed);
    }

    /// The engine computed for so long.
    pub(crate) fn worked(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.busy_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Publish the scheduler's figures.
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
