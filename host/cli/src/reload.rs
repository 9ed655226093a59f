//! Settings and folders that are read again while the server runs: models, plugins, keys of callers and certificates are
//! taken over, of other keys it is told that they need a restart.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mortise_admin::{Inquiry, Reloads, Rescan, SettingsCheck, SettingsReload};
use mortise_config::{ConfigSource, Settings, keeps_changes};
use mortise_identity::CallerDirectory;
use mortise_library::Library;
use mortise_models::lifecycle::{LifecycleError, ModelManager, Redefinition, RedefinitionConflict};
use mortise_models::{AliasMeanings, AliasTable};
use mortise_plugin_manager::LivePlugins;
use serde_json::json;

use crate::aliases::{are_in_force, configured, dangling};
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
    aliases: Arc<AliasTable>,
    identity: Arc<CallerDirectory>,
    /// Settings that were taken last.
    taken: Mutex<Settings>,
    /// Models as the settings that were read last have them; `None`: another server lists the models.
    known: Mutex<Option<KnownModels>>,
    library: Option<Arc<Library>>,
    certificates: Certificates,
    audit: Arc<Audit>,
    /// Keys are taken one reload after the other, and by none that waits for its turn with the rest.
    keys_turn: tokio::sync::Mutex<()>,
    turn: tokio::sync::Mutex<()>,
}

/// Keys and issuers of a reload.
enum Keys {
    /// The keys and issuers are in force.
    Taken,
    /// The keys and issuers are taken with the other settings.
    Later,
}

/// Definitions of models that a scan has changed.
type Redefined = Result<Redefinition, Vec<RedefinitionConflict>>;

impl Reloader {
    /// Models that come over the network, if any do.
    pub(crate) fn library(&self) -> Option<Arc<Library>> {
        self.library.clone()
    }

