//! The manager of all models: loads and unloads them, makes room, and holds them while requests use them.

mod adapters;
mod definitions;
mod ends;
mod idle;
mod work;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, broadcast, watch};

use super::contract::{
    KnownModel, LifecycleConfig, LoadModel, MemorySource, ModelStatus, PublishModels,
};
use super::error::LifecycleError;
use super::events::{LifecycleEvents, ModelEvent};
use super::lease::{CountLeases, ModelLease};
use super::load_time::LeftBehind;
use super::output_log::OutputLog;
use super::overrides::{LoadOverrides, Override};
use super::progress::{LoadStage, LoadStatus};
use super::state::{Company, LoadRoom, LoadStep, ModelState, StateTable, UnloadStep};
use crate::config::ModelConfig;
use crate::model::{Listing, Model};

pub use adapters::AdapterRefusal;
pub use definitions::{Redefinition, RedefinitionConflict};

/// State of one model beside its place in the table.
struct Entry {
    config: Arc<ModelConfig>,
    listing: Arc<Listing>,
    loaded: Option<Arc<Model>>,
    overrides: Option<LoadOverrides>,
    progress: Option<LoadStatus>,
    memory_source: MemorySource,
    /// Memory that a load as configured took.
    observed: Option<u64>,
    loaded_at_ms: Option<u64>,
    load_time: Option<Duration>,
    /// Last lines that processes of the model printed.
    output: Arc<OutputLog>,
    /// The thread of its last load, if that took too long.
    late: Option<LeftBehind>,
    /// Restarts after crashes in a row.
    restarts: u32,
    /// Tells leases that the model closes.
    closing: watch::Sender<bool>,
}

/// Outcome of one look at a model that a request wants.
enum Acquired {
    /// The model is loaded, and held.
    Held(ModelLease),
    /// The request has to wait until the model's state changes.
    Wait,
    /// The model has to be loaded.
    Begin,
}

#[derive(Default)]
struct Inner {
    table: StateTable,
    entries: BTreeMap<String, Entry>,
    /// Names in the order of the configuration.
    order: Vec<String>,
    stopping: bool,
}

/// Loads and unloads models, one at a time, and counts who uses them.
pub struct ModelManager {
    inner: Mutex<Inner>,
    /// Counts changes of states, for those who wait for one.
    changes: watch::Sender<u64>,
    /// Loads take turns: memory is measured, and room is made, for one at a time.
    turn: tokio::sync::Mutex<()>,
    /// Publications take turns, so that the last one is the newest.
    publishing: tokio::sync::Mutex<()>,
    /// Tells that a model is to be unloaded before the next look for idle ones.
    kept: Notify,
    loader: Arc<dyn LoadModel>,
    publisher: OnceLock<Weak<dyn PublishModels>>,
    events: LifecycleEvents,
    config: LifecycleConfig,
    started: Instant,
    this: Weak<ModelManager>,
}

impl std::fmt::Debug for ModelManager {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ModelManager")
    }
}

impl ModelManager {
    /// A manager of these models, none of which is loaded.
    pub fn new(
        models: Vec<ModelConfig>,
        loader: Arc<dyn LoadModel>,
        config: LifecycleConfig,
    ) -> Arc<Self> {
        let mut inner = Inner {
            table: StateTable::new(config.room),
            ..Inner::default()
        };
        for model in models {
            let size = loader.artifact_bytes(&model);
            inner
                .table
                .add(&model.name, size.unwrap_or(0), model.lifecycle.pinned);
            inner.table.set_company(&model.name, company_of(&model));
            inner
                .table
                .set_elsewhere(&model.name, model.upstream.is_some());
            inner.order.push(model.name.clone());
            let entry = Entry::new(model, size);
            inner.entries.insert(entry.listing.name.clone(), entry);
        }
        Arc::new_cyclic(|this| Self {
            inner: Mutex::new(inner),
            changes: watch::Sender::new(0),
            turn: tokio::sync::Mutex::default(),
            publishing: tokio::sync::Mutex::default(),
            kept: Notify::default(),
            loader,
            publisher: OnceLock::new(),
            events: LifecycleEvents::default(),
            config,
            started: Instant::now(),
            this: this.clone(),
        })
    }

    /// Publish models to `publisher` from now on. Only the first publisher counts.
    pub fn publish_to(&self, publisher: Weak<dyn PublishModels>) {
        let _ = self.publisher.set(publisher);
    }

    /// Events of all models from now on.
    pub fn listen(&self) -> broadcast::Receiver<ModelEvent> {
        self.events.listen()
    }

