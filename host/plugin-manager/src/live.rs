//! Replacement of plugins while the server runs.
//!
//! Files are polled. Notifications of the system are lost on network and overlay file systems and for
//! mounted configuration; and a file is loaded only once it has stayed the same for a whole interval, which
//! needs a second look anyway.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use mortise_models::lifecycle::{KnownModel, PublishModels, Published};
use mortise_plugin::{Breakdown, PluginHost, QuotaCaller};
use mortise_service::{PolicyQuotas, ServedModel, Service};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::Mutex;
use tokio::time::MissedTickBehavior;

use crate::assignments::assign;
use crate::bound::{Binder, BoundPlugins, Ledgers};
use crate::config::{AuthConfig, BindingConfig, PluginConfig};
use crate::error::PluginSetError;
use crate::folder::{Rejected, shown};
use crate::library::{FilesFingerprint, PluginLibrary, Prove};
use crate::managed_model::ManagedModel;
use crate::model::{ModelFacts, ModelKey};
use crate::plugin_set::PluginSet;
use crate::progress::{ReloadProgress, on_a_thread};

/// Counters of replacements, for metrics.
#[derive(Debug, Default)]
pub struct SwapCounters {
    /// Sets of plugins that have served, from 1.
    pub generation: AtomicU64,
    /// Reloads that changed the plugins that serve.
    pub replaced: AtomicU64,
    /// Reloads that changed nothing.
    pub unchanged: AtomicU64,
    /// Files refused in reloads, and reloads that failed as a whole.
    pub rejected: AtomicU64,
}

/// Outcome of a reload.
#[derive(Debug)]
pub struct Reload {
    /// The set of plugins that serves, from 1.
    pub generation: u64,
    /// Flag of a reload that changed the plugins that serve.
    pub changed: bool,
    /// Files that were refused.
    pub rejected: Vec<Rejected>,
    /// Reason for which the reload failed as a whole.
    pub error: Option<String>,
}

impl Reload {
    /// The outcome as the admin API shows it.
    pub fn to_json(&self) -> Value {
        json!({
            "generation": self.generation,
            "changed": self.changed,
            "rejected": rejected_json(&self.rejected),
            "error": self.error,
        })
    }
}

fn rejected_json(rejected: &[Rejected]) -> Vec<Value> {
    let one = |file: &Rejected| json!({"file": file.file(), "reason": file.reason});
    rejected.iter().map(one).collect()
}

/// A breakdown with every detail, for operators. Callers of the API are told its kind only.
fn breakdown_json(breakdown: Breakdown) -> Value {
    let Breakdown { error, at } = breakdown;
    json!({
        "plugin": &*error.plugin,
        "version": &*error.version,
        "kind": error.kind.as_str(),
        "function": error.function,
        "request_id": &*error.request_id,
        "fault": error.fault.label(),
        "text": error.fault.to_string(),
        "printed": &*error.printed,
        "at": OffsetDateTime::from(at).format(&Rfc3339).unwrap_or_default(),
    })
}

/// Reads the plugin configuration again.
pub type ReadConfig = Arc<dyn Fn() -> anyhow::Result<(PluginConfig, AuthConfig)> + Send + Sync>;

