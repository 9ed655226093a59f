//! The manager of all models: loads and unloads them, makes room, and holds them while requests use them.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{broadcast, watch};

use super::error::LifecycleError;
use super::events::{Events, ModelEvent, now_ms};
use super::lease::ModelLease;
use super::memory::resident_bytes;
use super::overrides::LoadOverrides;
use super::progress::{LoadProgress, LoadStage, Progress};
use super::state::{LoadStep, ModelState, Room, RoomLimits, StateTable, UnloadStep};
use crate::config::ModelConfig;
use crate::model::{Listing, Model};

/// Loads models. Called on threads that may block, one call at a time.
pub trait LoadModel: Send + Sync {
    /// Load a model and start its runtime.
    ///
    /// # Errors
    /// When its files or settings are wrong, or it does not fit.
    fn load(
        &self,
        config: &ModelConfig,
        overrides: &LoadOverrides,
        progress: &LoadProgress,
    ) -> anyhow::Result<Model>;

    /// Check settings of a load before it begins.
    ///
    /// # Errors
    /// When a setting cannot be had for this model.
    fn check(&self, config: &ModelConfig, overrides: &LoadOverrides) -> Result<(), LifecycleError>;

    /// Look whether the files of a model are there, before others are unloaded for it.
    ///
    /// # Errors
    /// When a load would fail for lack of them.
    fn probe(&self, config: &ModelConfig) -> anyhow::Result<()>;

    /// Bytes of the files that a load would read, as far as they are known.
    fn artifact_bytes(&self, config: &ModelConfig) -> Option<u64>;
}

/// A model that the server knows, with its runtime if it is loaded.
#[derive(Debug, Clone)]
pub struct KnownModel {
    /// Names and what lists of models show.
    pub listing: Arc<Listing>,
    /// The loaded model.
    pub loaded: Option<Arc<Model>>,
}

/// Result of [`PublishModels::publish`].
pub type Published<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Serves what is loaded: binds plugins and takes the models into the service.
pub trait PublishModels: Send + Sync {
    /// Serve these models from the next request on. After an error, what served before goes on.
    fn publish(&self, models: Vec<KnownModel>) -> Published<'_>;
}

/// Settings of the manager.
#[derive(Debug, Clone, Copy)]
pub struct LifecycleConfig {
    /// Bounds of what is loaded at once.
    pub room: RoomLimits,
    /// Requests load models that are not loaded, where the model does not say.
    pub load_on_demand: bool,
    /// Time without a request after which a model is unloaded, where the model does not say.
    pub idle_timeout: Option<Duration>,
    /// Pause between looks for idle models.
    pub idle_check: Duration,
}

impl Default for LifecycleConfig {
    fn default() -> Self {
        Self {
            room: RoomLimits::default(),
            load_on_demand: false,
            idle_timeout: None,
            idle_check: Duration::from_secs(30),
        }
    }
}

/// Origin of the estimate of a model's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemorySource {
    /// Growth of the process during its last load.
    ObservedLoadDelta,
    /// Size of its files.
    ModelArtifactSize,
    /// Nothing is known.
    Unavailable,
}

impl MemorySource {
    /// Name of the origin on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::ObservedLoadDelta => "observed_load_delta",
            Self::ModelArtifactSize => "model_artifact_size",
            Self::Unavailable => "unavailable",
        }
    }
}

/// State of one model, for operators.
#[derive(Debug, Clone)]
pub struct ModelStatus {
    /// Names and what lists of models show.
    pub listing: Arc<Listing>,
    /// Its definition.
    pub config: Arc<ModelConfig>,
    /// State.
    pub state: ModelState,
    /// Why its last load failed.
    pub last_error: Option<String>,
    /// Progress, while it is loading.
    pub progress: Option<Progress>,
    /// Settings of the load in force.
    pub overrides: Option<LoadOverrides>,
    /// The loaded model.
    pub loaded: Option<Arc<Model>>,
    /// Requests that use it or wait for it.
    pub in_flight: usize,
    /// Requests that have used it since the start.
    pub uses: u64,
    /// Memory that it takes, or is expected to take.
    pub memory_bytes: u64,
    /// Origin of that number.
    pub memory_source: MemorySource,
    /// When it was loaded, in milliseconds since 1970.
    pub loaded_at_ms: Option<u64>,
    /// How long its load took.
    pub load_time: Option<Duration>,
    /// Time since its last request or its load; `None` if it is not loaded.
    pub idle: Option<Duration>,
}

/// What the manager holds of one model.
struct Entry {
    config: Arc<ModelConfig>,
    listing: Arc<Listing>,
    loaded: Option<Arc<Model>>,
    overrides: Option<LoadOverrides>,
    progress: Option<Progress>,
    memory_source: MemorySource,
    loaded_at_ms: Option<u64>,
    load_time: Option<Duration>,
    /// Tells leases that the model closes.
    closing: watch::Sender<bool>,
}