    /// Events of all models from now on, if callers are to hear of the loads that they wait for.
    pub fn swap_notices(&self) -> Option<broadcast::Receiver<ModelEvent>> {
        self.config.swap_notices.then(|| self.listen())
    }

    /// All models, in the order of the configuration.
    pub fn known(&self) -> Vec<KnownModel> {
        let inner = self.lock();
        let known = inner.order.iter().filter_map(|name| {
            let entry = inner.entries.get(name)?;
            let serves = inner.table.slot(name)?.state == ModelState::Loaded;
            Some(KnownModel {
                listing: Arc::clone(&entry.listing),
                loaded: entry.loaded.clone().filter(|_| serves),
            })
        });
        known.collect()
    }

    /// States of all models, in the order of the configuration.
    pub fn statuses(&self) -> Vec<ModelStatus> {
        let inner = self.lock();
        let now = self.now();
        let names = inner.order.iter();
        names.filter_map(|name| inner.status(name, now)).collect()
    }

    /// State of one model, by its exact name.
    pub fn status(&self, name: &str) -> Option<ModelStatus> {
        self.lock().status(name, self.now())
    }

    /// Bytes of the files that a load of a model would read, as far as they are known. Looks at the disk.
    pub fn artifact_bytes(&self, name: &str) -> Option<u64> {
        let config = Arc::clone(&self.lock().entries.get(name)?.config);
        self.loader.artifact_bytes(&config)
    }

    /// Last lines of the processes of a model; `None` if there is no such model.
    pub fn output(&self, name: &str) -> Option<Arc<OutputLog>> {
        let inner = self.lock();
        inner
            .entries
            .get(name)
            .map(|entry| Arc::clone(&entry.output))
    }

    /// Room for a model: true if it can be loaded as configured without unloading another. Looks at the disk.
    pub fn has_room(&self, name: &str) -> bool {
        let entry = |inner: &Inner| {
            let entry = inner.entries.get(name)?;
            Some((Arc::clone(&entry.config), entry.observed))
        };
        let Some((config, observed)) = entry(&self.lock()) else {
            return false;
        };
        let plain = LoadOverrides::default();
        let expected = self.loader.expected_bytes(&config, &plain);
        let mut inner = self.lock();
        let state = inner.table.slot(name).map(|slot| slot.state);
        if matches!(state, Some(ModelState::Unloaded | ModelState::Failed)) {
            let bytes = expected.max(observed);
            inner.table.set_bytes(name, bytes.unwrap_or(0));
        }
        inner.table.room(name) == LoadRoom::Free
    }

    /// Load a model and wait until it is loaded. The load goes on if the caller gives up waiting.
    ///
    /// # Errors
    /// When it cannot be loaded, or `overrides` come while it is loaded or being loaded.
    pub async fn load(&self, name: &str, overrides: LoadOverrides) -> Result<(), LifecycleError> {
        self.begin_load(name, overrides)?;
        let mut changes = self.changes.subscribe();
        loop {
            {
                let inner = self.lock();
                let slot = inner
                    .table
                    .slot(name)
                    .ok_or_else(|| LifecycleError::Unknown(name.to_owned()))?;
                match slot.state {
                    ModelState::Loaded => return Ok(()),
                    ModelState::Loading => {}
                    ModelState::Unloaded if inner.table.room(name) != LoadRoom::Free => {
                        return Err(self.no_room(&inner, name));
                    }
                    state => return Err(inner.refusal(name, state)),
                }
            }
            self.changed(&mut changes).await?;
        }
    }

    /// Begin to load a model, unless it is loaded or being loaded.
    ///
    /// # Errors
    /// As [`ModelManager::load`], but for failures of the load itself.
    pub fn begin_load(&self, name: &str, overrides: LoadOverrides) -> Result<(), LifecycleError> {
        let unknown = || LifecycleError::Unknown(name.to_owned());
        let config = {
            let inner = self.lock();
            Arc::clone(&inner.entries.get(name).ok_or_else(unknown)?.config)
        };
        if !overrides.is_empty() {
            self.loader.check(&config, &overrides)?;
        }
        let mut inner = self.lock();
        if inner.stopping {
            return Err(LifecycleError::Stopping);
        }
        let late = !overrides.is_empty();
        let state = inner.table.slot(name).ok_or_else(unknown)?.state;
        if late && matches!(state, ModelState::Loaded | ModelState::Loading) {
            return Err(LifecycleError::of_state(name, state, None));
        }
        if state == ModelState::Failed && inner.is_stuck(name) {
            return Err(LifecycleError::Stuck(name.to_owned()));
        }
        match inner.table.load(name).ok_or_else(unknown)? {
            LoadStep::Pending | LoadStep::Done => return Ok(()),
            LoadStep::Unloading => return Err(LifecycleError::Unloading(name.to_owned())),
            LoadStep::Begin => {}
        }
        inner
            .table
            .set_pinned(name, overrides.pins(config.lifecycle.pinned));
        if let Some(entry) = inner.entries.get_mut(name) {
            entry.late = None;
            entry.overrides = late.then_some(overrides);
            entry.progress = Some(LoadStatus::of(LoadStage::Waiting));
        }
        drop(inner);
        self.tell(name);
        self.spawn_load(name, config);
        Ok(())
    }

