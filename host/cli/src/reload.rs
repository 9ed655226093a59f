//! Settings and folders that are read again while the server runs: models, plugins, keys of callers and certificates are
//! taken over, of other keys it is told that they need a restart.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mortise_admin::{Inquiry, Reloads, Rescan, SettingsCheck, SettingsReload};
use mortise_config::{ConfigSource, Settings};
use mortise_identity::Identity;
use mortise_library::Library;
use mortise_models::lifecycle::{LifecycleError, ModelManager, Redefinition, RedefinitionConflict};
use mortise_plugin_manager::LivePlugins;
use serde_json::json;

use crate::audit::Audit;
use crate::discovery::{AllModels, KnownModels};
use crate::doors::Certificates;
use crate::{keep, start};

/// Reads the settings again, one reload at a time.
pub(crate) struct Reloader {
    source: ConfigSource,
    /// Settings that the server was started with.
    started_with: Settings,
    live: Arc<LivePlugins>,
    models: Arc<ModelManager>,
    identity: Arc<Identity>,
    /// Settings that were taken last.
    taken: Mutex<Settings>,
    /// Models as the settings had them when they were read last; `None`: another server lists them.
    known: Mutex<Option<KnownModels>>,
    library: Option<Arc<Library>>,
    certificates: Certificates,
    audit: Arc<Audit>,
    turn: tokio::sync::Mutex<()>,
}

/// Definitions of models that a scan has changed.
type Redefined = Result<Redefinition, Vec<RedefinitionConflict>>;

impl Reloader {
    pub(crate) fn new(
        source: ConfigSource,
        live: Arc<LivePlugins>,
        models: Arc<ModelManager>,
        identity: Arc<Identity>,
        known: Option<KnownModels>,
        certificates: Certificates,
        audit: Arc<Audit>,
    ) -> Arc<Self> {
        Arc::new(Self {
            started_with: source.settings(),
            taken: Mutex::new(source.settings()),
            source,
            live,
            models,
            identity,
            library: known.as_ref().and_then(KnownModels::library),
            known: Mutex::new(known),
            certificates,
            audit,
            turn: tokio::sync::Mutex::default(),
        })
    }

    /// For the admin side.
    pub(crate) fn on_request(self: &Arc<Self>) -> Reloads {
        Reloads {
            settings: on_request(
                self,
                |this| async move { this.reload("admin request").await },
            ),
            check: self.inquiry(),
            rescan: on_request(self, |this| async move { this.rescan().await }),
            restart: on_request(self, |this| async move { this.restart_models().await }),
            keep: keep::keeper(self.source.files.clone()),
            bindings: keep::bindings(self.source.files.clone()),
        }
    }

    /// Read the settings, take what can be taken, and say what became of it in the log.
    pub(crate) async fn reload(&self, reason: &'static str) -> SettingsReload {
        let _turn = self.turn.lock().await;
        let outcome = self.recorded(reason).await;
        match &outcome {
            SettingsReload::Taken {
                models,
                restart_keys,
                ..
            } => {
                let models = models.clone().unwrap_or_default();
                tracing::info!(
                    reason,
                    added = models.added.len(),
                    removed = models.removed.len(),
                    updated = models.updated.len(),
                    "settings were read again"
                );
                if !restart_keys.is_empty() {
                    tracing::warn!(
                        keys = restart_keys.join(" "),
                        "these settings have changed and take effect at the next start"
                    );
                }
            }
            SettingsReload::Conflict(conflicts) => {
                let names = conflicts.iter().map(|conflict| conflict.model.as_str());
                let models = names.collect::<Vec<_>>().join(" ");
                tracing::error!(
                    reason,
                    models,
                    "the settings change models that are loaded; nothing was changed"
                );
            }
            SettingsReload::Invalid(error) | SettingsReload::Plugins(error) => {
                tracing::error!(reason, error, "the settings were not taken");
            }
        }
        outcome
    }

    /// Take the settings, between two entries in the audit log.
    async fn recorded(&self, reason: &'static str) -> SettingsReload {
        let entry = |outcome: &str| json!({"action": "settings.reload", "reason": reason, "outcome": outcome});
        if let Err(error) = self.audit.tell(entry("begun")).await {
            return SettingsReload::Invalid(format!("the audit log cannot be written: {error}"));
        }
        let outcome = self.take(reason).await;
        let mut ended = entry("taken");
        match &outcome {
            SettingsReload::Taken {
                models,
                restart_keys,
                ..
            } => {
                let models = models.clone().unwrap_or_default();
                ended["models"] = json!({
                    "added": models.added, "removed": models.removed, "updated": models.updated,
                });
                ended["restart_keys"] = json!(restart_keys);
            }
            SettingsReload::Conflict(_) => ended["outcome"] = json!("conflict"),
            SettingsReload::Invalid(error) | SettingsReload::Plugins(error) => {
                ended["outcome"] = json!("refused");
                ended["error"] = json!(error);
            }
        }
        // It has happened; the log of the server tells of an entry that was not kept.
        let _ = self.audit.tell(ended).await;
        outcome
    }