/// Outcome of one look at a model that a request wants.
enum Acquired {
    /// It is loaded.
    Held(ModelLease),
    /// Its state has to change first.
    Wait,
    /// It has to be loaded.
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
    /// What is published is published in order.
    publishing: tokio::sync::Mutex<()>,
    loader: Arc<dyn LoadModel>,
    publisher: OnceLock<Weak<dyn PublishModels>>,
    events: Events,
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
            inner.order.push(model.name.clone());
            let entry = Entry::new(model, size);
            inner.entries.insert(entry.listing.name.clone(), entry);
        }
        Arc::new_cyclic(|this| Self {
            inner: Mutex::new(inner),
            changes: watch::Sender::new(0),
            turn: tokio::sync::Mutex::default(),
            publishing: tokio::sync::Mutex::default(),
            loader,
            publisher: OnceLock::new(),
            events: Events::default(),
            config,
            started: Instant::now(),
            this: this.clone(),
        })
    }

    /// Publish to `publisher` from now on. Only the first one counts.
    pub fn publish_to(&self, publisher: Weak<dyn PublishModels>) {
        let _ = self.publisher.set(publisher);
    }

    /// Events of all models from now on.
    pub fn listen(&self) -> broadcast::Receiver<ModelEvent> {
        self.events.listen()
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

    /// Whether a model can be loaded without unloading another.
    pub fn has_room(&self, name: &str) -> bool {
        self.lock().table.room(name) == Room::Free
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
                    ModelState::Unloaded if inner.table.room(name) != Room::Free => {
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
        match inner.table.load(name).ok_or_else(unknown)? {
            LoadStep::Pending | LoadStep::Done => return Ok(()),
            LoadStep::Unloading => return Err(LifecycleError::Unloading(name.to_owned())),
            LoadStep::Begin => {}
        }
        if let Some(entry) = inner.entries.get_mut(name) {
            entry.overrides = late.then_some(overrides);
            entry.progress = Some(Progress::of(LoadStage::Waiting));
        }
        drop(inner);
        self.tell(name);
        if let Some(this) = self.this.upgrade() {
            let name = name.to_owned();
            tokio::spawn(async move { this.run_load(&name, &config).await });
        }
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
            if step == UnloadStep::Begin
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
                if let Some(this) = self.this.upgrade() {
                    let name = name.to_owned();
                    // On its own: an unload is finished though its caller has gone.
                    tokio::spawn(async move { this.run_unload(&name, None).await });
                }
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

    /// The runtime of a model has ended by itself: requests are refused until it is loaded again.
    pub fn runtime_ended(&self, name: &str, error: String) {
        let begun = self.lock().table.unload(name) == Some(UnloadStep::Begin);
        if !begun {
            return;
        }
        tracing::error!(model = name, error, "the runtime of a model has ended");
        self.tell(name);
        if let Some(this) = self.this.upgrade() {
            let name = name.to_owned();
            tokio::spawn(async move { this.run_unload(&name, Some(error)).await });
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
            ModelLease::new(self.this.clone(), name, closing)
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

    /// End a use.
    pub(super) fn release(&self, name: &str, served: bool) {
        let drained = {
            let mut inner = self.lock();
            inner.table.leave(name, served, self.now());
            inner.table.is_drained(name)
        };
        if drained {
            self.bump();
        }
    }

    /// Unload models that nobody has used for a while. Does not return.
    pub async fn unload_idle(&self) {
        let mut ticks = tokio::time::interval(self.config.idle_check);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let idle = {
                let inner = self.lock();
                inner.table.idle(self.now(), |name| {
                    let entry = inner.entries.get(name)?;
                    let after = entry.config.lifecycle.idle_timeout;
                    let after = after.unwrap_or(self.config.idle_timeout)?;
                    Some(u64::try_from(after.as_millis()).unwrap_or(u64::MAX))
                })
            };
            for name in idle {
                tracing::info!(model = name, "nobody has used this model for a while");
                // It may be gone or loading by now, which is as good.
                let _ = self.unload_as(&name, false).await;
            }
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
        let _ = tokio::task::spawn_blocking(move || drop(runtimes)).await;
    }

    async fn run_load(&self, name: &str, config: &Arc<ModelConfig>) {
        let turn = self.turn.lock().await;
        let (loader, probed) = (Arc::clone(&self.loader), Arc::clone(config));
        let probe = tokio::task::spawn_blocking(move || loader.probe(&probed));
        match probe
            .await
            .map_err(anyhow::Error::from)
            .and_then(|probe| probe)
        {
            Ok(()) => {}
            Err(error) => return self.load_failed(name, format!("{error:#}")),
        }
        if let Err(refusal) = self.make_room(name).await {
            tracing::warn!(model = name, error = %refusal, "model was not loaded");
            self.lock().table.refused(name);
            self.tell(name);
            return;
        }
        let begun = Instant::now();
        let before = resident_bytes();
        let model = self.load_now(name, config).await;
        let took = begun.elapsed();
        let grown = match (before, resident_bytes()) {
            (Some(before), Some(after)) if after > before => Some(after - before),
            _ => None,
        };
        let published = match model {
            Ok(model) => self.serve(name, model, grown, took).await,
            Err(error) => Err(error),
        };
        // Only now: the next load must find this model among the loaded ones.
        drop(turn);
        match published {
            Ok(()) => tracing::info!(
                model = name,
                load_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
                "model serves"
            ),
            Err(error) => return self.load_failed(name, error),
        }
        self.tell(name);
    }

    fn load_failed(&self, name: &str, error: String) {
        tracing::error!(model = name, error, "model could not be loaded");
        {
            let mut inner = self.lock();
            inner.table.loaded(name, Err(error), self.now());
            if let Some(entry) = inner.entries.get_mut(name) {
                entry.progress = None;
                entry.loaded = None;
                entry.overrides = None;
            }
        }
        self.tell(name);
    }

    /// Load on a thread that may block.
    async fn load_now(&self, name: &str, config: &Arc<ModelConfig>) -> Result<Arc<Model>, String> {
        let (loader, config) = (Arc::clone(&self.loader), Arc::clone(config));
        let overrides = {
            let inner = self.lock();
            inner
                .entries
                .get(name)
                .and_then(|entry| entry.overrides.clone())
        };
        let progress = self.progress_of(name);
        let loading = move || {
            progress.stage(LoadStage::Reading);
            loader.load(&config, &overrides.unwrap_or_default(), &progress)
        };
        match tokio::task::spawn_blocking(loading).await {
            Ok(Ok(model)) => Ok(Arc::new(model)),
            Ok(Err(error)) => Err(format!("{error:#}")),
            Err(panic) => Err(format!("the load broke off: {panic}")),
        }
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
        let mut inner = self.lock();
        let expected = inner.table.slot(name).map_or(0, |slot| slot.bytes);
        let bytes = grown.unwrap_or(0).max(expected);
        inner.table.loaded(name, Ok(bytes), self.now());
        if let Some(entry) = inner.entries.get_mut(name) {
            entry.loaded = Some(model);
            entry.progress = None;
            entry.loaded_at_ms = Some(now_ms());
            entry.load_time = Some(took);
            if grown.is_some_and(|grown| grown >= expected) {
                entry.memory_source = MemorySource::ObservedLoadDelta;
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
                Room::Free => return Ok(()),
                Room::Never { .. } => return Err(self.no_room(&self.lock(), name)),
                Room::Evict(victim) => {
                    tracing::info!(model = victim, for_model = name, "model is evicted");
                    // Another may have unloaded it meanwhile; the next look tells.
                    let _ = self.unload_as(&victim, false).await;
                }
                Room::Soon => self.changed(&mut changes).await?,
            }
        }
    }

    fn no_room(&self, inner: &Inner, name: &str) -> LifecycleError {
        let (needed, free) = match inner.table.room(name) {
            Room::Never { needed, free } => (needed, free),
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

    /// Wait until nobody uses a model, and release it.
    async fn run_unload(&self, name: &str, why: Option<String>) {
        let publishing = self.publishing.lock().await;
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
        drop(publishing);
        let mut changes = self.changes.subscribe();
        while !self.lock().table.is_drained(name) {
            if self.changed(&mut changes).await.is_err() {
                return;
            }
        }
        let model = {
            let mut inner = self.lock();
            inner.entries.get_mut(name).and_then(|entry| {
                entry.overrides = None;
                entry.loaded_at_ms = None;
                entry.load_time = None;
                entry.loaded.take()
            })
        };
        // The runtime ends with its last reference, and waits for its threads.
        let released = tokio::task::spawn_blocking(move || drop(model));
        if let Err(panic) = released.await {
            tracing::error!(model = name, %panic, "the end of a runtime broke off");
        }
        self.lock().table.released(name, why);
        tracing::info!(model = name, "model unloaded");
        self.tell(name);
    }

    fn progress_of(&self, name: &str) -> LoadProgress {
        let (manager, name) = (self.this.clone(), name.to_owned());
        LoadProgress::new(Box::new(move |progress| {
            let Some(manager) = manager.upgrade() else {
                return;
            };
            if let Some(entry) = manager.lock().entries.get_mut(&name) {
                entry.progress = Some(progress.clone());
            }
            let state = ModelState::Loading;
            manager
                .events
                .send(&name, state, Some(progress.clone()), None);
        }))
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

impl Entry {
    fn new(config: ModelConfig, size: Option<u64>) -> Self {
        Self {
            listing: Arc::new(Listing::of(&config)),
            config: Arc::new(config),
            loaded: None,
            overrides: None,
            progress: None,
            memory_source: match size {
                Some(_) => MemorySource::ModelArtifactSize,
                None => MemorySource::Unavailable,
            },
            loaded_at_ms: None,
            load_time: None,
            closing: watch::Sender::new(false),
        }
    }
}

impl Inner {
    fn refusal(&self, name: &str, state: ModelState) -> LifecycleError {
        let slot = self.table.slot(name);
        let error = slot.and_then(|slot| slot.last_error.as_deref());
        LifecycleError::of_state(name, state, error)
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
