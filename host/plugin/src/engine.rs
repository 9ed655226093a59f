//! The wasmtime engine: its settings, and the thread that counts its epochs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use mortise_aot::{compile_settings, quick_settings};
use wasmtime::{Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::{HostConfig, LoadError};

/// Length of an epoch: the unit in which a running guest is interrupted.
pub(crate) const EPOCH: Duration = Duration::from_millis(1);

/// Room on a guest's stack for the host functions that it calls.
const HOST_STACK_BYTES: usize = 1 << 20;

/// Of the stack of an instance that has gone, what stays resident for the next.
const STACK_KEPT_BYTES: usize = 16 << 10;

/// Of the tables of an instance that has gone, what stays resident for the next, each. A plugin in Rust has a
/// few hundred functions in one of them and a handful in the others.
const TABLE_KEPT_BYTES: usize = 16 << 10;

/// Core modules of one component. The adapters of Rust's std make three or four; an interpreter of
/// Python comes as 38, its shared libraries. One plugin in another has those of both.
const CORE_INSTANCES_PER_COMPONENT: u32 = 128;

/// Linear memories of one component: those of a plugin, and of another one in it. One in JavaScript has an
/// empty one beside its own. An instance counts as many times as it has memories.
const MEMORIES_PER_COMPONENT: u32 = 4;

/// Tables of one component: those of a plugin, and of another one in it.
const TABLES_PER_COMPONENT: u32 = 8;

/// Make the engine: with a pool of instances where the address space allows it, else on demand.
pub(crate) fn create(host: &HostConfig) -> Result<Engine, LoadError> {
    let mut config = compile_settings();
    config
        .max_wasm_stack(host.stack_bytes)
        .async_stack_size(host.stack_bytes + HOST_STACK_BYTES)
        // What a runaway recursion touched of its stack is given back when its instance goes.
        .async_stack_zeroing(true);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(host)));
    let engine = Engine::new(&config).or_else(|error| {
        tracing::warn!(
            error = format!("{error:#}"),
            "no pool of plugin instances, making them on demand; a limit on address space is the usual cause"
        );
        config.allocation_strategy(InstanceAllocationStrategy::OnDemand);
        Engine::new(&config)
    });
    let engine = engine.map_err(|error| LoadError::Runtime {
        message: format!("{error:#}"),
    })?;
    start_epochs(&engine, host.fault)?;
    Ok(engine)
}

/// Make an engine that compiles quickly and runs nothing.
pub(crate) fn quick() -> Result<Engine, LoadError> {
    Engine::new(&quick_settings()).map_err(|error| LoadError::Runtime {
        message: format!("{error:#}"),
    })
}

fn pool(host: &HostConfig) -> PoolingAllocationConfig {
    let instances = host.max_instances_total;
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(instances)
        .total_core_instances(instances.saturating_mul(CORE_INSTANCES_PER_COMPONENT))
        .total_memories(instances.max(MEMORIES_PER_COMPONENT))
        .total_tables(instances.saturating_mul(2).max(TABLES_PER_COMPONENT))
        .total_stacks(instances)
        .max_core_instances_per_component(CORE_INSTANCES_PER_COMPONENT)
        .max_memories_per_component(MEMORIES_PER_COMPONENT)
        .max_tables_per_component(TABLES_PER_COMPONENT)
        // Kept pages are wiped by hand, which doubled the time to make a small instance. Of a stack,
        // an ordinary call touches less than this.
        .async_stack_keep_resident(STACK_KEPT_BYTES)
        .table_keep_resident(TABLE_KEPT_BYTES)
        .linear_memory_keep_resident(0);
    pool
}

/// Times that a thread which counts epochs was started again after a panic.
static EPOCH_RESTARTS: AtomicU64 = AtomicU64::new(0);

/// Times that a thread which counts epochs, without which no deadline of a plugin holds, was started again
/// after a panic.
pub fn epoch_restarts() -> u64 {
    EPOCH_RESTARTS.load(Ordering::Relaxed)
}

/// Count epochs until the engine is gone. A thread of its own, since a tokio worker may be the
/// one that is stuck in a guest.
fn start_epochs(engine: &Engine, fault: Option<fn()>) -> Result<(), LoadError> {
    let weak = engine.weak();
    let tick = move || {
        while let Some(engine) = weak.upgrade() {
            engine.increment_epoch();
            drop(engine);
            if let Some(fault) = fault {
                fault();
            }
            thread::sleep(EPOCH);
        }
    };
    let tick = move || {
        while catch_unwind(AssertUnwindSafe(&tick)).is_err() {
            EPOCH_RESTARTS.fetch_add(1, Ordering::Relaxed);
            tracing::error!("the thread that counts epochs panicked and is started again");
            thread::sleep(EPOCH);
        }
    };
    thread::Builder::new()
        .name("plugin-epochs".to_owned())
        .spawn(tick)
        .map(drop)
        .map_err(|error| LoadError::Runtime {
            message: format!("cannot start the epoch thread: {error}"),
        })
}