    async fn take(&self, reason: &'static str) -> SettingsReload {
        let source = self.source.clone();
        let read = move || {
            let loaded = source.load();
            let loaded = loaded.map(|config| (Certificates::read(&config), config));
            (loaded, source.settings())
        };
        let (config, renewal, settings) = match tokio::task::spawn_blocking(read).await {
            Ok((Ok((Ok(renewal), config)), settings)) => (config, renewal, settings),
            // Plugins are not taken either.
            Ok((Ok((Err(error), _)), _)) => return SettingsReload::Invalid(error.to_string()),
            Ok((Err(error), _)) => {
                // The plugin manager says so too, for those who ask whether the server is well.
                self.live.reload(reason).await;
                return SettingsReload::Invalid(format!("{:#}", anyhow::Error::from(error)));
            }
            Err(panic) => return SettingsReload::Invalid(panic.to_string()),
        };
        // Models of a server that was named on the command line are not in the file.
        let library = self.library.clone();
        let known = KnownModels::of(&config, library);
        let defined = match &known {
            None => None,
            Some(known) => match known.scan().await {
                Ok(all) => Some(self.in_use_kept(all).0.models),
                Err(error) => return SettingsReload::Invalid(error.to_string()),
            },
        };
        if let Some(Err(conflicts)) = defined.as_ref().map(|models| self.models.compare(models)) {
            return SettingsReload::Conflict(conflicts);
        }
        let plugins = self.live.reload(reason).await;
        if let Some(error) = plugins.error {
            return SettingsReload::Plugins(error);
        }
        self.identity.configure(config.identity);
        let models = match defined {
            None => None,
            Some(models) => match self.models.redefine(models).await {
                Ok(models) => Some(models),
                Err(conflicts) => return SettingsReload::Conflict(conflicts),
            },
        };
        *self.known() = known;
        self.certificates.renew(renewal);
        *self.taken() = settings.clone();
        SettingsReload::Taken {
            models,
            restart_keys: self.started_with.restart_keys(&settings),
            plugins: plugins.to_json(),
        }
    }

    /// Tells what a reload would change, for the admin side.
    fn inquiry(self: &Arc<Self>) -> Inquiry<SettingsCheck> {
        let reloader = Arc::clone(self);
        Arc::new(move |text| {
            let reloader = Arc::clone(&reloader);
            Box::pin(async move { reloader.check(text).await })
        })
    }

    /// Compare settings with what is in force, and take nothing: those of a text, or else those of the files.
    async fn check(&self, text: Option<String>) -> SettingsCheck {
        let source = self.source.clone();
        let read = move || {
            let read = match text {
                Some(text) => source.candidate(&text),
                None => source.load().map(|config| (config, source.settings())),
            };
            read.and_then(|(config, settings)| {
                Certificates::read(&config)?;
                Ok((config, settings))
            })
        };
        let (config, settings) = match tokio::task::spawn_blocking(read).await {
            Ok(Ok(read)) => read,
            Ok(Err(error)) => {
                return SettingsCheck::Invalid(format!("{:#}", anyhow::Error::from(error)));
            }
            Err(panic) => return SettingsCheck::Invalid(panic.to_string()),
        };
        let mut conflicts = Vec::new();
        let models = match KnownModels::of(&config, self.library.clone()) {
            None => None,
            Some(known) => match known.scan().await {
                Ok(all) => {
                    let all = self.in_use_kept(all).0.models;
                    let (change, found) = self.models.difference(&all);
                    conflicts = found;
                    Some(change)
                }
                Err(error) => return SettingsCheck::Invalid(error.to_string()),
            },
        };
        SettingsCheck::Right {
            models,
            conflicts,
            reload_keys: self.taken().reload_keys(&settings),
            restart_keys: self.started_with.restart_keys(&settings),
        }
    }

    fn taken(&self) -> MutexGuard<'_, Settings> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Scan for models again, without reading the settings.
    async fn rescan(&self) -> Rescan {
        let _turn = self.turn.lock().await;
        let known = self.known().clone();
        let Some(known) = known else {
            return Rescan::default();
        };
        let all = match known.scan().await {
            Ok(all) => all,
            Err(error) => return Rescan::failed(error.to_string()),
        };
        let (all, in_use) = self.in_use_kept(all);
        let redefined: Redefined = self.models.redefine(all.models).await;
        match redefined {
            Err(_) => {
                Rescan::failed("a model was loaded or unloaded meanwhile; try again".to_owned())
            }
            Ok(models) => {
                tracing::info!(
                    added = models.added.len(),
                    removed = models.removed.len(),
                    updated = models.updated.len(),
                    in_use = in_use.len(),
                    "rescanned models"
                );
                Rescan {
                    models,
                    in_use,
                    skipped: all.skipped,
                    error: None,
                }
            }
        }
    }

    fn in_use_kept(&self, mut all: AllModels) -> (AllModels, Vec<String>) {
        let kept = all.keep_in_use(&self.models.statuses());
        (all, kept)
    }

    /// Unload all models, and load those of the start.
    async fn restart_models(&self) -> Result<(), LifecycleError> {
        let _turn = self.turn.lock().await;
        tracing::info!("all models are unloaded, and those of the start are loaded");
        for status in self.models.statuses() {
            self.models.unload(&status.listing.name).await?;
        }
        start::load_those_of_the_start(&self.models, false).await
    }

    fn known(&self) -> MutexGuard<'_, Option<KnownModels>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Future of an action.
type Action<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// An action of the reloader, as the admin side calls it.
fn on_request<T, F>(
    reloader: &Arc<Reloader>,
    act: impl Fn(Arc<Reloader>) -> F + Send + Sync + 'static,
) -> Arc<dyn Fn() -> Action<T> + Send + Sync>
where
    F: Future<Output = T> + Send + 'static,
{
    let reloader = Arc::clone(reloader);
    Arc::new(move || Box::pin(act(Arc::clone(&reloader))))
}