    /// Unload a model and wait until its memory is free. Requests under way are answered; those that have
    /// not begun are told.
    ///
    /// # Errors
    /// When there is no such model, or it is being loaded.
    pub async fn unload(&self, name: &str) -> Result<(), LifecycleError> {
        self.unload_as(name, true).await
    }

    /// Unload; `tell_queued`: end requests that have not begun, instead of answering them first.
    async fn unload_as(&self, name: &str, tell_queued: bool) -> Result<(), LifecycleError> {
        let unknown = || LifecycleError::Unknown(name.to_owned());
        let step = {
            let mut inner = self.lock();
            let step = inner.table.unload(name).ok_or_else(unknown)?;
            // An operator's unload also hurries one that is under way for another reason.
            if matches!(step, UnloadStep::Begin | UnloadStep::Pending)
                && tell_queued
                && let Some(entry) = inner.entries.get(name)
            {
                entry.closing.send_replace(true);
            }
            step
        };
        match step {
            UnloadStep::Loading => return Err(LifecycleError::Loading(name.to_owned())),
            UnloadStep::Done => {
                self.tell(name);
                return Ok(());
            }
            UnloadStep::Pending => {}
            UnloadStep::Begin => {
                tracing::info!(model = name, "model is being unloaded");
                self.tell(name);
                // On its own: an unload is finished though its caller has gone.
                self.spawn_unload(name);
            }
        }
        let mut changes = self.changes.subscribe();
        loop {
            let state = self.lock().table.slot(name).map(|slot| slot.state);
            if state != Some(ModelState::Unloading) {
                return Ok(());
            }
            self.changed(&mut changes).await?;
        }
    }

    /// Use a model for a request: wait until it is loaded, where requests may load it.
    ///
    /// # Errors
    /// When it is not loaded and requests do not load it, or its load failed.
    pub async fn acquire(&self, name: &str) -> Result<ModelLease, LifecycleError> {
        let mut changes = self.changes.subscribe();
        let mut lease = None;
        loop {
            match self.try_acquire(name, &mut lease)? {
                Acquired::Held(lease) => return Ok(lease),
                Acquired::Wait => self.changed(&mut changes).await?,
                Acquired::Begin => {
                    match self.begin_load(name, LoadOverrides::default()) {
                        Ok(()) | Err(LifecycleError::Unloading(_)) => {}
                        Err(error) => return Err(error),
                    }
                    self.wait_for_load(name, &mut changes).await?;
                }
            }
        }
    }

    /// One look at a model that a request wants. The request is counted from its first look: a model is not
    /// evicted between its load and the requests that it was loaded for.
    fn try_acquire(
        &self,
        name: &str,
        lease: &mut Option<ModelLease>,
    ) -> Result<Acquired, LifecycleError> {
        let mut inner = self.lock();
        let Inner { table, entries, .. } = &mut *inner;
        let (Some(slot), Some(entry)) = (table.slot(name), entries.get(name)) else {
            return Err(LifecycleError::Unknown(name.to_owned()));
        };
        let on_demand = entry.config.lifecycle.load_on_demand;
        let on_demand = on_demand.unwrap_or(self.config.load_on_demand);
        let (state, closing) = (slot.state, entry.closing.subscribe());
        let waits = on_demand && state != ModelState::Failed;
        if state != ModelState::Loaded && !waits {
            return Err(inner.refusal(name, state));
        }
        if state == ModelState::Unloading {
            // Who waits for the end of an unload must not hold it up.
            let given_back = lease.take();
            drop(inner);
            drop(given_back);
            return Ok(Acquired::Wait);
        }
        let mut held = lease.take().unwrap_or_else(|| {
            table.enter(name, self.now());
            let counter: Weak<Self> = self.this.clone();
            ModelLease::new(counter, name, closing)
        });
        if state == ModelState::Loaded {
            held.serves();
            return Ok(Acquired::Held(held));
        }
        *lease = Some(held);
        Ok(match state {
            ModelState::Unloaded => Acquired::Begin,
            _ => Acquired::Wait,
        })
    }