/// Observer of reloads, called with the reason and the outcome of each.
pub type ReloadObserver = Box<dyn Fn(&'static str, &Reload) + Send + Sync>;

/// A service and the plugins that serve it.
pub struct LivePlugins {
    pub(crate) host: PluginHost,
    service: Arc<Service>,
    read_config: ReadConfig,
    pub(crate) prove: Prove,
    /// Whoever changes the library holds it, from the reading of files on. Taken before `state`.
    pub(crate) turn: Mutex<()>,
    /// State of the reloads. The lock is not held while files are read: a disk that does not answer keeps no key in
    /// force.
    pub(crate) state: Mutex<LiveState>,
    /// State for the admin API, which does not wait for a reload.
    status: RwLock<Value>,
    counters: Arc<SwapCounters>,
    pub(crate) progress: ReloadProgress,
    observer: OnceLock<ReloadObserver>,
}

/// State that a reload starts from.
pub(crate) struct LiveState {
    /// Models that the server has, without their plugins.
    pub(crate) models: Vec<ManagedModel>,
    pub(crate) config: Arc<PluginConfig>,
    pub(crate) auth: AuthConfig,
    /// Times that `auth` was taken on its own.
    pub(crate) auth_taken: u64,
    /// Other policies have served since the last reload for that reason.
    pub(crate) auth_changed: bool,
    pub(crate) library: PluginLibrary,
    /// Fingerprint of the files before they were last read.
    fingerprint: FilesFingerprint,
    pub(crate) bound: BoundPlugins,
    ledgers: Ledgers,
    pub(crate) rejected: Vec<Rejected>,
    error: Option<String>,
}

/// Files of plugins, as they were read.
pub(crate) struct FoundFiles {
    library: PluginLibrary,
    rejected: Vec<Rejected>,
    /// Fingerprint of the files, taken before they were read.
    fingerprint: FilesFingerprint,
}

/// Internal error, of which no file is the cause.
fn internal(message: String) -> PluginSetError {
    PluginSetError {
        message,
        blame: Vec::new(),
    }
}

impl std::fmt::Debug for LivePlugins {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("LivePlugins")
    }
}

impl PublishModels for LivePlugins {
    fn publish(&self, models: Vec<KnownModel>) -> Published<'_> {
        Box::pin(self.set_models(models))
    }
}

impl LivePlugins {
    /// Manage the plugins that `service` was started with.
    pub fn new(
        bound: PluginSet,
        service: Arc<Service>,
        models: Vec<ManagedModel>,
        auth: AuthConfig,
        read_config: ReadConfig,
        counters: Arc<SwapCounters>,
    ) -> Self {
        counters.generation.store(1, Relaxed);
        let live = Self {
            host: bound.host,
            service,
            read_config,
            prove: bound.prove,
            status: RwLock::new(Value::Null),
            counters,
            progress: ReloadProgress::default(),
            observer: OnceLock::new(),
            turn: Mutex::default(),
            state: Mutex::new(LiveState {
                models,
                config: bound.config,
                auth,
                auth_taken: 0,
                auth_changed: false,
                library: bound.library,
                fingerprint: bound.fingerprint,
                bound: bound.bound,
                ledgers: bound.ledgers,
                rejected: bound.rejected,
                error: None,
            }),
        };
        if let Ok(state) = live.state.try_lock() {
            live.publish(&state);
        }
        live
    }

    /// Tell `observer` of all reloads from now on. Only the first one counts.
    pub fn on_reload(&self, observer: ReloadObserver) {
        let _ = self.observer.set(observer);
    }

    /// Read configuration and files again, and serve those that pass their checks.
    pub async fn reload(&self, reason: &'static str) -> Reload {
        let _turn = self.turn.lock().await;
        let auth_taken = self.state.lock().await.auth_taken;
        let read_config = Arc::clone(&self.read_config);
        let reading = move || read_config().map_err(|error| format!("{error:#}"));
        let read = self.on_a_thread("reading the configuration", reading).await;
        let read = match read.and_then(|config| config) {
            Ok((plugins, auth)) => {
                let config = Arc::new(plugins);
                let found = self.read(&config).await;
                found.map(|found| (config, auth, found))
            }
            Err(message) => Err(internal(message)),
        };
        let mut state = self.state.lock().await;
        let outcome = match read {
            Ok((config, auth, found)) => {
                // Keys that were taken meanwhile are later ones than those that were read.
                let auth = match state.auth_taken == auth_taken {
                    true => auth,
                    false => state.auth.clone(),
                };
                self.put(&mut state, config, auth, found).await
            }
            Err(error) => Err(error),
        };
        self.conclude(&mut state, outcome, reason)
    }

