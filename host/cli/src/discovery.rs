//! Models that are found on the disk, beside those that are configured.

use std::sync::Arc;

use mortise_config::{Config, ConfigError};
use mortise_library::Library;
use mortise_models::lifecycle::{ModelState, ModelStatus};
use mortise_models::{DefinitionOrigin, DiscoveryConfig, ModelConfig, Skipped};

/// Files that the log names as left out by one scan. The answer to a rescan has all.
const MAX_LOGGED: usize = 20;

/// Models as the settings have them.
#[derive(Debug, Clone)]
pub(crate) struct KnownModels {
    /// Models that the file names.
    pub(crate) configured: Vec<ModelConfig>,
    discovery: DiscoveryConfig,
    library: Option<Arc<Library>>,
    /// Names of aliases, which no model takes.
    aliases: Vec<String>,
}

/// Configured models, and models that a scan has found.
#[derive(Debug)]
pub(crate) struct AllModels {
    pub(crate) models: Vec<ModelConfig>,
    pub(crate) skipped: Vec<Skipped>,
}

/// Check that the folders of a configuration are there. One that is gone while the server runs is left out by the scan.
///
/// # Errors
/// When one is not.
pub(crate) fn check_folders(config: &Config) -> Result<(), ConfigError> {
    let mut folders = config.discovery.folders.iter();
    match folders.find(|folder| !folder.is_dir()) {
        None => Ok(()),
        Some(folder) => Err(ConfigError::Invalid {
            key: "discovery.folders".to_owned(),
            line: None,
            message: format!(
                "`{}` is no folder; make it with `mkdir -p`",
                folder.display()
            ),
        }),
    }
}

impl KnownModels {
    /// Models of the settings and of the library; `None`: another server lists them.
    pub(crate) fn of(config: &Config, library: Option<Arc<Library>>) -> Option<Self> {
        config.upstream.is_none().then(|| Self {
            library,
            configured: config.models.clone(),
            discovery: config.discovery.clone(),
            aliases: config
                .aliases
                .iter()
                .map(|(name, _)| name.clone())
                .collect(),
        })
    }

    /// Models that come over the network.
    pub(crate) fn library(&self) -> Option<Arc<Library>> {
        self.library.clone()
    }

    /// Scan for models.
    ///
    /// # Errors
    /// When the model of the start is neither configured nor found.
    pub(crate) async fn scan(&self) -> anyhow::Result<AllModels> {
        let known = self.clone();
        tokio::task::spawn_blocking(move || known.scan_now()).await?
    }

    /// Scan for models on this thread. Blocks.
    ///
    /// # Errors
    /// As [`Self::scan`].
    pub(crate) fn scan_now(self) -> anyhow::Result<AllModels> {
        let mut models = self.configured;
        if !self.discovery.is_enabled() && self.library.is_none() {
            return Ok(AllModels {
                models,
                skipped: Vec::new(),
            });
        }
        let names = models.iter().flat_map(|model| {
            let aliases = model.aliases.iter().map(String::as_str);
            aliases.chain([model.name.as_str()])
        });
        let taken: Vec<&str> = names
            .chain(self.aliases.iter().map(String::as_str))
            .collect();
        let library = self.library.as_ref().map(|library| library.models());
        let library: Vec<ModelConfig> = library
            .into_iter()
            .flatten()
            .filter(|(name, _)| !taken.contains(&name.as_str()))
            .map(|(name, path)| self.discovery.model_at(name, path))
            .collect();
        let of_library = library.iter().map(|model| model.name.as_str());
        let taken: Vec<&str> = taken.iter().copied().chain(of_library).collect();
        let mut scan = self.discovery.scan(taken);
        scan.models.extend(library);
        for skipped in scan.skipped.iter().take(MAX_LOGGED) {
            let (path, reason) = (skipped.path.display(), &skipped.reason);
            tracing::info!(%path, reason, "left out by the scan for models");
        }
        let (found, left_out) = (scan.models.len(), scan.skipped.len());
        tracing::info!(found, left_out, "scanned for models");
        if let Some(name) = &self.discovery.startup_model
            && !scan.models.iter().any(|model| model.name == *name)
        {
            anyhow::bail!(
                "the setting `lifecycle.startup_model` is wrong: no model is called `{name}`"
            );
        }
        models.extend(scan.models);
        Ok(AllModels {
            models,
            skipped: scan.skipped,
        })
    }
}

impl AllModels {
    /// Keep the definitions of models that were found before and are in use, though their files have changed or are
    /// gone. Returns their names.
    pub(crate) fn keep_in_use(&mut self, statuses: &[ModelStatus]) -> Vec<String> {
        let mut kept = Vec::new();
        for status in statuses {
            let idle = matches!(status.state, ModelState::Unloaded | ModelState::Failed);
            if idle || status.config.origin != DefinitionOrigin::Discovered {
                continue;
            }
            let name = &status.config.name;
            match self.models.iter_mut().find(|model| model.name == *name) {
                Some(model) if status.config.has_runtime_of(model) => continue,
                // What the file says now counts; whether it may is the manager's to say.
                Some(model) if model.origin == DefinitionOrigin::Configured => continue,
                Some(model) => *model = status.config.as_ref().clone(),
                None => self.models.push(status.config.as_ref().clone()),
            }
            kept.push(name.clone());
        }
        kept
    }
}
