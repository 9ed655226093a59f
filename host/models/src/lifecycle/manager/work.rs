//! Loads and unloads, each on a task of its own.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures::FutureExt as _;

use super::{Entry, Inner, ModelManager};
use crate::config::ModelConfig;
use crate::lifecycle::clock::now_ms;
use crate::lifecycle::contract::MemorySource;
use crate::lifecycle::error::LifecycleError;
use crate::lifecycle::load_time::{Broken, Clock, LeftBehind};
use crate::lifecycle::memory::resident_bytes;
use crate::lifecycle::overrides::LoadOverrides;
use crate::lifecycle::progress::{LoadProgress, LoadStage, LoadStatus};
use crate::lifecycle::state::{LoadRoom, ModelState};
use crate::model::Model;

/// Bytes by which the process may grow during a load for other reasons.
const OTHER_GROWTH: u64 = 16 << 20;

impl ModelManager {
    /// Load a model on a task of its own. A load that panics fails its model, and no state is left behind.
    pub(super) fn spawn_load(&self, name: &str, config: Arc<ModelConfig>) {
        let Some(this) = self.this.upgrade() else {
            return;
        };
        let name = name.to_owned();
        tokio::spawn(async move {
            let load = AssertUnwindSafe(this.run_load(&name, &config)).catch_unwind();
            if load.await.is_err() {
                let error = "the load panicked; the log says where".to_owned();
                this.load_failed(&name, Broken::Failed(error));
            }
        });
    }

    /// Unload a model on a task of its own. After a panic its memory may be lost, but not its state.
    pub(super) fn spawn_unload(&self, name: &str) {
        let Some(this) = self.this.upgrade() else {
            return;
        };
        let name = name.to_owned();
        tokio::spawn(async move {
            let unload = AssertUnwindSafe(this.run_unload(&name)).catch_unwind();
            if unload.await.is_err() {
                tracing::error!(model = name, "the unload panicked");
                this.lock().table.released(&name);
                this.tell(&name);
            }
        });
    }

    async fn run_load(&self, name: &str, config: &Arc<ModelConfig>) {
        let turn = self.turn.lock().await;
        let mut clock = Clock::new(self.config.load_time);
        if let Err(broken) = self.prepare(name, config, &mut clock).await {
            return self.load_failed(name, broken);
        }
        if let Err(refusal) = self.make_room(name).await {
            tracing::warn!(model = name, error = %refusal, "model was not loaded");
            self.lock().table.refused(name);
            self.tell(name);
            return;
        }
        let begun = Instant::now();
        let before = resident_bytes();
        let model = self.load_now(name, config, &mut clock).await;
        let took = begun.elapsed();
        let grown = match (before, resident_bytes()) {
            (Some(before), Some(after)) if after > before => Some(after - before),
            _ => None,
        };
        let published = match model {
            Ok(model) => {
                let served = self.serve(name, Arc::clone(&model), grown, took).await;
                if served.is_ok() {
                    self.watch_end(name, &model);
                }
                served.map_err(Broken::Failed)
            }
            Err(broken) => Err(broken),
        };
        // Only now: the next load must find this model among the loaded ones.
        drop(turn);
        match published {
            Ok(()) => tracing::info!(
                model = name,
                load_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
                "model serves"
            ),
            Err(broken) => return self.load_failed(name, broken),
        }
        self.tell(name);
    }

    /// Have the files of a model here, and know what its load will take.
    async fn prepare(
        &self,
        name: &str,
        config: &Arc<ModelConfig>,
        clock: &mut Clock,
    ) -> Result<(), Broken> {
        let (loader, config) = (Arc::clone(&self.loader), Arc::clone(config));
        let overrides = self.overrides_of(name);
        let plain = overrides.is_empty();
        let preparing = move |progress: &LoadProgress| {
            loader.prepare(&config, progress)?;
            Ok(loader.expected_bytes(&config, &overrides))
        };
        let expected = clock.run(self.progress_of(name), preparing).await?;
        let mut inner = self.lock();
        let observed = inner.entries.get(name).and_then(|entry| entry.observed);
        // What an earlier load took counts for a load with the same settings.
        let bytes = expected.max(observed.filter(|_| plain));
        inner.table.set_bytes(name, bytes.unwrap_or(0));
        if let Some(entry) = inner.entries.get_mut(name)
            && observed.is_none_or(|_| !plain)
        {
            entry.memory_source = MemorySource::of_files(expected);
        }
        Ok(())
    }

