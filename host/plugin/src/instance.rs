//! One instance of a plugin: its store, its exports, and when it is no longer kept.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use wasmtime::Store;
use wasmtime::component::InstancePre;

use crate::kind::ContractVersion;
use crate::state::StoreData;
use crate::stats::PluginCounters;
use crate::{Fault, Kind};

/// Growth from which on an idle instance is kept for a shorter time.
const GROWN_BYTES: usize = 2 << 20;

/// The last idle instance is kept however long, unless it has grown by more than this part of the growth
/// after which an instance is replaced: a burst of large requests leaves no memory behind.
const KEPT_SHARE: usize = 4;

/// Exports of one kind.
pub(crate) trait Exports: Sized + Send + Sync + 'static {
    /// Exports that were found in a component, before it is instantiated.
    type Pre: Send + Sync + 'static;
    const KIND: Kind;
    /// Find the exports of this version and check their types.
    fn find(pre: InstancePre<StoreData>, contract: ContractVersion) -> wasmtime::Result<Self::Pre>;
    fn instantiate(
        pre: &Self::Pre,
        store: &mut Store<StoreData>,
    ) -> impl Future<Output = wasmtime::Result<Self>> + Send;
    /// Call `lifecycle.prepare`.
    fn prepare(
        &self,
        store: &mut Store<StoreData>,
    ) -> impl Future<Output = wasmtime::Result<Result<(), Fault>>> + Send;
}

/// A prepared instance.
pub(crate) struct Instance<E> {
    pub(crate) store: Store<StoreData>,
    pub(crate) exports: E,
    pub(crate) uses: u32,
    pub(crate) prepared_bytes: usize,
    pub(crate) idle_since: Instant,
    pub(crate) _live: LiveInstance,
}

impl<E> Instance<E> {
    /// Whether it is to be replaced. Memory never shrinks, so growth is the measure.
    pub(crate) fn is_spent(&self) -> bool {
        let state = self.store.data();
        let limits = &state.grants.limits;
        self.uses >= limits.recycle_after_uses || self.growth() > limits.recycle_growth_bytes
    }

    /// Bytes by which its memory has grown since it was prepared.
    fn growth(&self) -> usize {
        let used = self.store.data().memory.used;
        used.saturating_sub(self.prepared_bytes)
    }

    /// Whether it holds so much memory that it is not kept as the last idle one either.
    pub(crate) fn holds_much(&self) -> bool {
        let limits = &self.store.data().grants.limits;
        self.growth() > limits.recycle_growth_bytes / KEPT_SHARE
    }

    /// Whether it has been idle for longer than it is kept.
    pub(crate) fn has_outstayed(&self, now: Instant) -> bool {
        let limits = &self.store.data().grants.limits;
        let kept_ms = match self.growth() > GROWN_BYTES {
            true => limits.idle_grown_ms.min(limits.idle_ms),
            false => limits.idle_ms,
        };
        now.saturating_duration_since(self.idle_since) >= Duration::from_millis(kept_ms)
    }
}

/// Counts an instance as alive and holds its place in the host.
pub(crate) struct LiveInstance {
    counters: Arc<PluginCounters>,
    _place: OwnedSemaphorePermit,
}

impl LiveInstance {
    pub(crate) fn new(counters: Arc<PluginCounters>, place: OwnedSemaphorePermit) -> Self {
        counters.live.fetch_add(1, Ordering::Relaxed);
        counters.created.fetch_add(1, Ordering::Relaxed);
        Self {
            counters,
            _place: place,
        }
    }
}

impl Drop for LiveInstance {
    fn drop(&mut self) {
        self.counters.live.fetch_sub(1, Ordering::Relaxed);
    }
}