    /// Wait while a model is being loaded.
    async fn wait_for_load(
        &self,
        name: &str,
        changes: &mut watch::Receiver<u64>,
    ) -> Result<(), LifecycleError> {
        loop {
            {
                let inner = self.lock();
                match inner.table.slot(name).map(|slot| slot.state) {
                    Some(ModelState::Loading) => {}
                    Some(ModelState::Unloaded) => return Err(self.no_room(&inner, name)),
                    _ => return Ok(()),
                }
            }
            self.changed(changes).await?;
        }
    }

    /// Take no more loads, and drop all runtimes.
    pub async fn stop(&self) {
        let runtimes: Vec<Arc<Model>> = {
            let mut inner = self.lock();
            inner.stopping = true;
            let entries = inner.entries.values_mut();
            entries.filter_map(|entry| entry.loaded.take()).collect()
        };
        self.bump();
        // Side by side: each may wait for a process.
        let ends: Vec<_> = runtimes
            .into_iter()
            .map(|runtime| tokio::task::spawn_blocking(move || drop(runtime)))
            .collect();
        for end in ends {
            let _ = end.await;
        }
    }

    /// Tell listeners and waiters of a model's state.
    fn tell(&self, name: &str) {
        let told = {
            let inner = self.lock();
            let slot = inner.table.slot(name);
            slot.map(|slot| (slot.state, slot.last_error.clone()))
        };
        if let Some((state, error)) = told {
            self.events.send(name, state, None, error);
        }
        self.bump();
    }

    fn bump(&self) {
        self.changes
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Wait for a change of any state.
    async fn changed(&self, changes: &mut watch::Receiver<u64>) -> Result<(), LifecycleError> {
        let alive = changes.changed().await.is_ok();
        match alive && !self.lock().stopping {
            true => Ok(()),
            false => Err(LifecycleError::Stopping),
        }
    }

    /// Milliseconds since the manager was made.
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CountLeases for ModelManager {
    fn release(&self, model: &str, served: bool) {
        let drained = {
            let mut inner = self.lock();
            inner.table.leave(model, served, self.now());
            if inner.is_kept_shorter(model, self.config.idle_check) {
                self.kept.notify_one();
            }
            inner.table.is_drained(model)
        };
        if drained {
            self.bump();
        }
    }
}

/// Models beside which a configured model may be loaded. A process without a group runs alone.
fn company_of(config: &ModelConfig) -> Company {
    match config.child.as_ref().map(|child| &child.group) {
        None => Company::Any,
        Some(None) => Company::Alone,
        Some(Some(group)) => Company::Group(group.clone()),
    }
}

impl Entry {
    fn new(config: ModelConfig, size: Option<u64>) -> Self {
        Self {
            listing: Arc::new(Listing::of(&config)),
            config: Arc::new(config),
            loaded: None,
            overrides: None,
            progress: None,
            memory_source: MemorySource::of_files(size),
            observed: None,
            loaded_at_ms: None,
            load_time: None,
            output: Arc::default(),
            late: None,
            restarts: 0,
            closing: watch::Sender::new(false),
        }
    }
}

impl Entry {
    /// Whether a load with these settings converts weights to another format.
    fn is_quantised(&self) -> bool {
        let overrides = self.overrides.as_ref();
        let quantize = overrides.map_or(Override::Keep, |overrides| overrides.quantize);
        quantize.over(self.config.quantize).is_some()
    }
}

impl Inner {
    /// Forget the settings of a model's last load.
    fn forget_overrides(&mut self, name: &str) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.overrides = None;
            self.table.set_pinned(name, entry.config.lifecycle.pinned);
        }
    }

    fn status(&self, name: &str, now: u64) -> Option<ModelStatus> {
        let (slot, entry) = (self.table.slot(name)?, self.entries.get(name)?);
        let resident = matches!(slot.state, ModelState::Loaded | ModelState::Unloading);
        let idle = now.saturating_sub(slot.last_used);
        Some(ModelStatus {
            listing: Arc::clone(&entry.listing),
            config: Arc::clone(&entry.config),
            state: slot.state,
            last_error: slot.last_error.clone(),
            progress: entry
                .progress
                .clone()
                .filter(|_| slot.state == ModelState::Loading),
            overrides: entry.overrides.clone(),
            loaded: entry.loaded.clone(),
            pinned: slot.pinned,
            in_flight: slot.users,
            uses: slot.uses,
            memory_bytes: slot.bytes,
            memory_source: entry.memory_source,
            loaded_at_ms: entry.loaded_at_ms,
            load_time: entry.load_time,
            idle: resident.then(|| Duration::from_millis(idle)),
        })
    }
}

#[cfg(test)]
mod tests;