    /// Settings of the load of a model that is under way.
    fn overrides_of(&self, name: &str) -> LoadOverrides {
        let inner = self.lock();
        let entry = inner.entries.get(name);
        entry
            .and_then(|entry| entry.overrides.clone())
            .unwrap_or_default()
    }

    fn load_failed(&self, name: &str, broken: Broken) {
        let (error, late) = match broken {
            Broken::Failed(error) => (error, None),
            Broken::Late(error, behind) => (error, Some(behind)),
        };
        tracing::error!(model = name, error, "model could not be loaded");
        {
            let mut inner = self.lock();
            inner.table.loaded(name, Err(error), self.now());
            if let Some(entry) = inner.entries.get_mut(name) {
                entry.progress = None;
                entry.loaded = None;
                entry.late = late;
            }
            inner.forget_overrides(name);
        }
        self.tell(name);
    }

    /// Load on a thread that may block.
    async fn load_now(
        &self,
        name: &str,
        config: &Arc<ModelConfig>,
        clock: &mut Clock,
    ) -> Result<Arc<Model>, Broken> {
        let (loader, config) = (Arc::clone(&self.loader), Arc::clone(config));
        let overrides = self.overrides_of(name);
        let loading = move |progress: &LoadProgress| {
            progress.stage(LoadStage::Reading);
            loader.load(&config, &overrides, progress)
        };
        let loaded = clock.run(self.progress_of(name), loading).await;
        loaded.map(Arc::new)
    }

    /// Take a loaded model into service.
    async fn serve(
        &self,
        name: &str,
        model: Arc<Model>,
        grown: Option<u64>,
        took: Duration,
    ) -> Result<(), String> {
        self.progress_of(name).stage(LoadStage::Binding);
        let publishing = self.publishing.lock().await;
        let mut models = self.known();
        for known in &mut models {
            if known.listing.name == name {
                known.loaded = Some(Arc::clone(&model));
            }
        }
        if let Some(publisher) = self.publisher.get().and_then(Weak::upgrade) {
            publisher.publish(models).await?;
        }
        // Of the KV cache, the process has grown by the pages that the warm-up wrote to only.
        let taken = grown.map(|grown| grown.saturating_add(model.reserved_bytes()));
        let mut inner = self.lock();
        let expected = inner.table.slot(name).map_or(0, |slot| slot.bytes);
        // Weights that are quantised by the load are smaller than their files. Else the files tell, unless the process
        // has grown by clearly more: it does other things meanwhile.
        let quantised = inner.entries.get(name).is_some_and(Entry::is_quantised);
        let bytes = match taken {
            Some(taken) if quantised || taken > expected.saturating_add(OTHER_GROWTH) => taken,
            _ => expected,
        };
        inner.table.loaded(name, Ok(bytes), self.now());
        if let Some(entry) = inner.entries.get_mut(name) {
            entry.loaded = Some(model);
            entry.progress = None;
            entry.loaded_at_ms = Some(now_ms());
            entry.load_time = Some(took);
            if taken.is_some_and(|taken| taken.saturating_add(OTHER_GROWTH) >= bytes) {
                entry.memory_source = MemorySource::ObservedLoadDelta;
                if entry.overrides.is_none() {
                    entry.observed = Some(bytes);
                }
            }
            entry.closing.send_replace(false);
        }
        drop(inner);
        drop(publishing);
        Ok(())
    }

    /// Wait until there is room for a model; unload others where that makes room.
    async fn make_room(&self, name: &str) -> Result<(), LifecycleError> {
        let mut changes = self.changes.subscribe();
        loop {
            let room = self.lock().table.room(name);
            match room {
                LoadRoom::Free => return Ok(()),
                LoadRoom::Never { .. } | LoadRoom::Excluded(_) => {
                    return Err(self.no_room(&self.lock(), name));
                }
                LoadRoom::Evict(victim) => {
                    tracing::info!(model = victim, for_model = name, "model is evicted");
                    // Another may have unloaded it meanwhile; the next look tells.
                    let _ = self.unload_as(&victim, false).await;
                }
                LoadRoom::Soon => self.changed(&mut changes).await?,
            }
        }
    }