    /// Read the files again under the present configuration.
    async fn reload_files(&self) -> Reload {
        let _turn = self.turn.lock().await;
        let config = Arc::clone(&self.state.lock().await.config);
        let found = self.read(&config).await;
        let mut state = self.state.lock().await;
        let outcome = match found {
            Ok(found) => {
                let auth = state.auth.clone();
                self.put(&mut state, config, auth, found).await
            }
            Err(error) => Err(error),
        };
        self.conclude(&mut state, outcome, "files changed")
    }

    /// Say of a reload that it failed before the plugins were read.
    pub async fn refuse(&self, reason: &'static str, message: String) {
        let mut state = self.state.lock().await;
        self.conclude(&mut state, Err(internal(message)), reason);
    }

    /// Run a step of a reload that blocks on a thread of its own, and tell those who ask whether the server is ready when
    /// it is overdue. What was given up goes on, and its outcome is forgotten.
    ///
    /// # Errors
    /// When it panicked or was given up.
    pub async fn on_a_thread<T: Send + 'static>(
        &self,
        step: &'static str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        on_a_thread(&self.progress, step, work).await
    }

    /// Reload whenever the files have changed and have then stayed the same for an interval: a
    /// copy in progress is left alone. Does not return.
    pub async fn watch(&self, every: Duration) {
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut pending = None;
        loop {
            ticks.tick().await;
            let config = Arc::clone(&self.state.lock().await.config);
            let looking = move || FilesFingerprint::take(&config);
            let now =
                match on_a_thread(&self.progress, "looking at the plugin files", looking).await {
                    Ok(now) => now,
                    Err(error) => {
                        tracing::error!(error, "the plugin files could not be looked at");
                        continue;
                    }
                };
            if now == self.state.lock().await.fingerprint {
                pending = None;
            } else if pending.as_ref() == Some(&now) {
                self.reload_files().await;
                // A folder that could not be read is not tried again until something changes.
                self.state.lock().await.fingerprint = now;
                pending = None;
            } else {
                pending = Some(now);
            }
        }
    }

    /// Assignments, files, refused files and the latest breakdowns of each plugin, the last one first.
    pub fn status(&self) -> Value {
        let status = self.status.read();
        let mut status = status.unwrap_or_else(PoisonError::into_inner).clone();
        let stats = self.host.stats().into_iter();
        let breakdowns = stats.flat_map(|plugin| plugin.breakdowns);
        status["breakdowns"] = breakdowns.map(breakdown_json).collect();
        if let Some((step, taken)) = self.progress.overdue() {
            status["overdue"] = json!({"step": step, "seconds": taken.as_secs()});
        }
        status
    }

    /// Limits of a caller, with how much of each is used, by policy.
    pub async fn quotas(&self, caller: &QuotaCaller) -> Vec<PolicyQuotas> {
        self.service.quotas(caller).await
    }

    /// Figures of each plugin in each of its kinds, over all of its functions.
    pub fn numbers(&self) -> Value {
        let plugins = self.host.stats().into_iter().map(|stats| {
            let mut faults = BTreeMap::new();
            let all = stats.functions.iter().flat_map(|function| &function.faults);
            for (fault, count) in all {
                *faults.entry(*fault).or_insert(0) += count;
            }
            json!({
                "plugin": stats.plugin,
                "version": stats.version,
                "kind": stats.kind.as_str(),
                "instances": stats.live_instances,
                "suspended": stats.suspended_bindings,
                "suspensions": stats.suspensions,
                "memory_peak_bytes": stats.memory_peak_bytes,
                "image_bytes": stats.image_bytes,
                "prepared_anew": stats.prepared_anew,
                "calls": stats.functions.iter().map(|function| function.calls).sum::<u64>(),
                "seconds": stats.functions.iter().map(|function| function.seconds_sum).sum::<f64>(),
                "faults": faults,
            })
        });
        json!({
            "generation": self.counters.generation.load(Relaxed),
            "plugins": plugins.collect::<Vec<_>>(),
        })
    }

    /// Condition of the plugins for readiness checks: how many files were refused and how the last reload went, without
    /// a name. `None` if no file was refused and no reload failed or is overdue.
    pub fn condition(&self) -> Option<Value> {
        let status = self.status.read().unwrap_or_else(PoisonError::into_inner);
        let refused = status["rejected"].as_array().map_or(0, Vec::len);
        let reload = match (&status["error"], self.progress.overdue()) {
            (_, Some(_)) => "overdue",
            (Value::Null, None) => "ok",
            (_, None) => "failed",
        };
        (refused > 0 || reload != "ok").then(|| json!({"refused_files": refused, "reload": reload}))
    }

    /// Serve these models from the next request on, with plugins bound to those that were loaded since.
    ///
    /// # Errors
    /// When a plugin cannot be bound to one of them; then what served before goes on.
    pub async fn set_models(&self, models: Vec<KnownModel>) -> Result<(), String> {
        let mut state = self.state.lock().await;
        let before = state.models.clone();
        let describing = move || {
            let described = models.into_iter().map(|model| {
                let same = before.iter().find(|before| before.is_same(&model));
                match same {
                    Some(same) => ManagedModel {
                        facts: same.facts.clone(),
                        known: model,
                    },
                    None => ManagedModel::new(model),
                }
            });
            described.collect::<Vec<_>>()
        };
        let models = self
            .on_a_thread("describing the models", describing)
            .await?;
        let (config, auth) = (Arc::clone(&state.config), state.auth.clone());
        let library = state.library.clone();
        let bound = self
            .bind(&mut state, &config, &auth, &library, &models)
            .await
            .map_err(|unfit| unfit.message)?;
        self.switch(&bound, &models)
            .map_err(|unfit| unfit.message)?;
        bound.report(&state.bound);
        (state.bound, state.models) = (bound, models);
        self.publish(&state);
        Ok(())
    }

    /// Assign plugins to models, and bind those that are not bound yet.
    pub(crate) async fn bind(
        &self,
        state: &mut LiveState,
        config: &PluginConfig,
        auth: &AuthConfig,
        library: &PluginLibrary,
        models: &[ManagedModel],
    ) -> Result<BoundPlugins, PluginSetError> {
        let facts = models.iter().filter_map(|model| model.facts.clone());
        let facts: Vec<ModelFacts> = facts.collect();
        let keys: Vec<ModelKey<'_>> = facts.iter().map(ModelFacts::key).collect();
        let assignments = assign(config, auth, library, &keys)?;
        let binder = Binder {
            host: &self.host,
            embedded: &library.embedded,
            models: &facts,
            now_ms: None,
        };
        BoundPlugins::bind(&binder, assignments, &mut state.ledgers, &state.bound).await
    }

    /// Bind what was read, and switch. Returns whether the bound plugins changed. After an error, only the knowledge of
    /// the files has changed.
    pub(crate) async fn put(
        &self,
        state: &mut LiveState,
        config: Arc<PluginConfig>,
        auth: AuthConfig,
        found: FoundFiles,
    ) -> Result<bool, PluginSetError> {
        let FoundFiles {
            mut library,
            rejected,
            fingerprint,
        } = found;
        state.fingerprint = fingerprint;
        state.rejected = rejected;
        let models = state.models.clone();
        // Every round takes one file back, so there are no more rounds than files.
        let bound = loop {
            let bound = self.bind(state, &config, &auth, &library, &models);
            let unfit = match bound.await {
                Ok(bound) => break bound,
                Err(unfit) => unfit,
            };
            let old = &state.library;
            let Some(path) = unfit.blame.iter().find(|path| library.revert(path, old)) else {
                return Err(unfit);
            };
            state.rejected.push(Rejected {
                path: path.clone(),
                reason: unfit.message,
            });
        };
        let changed = !bound.same_as(&state.bound);
        if changed {
            self.switch(&bound, &models)?;
            bound.report(&state.bound);
        }
        state.bound = bound;
        state.library = library;
        state.config = config;
        state.auth = auth;
        Ok(std::mem::take(&mut state.auth_changed) || changed)
    }

    /// Read the files on a thread that may block. Whoever calls has the turn, so that the library stays as it is.
    pub(crate) async fn read(
        &self,
        config: &Arc<PluginConfig>,
    ) -> Result<FoundFiles, PluginSetError> {
        let library = self.state.lock().await.library.clone();
        let host = self.host.clone();
        let prove = Arc::clone(&self.prove);
        let config = Arc::clone(config);
        let reading = move || {
            // Before the files are read: what changes meanwhile is seen as a change later.
            let fingerprint = FilesFingerprint::take(&config);
            let (library, rejected) = library.read_again(&host, &config, &prove)?;
            anyhow::Ok(FoundFiles {
                library,
                rejected,
                fingerprint,
            })
        };
        let read = self.on_a_thread("reading the plugin files", reading).await;
        let read = read.and_then(|read| read.map_err(|error| format!("{error:#}")));
        read.map_err(internal)
    }

    /// Serve the next requests by these plugins.
    pub(crate) fn switch(
        &self,
        bound: &BoundPlugins,
        models: &[ManagedModel],
    ) -> Result<(), PluginSetError> {
        let models = models
            .iter()
            .map(|model| model.served(|facts| bound.plugins_of(facts)));
        let models: Result<Vec<ServedModel>, String> = models.collect();
        let replaced = self.service.replace(
            models.map_err(internal)?,
            bound.policies(),
            &bound.tools(),
            bound.guardrails(),
        );
        replaced.map_err(|error| internal(error.to_string()))?;
        self.service.retrievers.replace(bound.retrievers());
        self.counters.generation.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Count, log and publish the outcome of a reload.
    pub(crate) fn conclude(
        &self,
        state: &mut LiveState,
        outcome: Result<bool, PluginSetError>,
        reason: &'static str,
    ) -> Reload {
        state.error = outcome.as_ref().err().map(|unfit| unfit.message.clone());
        let reload = Reload {
            generation: self.counters.generation.load(Relaxed),
            changed: matches!(outcome, Ok(true)),
            rejected: match state.error {
                None => state.rejected.clone(),
                Some(_) => Vec::new(),
            },
            error: state.error.clone(),
        };
        for file in &reload.rejected {
            tracing::error!(
                file = file.file(),
                reason = file.reason,
                "a plugin file was refused; what served before goes on"
            );
        }
        let refusals = reload.rejected.len() as u64 + u64::from(reload.error.is_some());
        self.counters.rejected.fetch_add(refusals, Relaxed);
        match reload.changed {
            true => self.counters.replaced.fetch_add(1, Relaxed),
            false => self.counters.unchanged.fetch_add(1, Relaxed),
        };
        let generation = reload.generation;
        match &reload.error {
            Some(error) => tracing::error!(
                reason,
                generation,
                error,
                "plugins were not reloaded; what served before goes on"
            ),
            None => tracing::info!(
                reason,
                generation,
                changed = reload.changed,
                refused = refusals,
                "plugins reloaded"
            ),
        }
        if let Some(observer) = self.observer.get() {
            observer(reason, &reload);
        }
        self.publish(state);
        reload
    }

    pub(crate) fn publish(&self, state: &LiveState) {
        let serving = state.bound.0.iter().map(|bound| bound.assignment.to_json());
        let files = state.library.files.iter().map(|(path, component)| {
            let kinds = component.kinds().iter().map(|kind| kind.as_str());
            json!({
                "file": shown(path),
                "version": component.version(),
                "built_against": component.built_against(),
                "digest": component.digest(),
                "kinds": kinds.collect::<Vec<_>>(),
            })
        });
        let bindings = state.config.bindings.iter().map(BindingConfig::to_json);
        let status = json!({
            "generation": self.counters.generation.load(Relaxed),
            "serving": serving.collect::<Vec<_>>(),
            "files": files.collect::<Vec<_>>(),
            "bindings": bindings.collect::<Vec<_>>(),
            "rejected": rejected_json(&state.rejected),
            "error": state.error,
        });
        *self.status.write().unwrap_or_else(PoisonError::into_inner) = status;
    }
}
