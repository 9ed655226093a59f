//! Prepared memory that further instances of a binding begin with, so that none of them has to be prepared.
//!
//! After the first instance of a binding took long to prepare, another one, the pattern, is prepared in the
//! background and hands over its memory and globals. They become a core module of data, the image, which instances
//! map: pages are shared until one writes to them. All that a guest could have beside memory and globals, or got
//! from elsewhere than from its binding, makes the pattern fail, and instances are prepared one by one as before.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use mortise_aot::PreparedState;
use wasmtime::component::InstancePre;
use wasmtime::{Module, Store};

use crate::compiler::data_module;
use crate::instance::Exports;
use crate::keeper::keep;
use crate::linker::linker;
use crate::pool::{InstancePool, NO_REQUEST};
use crate::prepared_memory::{ImageBytes, Snapshot};
use crate::state::{Grants, StoreData, escape};
use crate::{Component, Kind, PluginHost};
use crate::{background, call};

impl<E: Exports> InstancePool<E> {
    /// Have further instances begin with prepared memory, if that is possible and the first one took long.
    pub(crate) fn keep_prepared(self: &Arc<Self>) {
        let from = Duration::from_micros(self.grants().limits.keep_prepared_from_us);
        if self.component().image().is_none() || self.latest_took() < from {
            return;
        }
        let pool = Arc::downgrade(self);
        let keep = async move {
            // An upgrade each time: what is unloaded meanwhile is not held up.
            let Some(strong) = pool.upgrade() else {
                return;
            };
            let begun = Instant::now();
            let kept = strong.keep_pattern().await;
            let runtime = strong.runtime().clone();
            drop(strong);
            let make = move || {
                let Some(pool) = pool.upgrade() else {
                    return;
                };
                let made = kept.and_then(|(state, random)| pool.make_snapshot(state, random));
                pool.tell_snapshot(made, begun.elapsed());
            };
            // A panic has been logged, and instances are prepared as before.
            let _ = background::on_a_thread(&runtime, Box::new(make)).await;
        };
        background::start(self.runtime(), Box::pin(keep));
    }

    /// Prepare an instance as others would be, and return its state.
    async fn keep_pattern(&self) -> Result<(PreparedState, u64), String> {
        let place = self.place().filter(|_| self.host().has_places_to_spare());
        let place = place.ok_or("too many instances live")?;
        let mut store = self.new_store(0);
        store.data_mut().is_pattern = true;
        let kept = self.prepare_and_keep(&mut store).await;
        let random = store.data().random;
        // Giving back its memory is not work for a thread of the runtime.
        let value = Box::new((store, place));
        drop(background::drop_on_a_thread(self.runtime(), value));
        Ok((kept?, random))
    }

    async fn prepare_and_keep(
        &self,
        store: &mut Store<StoreData>,
    ) -> Result<PreparedState, String> {
        let told = |error: wasmtime::Error| error.root_cause().to_string();
        let prepare_ms = self.grants().limits.deadlines.prepare_ms;
        call::begin(store, "lifecycle.prepare", NO_REQUEST.into(), prepare_ms).uncounted();
        let prepared = self.instantiate(store).await.map_err(told)?;
        prepared.map_err(|fault| fault.to_string())?;
        keep(store).await.map_err(told)
    }

    /// Make what instances begin with.
    fn make_snapshot(&self, state: PreparedState, random: u64) -> Result<Snapshot<E>, String> {
        let component = self.component();
        let (pre, bytes) = link_anew(self.host(), component, E::KIND, state)?;
        let pre = E::find(pre, component.contract()).map_err(|error| format!("{error:#}"))?;
        Ok(Snapshot { pre, random, bytes })
    }

    fn tell_snapshot(&self, made: Result<Snapshot<E>, String>, took: Duration) {
        match made {
            Ok(snapshot) => {
                let bytes = snapshot.bytes.bytes;
                self.begin_with(snapshot);
                tell(self.grants(), Ok(bytes), took);
            }
            Err(reason) => tell(self.grants(), Err(&reason), took),
        }
    }
}

/// Link a component with prepared memory in place of its own, and reserve room for that.
fn link_anew(
    host: &PluginHost,
    component: &Component,
    kind: Kind,
    state: PreparedState,
) -> Result<(InstancePre<StoreData>, ImageBytes), String> {
    let budget = host.images();
    let _turn = budget.making.lock().unwrap_or_else(PoisonError::into_inner);
    let first = component.image().ok_or("it has its memory within")?;
    let bytes = state
        .memory_bytes()
        .and_then(|bytes| usize::try_from(bytes).ok());
    let bytes = bytes.ok_or("its memory is of no size")?;
    let reserved = budget.take(bytes);
    let reserved = reserved.ok_or("prepared memories together have as much as they may")?;
    let wasm = state.into_image(maximum_pages(first))?;
    let told = |error: wasmtime::Error| format!("{error:#}");
    let engine = host.engine();
    let image = data_module(engine, &wasm).map_err(told)?;
    drop(wasm);
    let linker = linker(engine, component, kind, Some(&image)).map_err(told)?;
    let pre = linker.instantiate_pre(component.compiled()).map_err(told)?;
    Ok((pre, reserved))
}

/// Log and count what further instances begin with: the bytes of a prepared memory, or the reason why there is none.
fn tell(grants: &Grants, made: Result<usize, &str>, took: Duration) {
    let (plugin, kind) = (grants.component.name(), grants.kind.as_str());
    match made {
        Ok(bytes) => {
            let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            grants.counters.note_prepared_anew(None);
            tracing::debug!(target: "mortise::plugin", plugin, kind, bytes, took_ms,
                "further instances begin with a prepared memory");
        }
        Err(reason) => {
            let reason = escape(reason);
            tracing::debug!(target: "mortise::plugin", plugin, kind, reason,
                "each instance is prepared");
            grants.counters.note_prepared_anew(Some(reason));
        }
    }
}

/// The pages that the memory of an image may grow to.
fn maximum_pages(image: &Module) -> Option<u64> {
    let mut exports = image.exports();
    exports.find_map(|export| export.ty().memory()?.maximum())
}
