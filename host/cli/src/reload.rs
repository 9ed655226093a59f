//! Settings that are read again while the server runs: models, plugins and keys of callers are taken over,
//! of other keys it is told that they need a restart.

use std::sync::Arc;

use mortise_admin::{ReloadSettings, SettingsReload};
use mortise_config::{ConfigSource, Settings};
use mortise_models::lifecycle::ModelManager;
use mortise_plugin_manager::LivePlugins;

/// Reads the settings again, one reload at a time.
pub(crate) struct Reloader {
    source: ConfigSource,
    /// Settings that the server was started with.
    started_with: Settings,
    live: Arc<LivePlugins>,
    models: Arc<ModelManager>,
    turn: tokio::sync::Mutex<()>,
}

impl Reloader {
    pub(crate) fn new(
        source: ConfigSource,
        live: Arc<LivePlugins>,
        models: Arc<ModelManager>,
    ) -> Arc<Self> {
        Arc::new(Self {
            started_with: source.settings(),
            source,
            live,
            models,
            turn: tokio::sync::Mutex::default(),
        })
    }

    /// For the admin side.
    pub(crate) fn on_request(self: &Arc<Self>) -> ReloadSettings {
        let this = Arc::clone(self);
        Arc::new(move || {
            let this = Arc::clone(&this);
            Box::pin(async move { this.reload("admin request").await })
        })
    }

    /// Read the settings, take what can be taken, and say what became of it in the log.
    pub(crate) async fn reload(&self, reason: &'static str) -> SettingsReload {
        let _turn = self.turn.lock().await;
        let outcome = self.take(reason).await;
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

    async fn take(&self, reason: &'static str) -> SettingsReload {
        let source = self.source.clone();
        let read = move || (source.load(), source.settings());
        let (config, settings) = match tokio::task::spawn_blocking(read).await {
            Ok((Ok(config), settings)) => (config, settings),
            Ok((Err(error), _)) => {
                // The plugin manager says so too, for those who ask whether the server is well.
                self.live.reload(reason).await;
                return SettingsReload::Invalid(format!("{:#}", anyhow::Error::from(error)));
            }
            Err(panic) => return SettingsReload::Invalid(panic.to_string()),
        };
        // Models of a server that was named on the command line are not in the file.
        let defined = config.upstream.is_none().then_some(config.models);
        if let Some(Err(conflicts)) = defined.as_ref().map(|models| self.models.compare(models)) {
            return SettingsReload::Conflict(conflicts);
        }
        let plugins = self.live.reload(reason).await;
        if let Some(error) = plugins.error {
            return SettingsReload::Plugins(error);
        }
        let models = match defined {
            None => None,
            Some(models) => match self.models.redefine(models).await {
                Ok(models) => Some(models),
                Err(conflicts) => return SettingsReload::Conflict(conflicts),
            },
        };
        SettingsReload::Taken {
            models,
            restart_keys: self.started_with.restart_keys(&settings),
            plugins: plugins.to_json(),
        }
    }
}