    pub(super) fn no_room(&self, inner: &Inner, name: &str) -> LifecycleError {
        let (needed, free) = match inner.table.room(name) {
            LoadRoom::Excluded(by) => {
                let model = name.to_owned();
                return LifecycleError::Excluded { model, by };
            }
            LoadRoom::Never { needed, free } => (needed, free),
            _ => (inner.table.slot(name).map_or(0, |slot| slot.bytes), 0),
        };
        LifecycleError::NoRoom {
            model: name.to_owned(),
            needed,
            free,
            budget: self.config.room.bytes,
            models: self.config.room.models,
        }
    }

    /// Publish what is loaded, after the model of this name has left.
    pub(super) async fn publish_known(&self, name: &str) {
        let _publishing = self.publishing.lock().await;
        if let Some(publisher) = self.publisher.get().and_then(Weak::upgrade)
            && let Err(error) = publisher.publish(self.known()).await
        {
            // Requests are refused by the state all the same.
            tracing::error!(
                model = name,
                error,
                "the models without this one could not be published"
            );
        }
    }

    /// Wait until nobody uses a model, and release it.
    async fn run_unload(&self, name: &str) {
        self.publish_known(name).await;
        let mut changes = self.changes.subscribe();
        while !self.lock().table.is_drained(name) {
            if self.changed(&mut changes).await.is_err() {
                return;
            }
        }
        let model = {
            let mut inner = self.lock();
            inner.forget_overrides(name);
            inner.entries.get_mut(name).and_then(|entry| {
                entry.loaded_at_ms = None;
                entry.load_time = None;
                entry.loaded.take()
            })
        };
        self.forget_adapters(name, model.as_deref());
        // The runtime ends with its last reference, and waits for its threads.
        let released = tokio::task::spawn_blocking(move || drop(model));
        if let Err(panic) = released.await {
            tracing::error!(model = name, %panic, "the end of a runtime broke off");
        }
        self.lock().table.released(name);
        tracing::info!(model = name, "model unloaded");
        self.tell(name);
    }

    /// The next load of a model will have the adapters of the configuration only.
    fn forget_adapters(&self, name: &str, model: Option<&Model>) {
        let adapters = model.and_then(Model::adapters);
        let statuses = adapters.map(|adapters| adapters.statuses());
        let mut inner = self.lock();
        for status in statuses.unwrap_or_default() {
            let configured = inner.entries.get(name).is_some_and(|entry| {
                let mut loras = entry.config.loras.iter();
                loras.any(|lora| lora.name == status.config.name)
            });
            if let Some(adapter) = status.loaded.filter(|_| !configured) {
                inner.table.shrink(name, adapter.bytes());
            }
        }
    }

    fn progress_of(&self, name: &str) -> LoadProgress {
        let output = self.output(name).unwrap_or_default();
        let (manager, name) = (self.this.clone(), name.to_owned());
        let listener = move |progress: &LoadStatus| {
            let Some(manager) = manager.upgrade() else {
                return;
            };
            let state = ModelState::Loading;
            {
                let mut inner = manager.lock();
                // A load that was given up may go on.
                if inner.table.slot(&name).map(|slot| slot.state) != Some(state) {
                    return;
                }
                if let Some(entry) = inner.entries.get_mut(&name) {
                    entry.progress = Some(progress.clone());
                }
            }
            manager
                .events
                .send(&name, state, Some(progress.clone()), None);
        };
        LoadProgress::new(Box::new(listener), output)
    }
}

impl Inner {
    /// The refusal that the state of a model means.
    pub(super) fn refusal(&self, name: &str, state: ModelState) -> LifecycleError {
        let slot = self.table.slot(name);
        let error = slot.and_then(|slot| slot.last_error.as_deref());
        let late = self
            .entries
            .get(name)
            .is_some_and(|entry| entry.late.is_some());
        match LifecycleError::of_state(name, state, error) {
            LifecycleError::Failed { model, error } if late => {
                LifecycleError::Late { model, error }
            }
            refusal => refusal,
        }
    }

    /// Whether the thread of a load that was given up goes on.
    pub(super) fn is_stuck(&self, name: &str) -> bool {
        let late = self.entries.get(name).and_then(|entry| entry.late.as_ref());
        late.is_some_and(LeftBehind::goes_on)
    }
}