    pub(crate) fn new(
        source: ConfigSource,
        live: Arc<LivePlugins>,
        (models, aliases): (Arc<ModelManager>, Arc<AliasTable>),
        identity: Arc<CallerDirectory>,
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
            aliases,
            identity,
            library: known.as_ref().and_then(KnownModels::library),
            known: Mutex::new(known),
            certificates,
            audit,
            keys_turn: tokio::sync::Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        })
    }

    /// Reloads that the admin side can ask for.
    pub(crate) fn on_request(self: &Arc<Self>) -> Reloads {
        Reloads {
            settings: on_request(
                self,
                |this| async move { this.reload("admin request").await },
            ),
            check: self.inquiry(),
            rescan: on_request(self, |this| async move { this.rescan().await }),
            restart: on_request(self, |this| async move { this.restart_models().await }),
            keeps: keeps_changes(&self.source.files),
            keep: keep::keeper(self.source.files.clone()),
            bindings: keep::bindings(self.source.files.clone()),
        }
    }

    /// Read the settings, take those that a reload can take, and log the outcome. Keys and issuers come first: they
    /// wait for no other reload, and are in force even if the other settings are refused.
    pub(crate) async fn reload(&self, reason: &'static str) -> SettingsReload {
        let outcome = self.recorded(reason).await;
        match &outcome {
            SettingsReload::Taken {
                models,
                restart_keys,
                warnings,
                ..
            } => {
                let models = models.clone().unwrap_or_default();
                for told in warnings {
                    tracing::warn!(reason, "{told}");
                }
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
                    "the settings change models that are loaded; nothing was changed but who may call"
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
        let keys = self.take_keys().await;
        let _turn = self.turn.lock().await;
        let outcome = self.take(reason, keys).await;
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

    /// Take keys of callers and issuers of tokens by themselves.
    async fn take_keys(&self) -> Keys {
        let _turn = self.keys_turn.lock().await;
        let source = self.source.clone();
        let read = move || source.auth().map_err(|error| format!("{error:#}"));
        let read = self.live.on_a_thread("reading the keys", read).await;
        let taken = match read.and_then(|read| read) {
            Ok((auth, identity)) => self.live.take_auth(auth).await.inspect(|taken| {
                if *taken {
                    self.identity.configure(identity);
                }
            }),
            Err(error) => Err(error),
        };
        match taken {
            Ok(true) => Keys::Taken,
            Ok(false) => Keys::Later,
            Err(error) => {
                tracing::error!(
                    error,
                    "keys of callers were not taken ahead of the other settings"
                );
                Keys::Later
            }
        }
    }

    async fn take(&self, reason: &'static str, keys: Keys) -> SettingsReload {
        let source = self.source.clone();
        let read = move || {
            let loaded = source.load();
            let loaded = loaded.map(|config| (Certificates::read(&config), config));
            (loaded, source.settings())
        };
        let read = self.live.on_a_thread("reading the settings", read).await;
        let (config, renewal, settings) = match read {
            Ok((Ok((Ok(renewal), config)), settings)) => (config, renewal, settings),
            // Plugins are not taken either.
            Ok((Ok((Err(error), _)), _)) => return self.refused(reason, error.to_string()).await,
            Ok((Err(error), _)) => {
                let message = format!("{:#}", anyhow::Error::from(error));
                return self.refused(reason, message).await;
            }
            Err(given_up) => return self.refused(reason, given_up).await,
        };
        // Models of a server that was named on the command line are not in the file.
        let library = self.library.clone();
        let known = KnownModels::of(&config, library);
        let defined = match &known {
            None => None,
            Some(known) => match self.scan(known).await {
                Ok(all) => Some(self.in_use_kept(all).0.models),
                Err(error) => return self.refused(reason, error).await,
            },
        };
        if let Some(Err(conflicts)) = defined.as_ref().map(|models| self.models.compare(models)) {
            return SettingsReload::Conflict(conflicts);
        }
        let plugins = self.live.reload(reason).await;
        if let Some(error) = plugins.error {
            return SettingsReload::Plugins(error);
        }
        if let Keys::Later = keys {
            self.identity.configure(config.identity);
        }
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
        let is_model = |name: &str| self.models.status(name).is_some();
        SettingsReload::Taken {
            models,
            restart_keys: self.restart_keys(&settings, &config.aliases),
            warnings: self.warnings((&config.warnings, &config.aliases), &is_model),
            plugins: plugins.to_json(),
        }
    }

    /// Keys that have changed since the start and take effect at the next one. Aliases that are in force by the admin side
    /// need none.
    fn restart_keys(
        &self,
        settings: &Settings,
        aliases: &[(String, AliasMeanings)],
    ) -> Vec<String> {
        let mut keys = self.started_with.restart_keys(settings);
        if are_in_force(aliases, &self.aliases) {
            keys.retain(|key| key != "aliases");
        }
        keys
    }

    /// Warnings about settings, and about aliases without a model: those that are in force, and those of the next start.
    fn warnings(
        &self,
        (warnings, aliases): (&[String], &[(String, AliasMeanings)]),
        is_model: &dyn Fn(&str) -> bool,
    ) -> Vec<String> {
        let rows = self.aliases.rows();
        let running = rows.iter().map(|row| (row.name.as_str(), &row.alias));
        let aliases = dangling(running.chain(configured(aliases)), is_model);
        [warnings, &aliases].concat()
    }

    /// Record a refused reload, of which no other setting is taken, in the plugin manager, which reports it to health
    /// checks.
    async fn refused(&self, reason: &'static str, error: String) -> SettingsReload {
        self.live.refuse(reason, error.clone()).await;
        SettingsReload::Invalid(error)
    }

    /// Scan for models within the time of a reload.
    async fn scan(&self, known: &KnownModels) -> Result<AllModels, String> {
        let known = known.clone();
        let scan = move || known.scan_now().map_err(|error| error.to_string());
        let scanned = self.live.on_a_thread("scanning for models", scan).await;
        scanned.and_then(|all| all)
    }

    /// Tells what a reload would change, for the admin side.
    fn inquiry(self: &Arc<Self>) -> Inquiry<SettingsCheck> {
        let reloader = Arc::clone(self);
        Arc::new(move |text| {
            let reloader = Arc::clone(&reloader);
            Box::pin(async move { reloader.check(text).await })
        })
    }

    /// Compare settings with those in force, and take none: the settings of `text`, or else of the files.
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
        let read = self.live.on_a_thread("checking settings", read).await;
        let (config, settings) = match read {
            Ok(Ok(read)) => read,
            Ok(Err(error)) => {
                return SettingsCheck::Invalid(format!("{:#}", anyhow::Error::from(error)));
            }
            Err(given_up) => return SettingsCheck::Invalid(given_up),
        };
        let mut conflicts = Vec::new();
        let mut names: Option<BTreeSet<String>> = None;
        let models = match KnownModels::of(&config, self.library.clone()) {
            None => None,
            Some(known) => match self.scan(&known).await {
                Ok(all) => {
                    let all = self.in_use_kept(all).0.models;
                    names = Some(all.iter().map(|model| model.name.clone()).collect());
                    let (change, found) = self.models.difference(&all);
                    conflicts = found;
                    Some(change)
                }
                Err(error) => return SettingsCheck::Invalid(error),
            },
        };
        SettingsCheck::Right {
            models,
            conflicts,
            reload_keys: self.taken().reload_keys(&settings),
            restart_keys: self.restart_keys(&settings, &config.aliases),
            warnings: self.warnings((&config.warnings, &config.aliases), &|name| match &names {
                Some(names) => names.contains(name),
                None => self.models.status(name).is_some(),
            }),
        }
    }

    fn taken(&self) -> MutexGuard<'_, Settings> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Scan for models again, without reading the settings.
    pub(crate) async fn rescan(&self) -> Rescan {
        let _turn = self.turn.lock().await;
        let known = self.known().clone();
        let Some(known) = known else {
            return Rescan::default();
        };
        let all = match self.scan(&known).await {
            Ok(all) => all,
            Err(error) => return Rescan::failed(error),
        };
        let (all, in_use) = self.in_use_kept(all);
        let redefined: Redefined = self.models.redefine(all.models).await;
        match redefined {
            Err(_) => {
                Rescan::failed("a model was loaded or unloaded meanwhile; try again".to_owned())
            }
            Ok(models) => {
                let is_model = |name: &str| self.models.status(name).is_some();
                let warnings = self.warnings((&[], &[]), &is_model);
                for told in &warnings {
                    tracing::warn!("{told}");
                }
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
                    warnings,
                    error: None,
                }
            }
        }
    }

    fn in_use_kept(&self, mut all: AllModels) -> (AllModels, Vec<String>) {
        let kept = all.keep_in_use(&self.models.statuses());
        (all, kept)
    }

    /// Unload all models, and load the models that are enabled at the start.
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
