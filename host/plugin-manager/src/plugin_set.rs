//! Plugins of a server at its start: loaded, then bound.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use mortise_plugin::{
    Component, HeaderGrant, HostConfig, HttpGrant, Kind, Ledger, PluginHost, Rewrite,
};
use mortise_service::{DecidePolicy, GuardAnswer, ModelPlugins, Retrieve, RunTool};
use serde_json::{Value, json};

use crate::assignments::{Assignment, assign};
use crate::bound::{Binder, BoundPlugins, Ledgers, OpenCounters};
use crate::config::{AuthConfig, BindingConfig, PluginConfig};
use crate::declared::DeclaredModels;
use crate::error::PluginSetError;
use crate::folder::Rejected;
use crate::library::{FilesFingerprint, PluginLibrary, Prove, is_dispensable};
use crate::model::{ModelFacts, ModelKey};

/// Loaded plugins, before they are bound to models.
pub struct LoadedPlugins {
    /// Host that runs the plugins.
    pub host: PluginHost,
    config: Arc<PluginConfig>,
    library: PluginLibrary,
    fingerprint: FilesFingerprint,
    /// Files that the server goes without.
    rejected: Vec<Rejected>,
    prove: Prove,
    counters: OpenCounters,
    /// Fixed time that plugins see, in milliseconds since 1970; `None` is the system's clock.
    now_ms: Option<u64>,
}

/// Bound plugins with everything that a later reload needs.
pub struct PluginSet {
    /// Host that runs the plugins.
    pub host: PluginHost,
    pub(crate) config: Arc<PluginConfig>,
    pub(crate) library: PluginLibrary,
    pub(crate) fingerprint: FilesFingerprint,
    pub(crate) rejected: Vec<Rejected>,
    pub(crate) ledgers: Ledgers,
    pub(crate) bound: BoundPlugins,
    pub(crate) prove: Prove,
}

impl std::fmt::Debug for LoadedPlugins {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("LoadedPlugins")
    }
}

impl std::fmt::Debug for PluginSet {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("PluginSet")
    }
}

impl LoadedPlugins {
    /// Load everything. Blocks: compiling a plugin can take seconds.
    ///
    /// # Errors
    /// When a file cannot be loaded, or fails a case that it carries, and the server cannot or must not go
    /// without it.
    pub fn load(config: PluginConfig, prove: Prove) -> anyhow::Result<Self> {
        let host = PluginHost::new(HostConfig {
            cache_dir: config.cache_dir.clone(),
            fault: config.fault,
            ..HostConfig::default()
        })?;
        let fingerprint = FilesFingerprint::take(&config);
        let embedded = PluginLibrary::embedded(&host)?;
        let (library, rejected) = embedded.read_again(&host, &config, &prove)?;
        let dispensable = |file: &&Rejected| config.quarantine && is_dispensable(file, &config);
        if let Some(first) = rejected.iter().find(|file| !dispensable(file)) {
            bail!(
                "the plugin file `{}` cannot be used: {}",
                first.file(),
                first.reason
            );
        }
        Ok(Self {
            rejected,
            host,
            config: Arc::new(config),
            library,
            fingerprint,
            prove,
            counters: Arc::new(|_| Arc::new(Ledger::new())),
            now_ms: None,
        })
    }

    /// Count rate limits of policies by the counters that `open` gives.
    #[must_use]
    pub fn counted_by(mut self, open: OpenCounters) -> Self {
        self.counters = open;
        self
    }

    /// One loaded file as every kind that it exports, with the limits that `within` gives it, an HTTP grant and a
    /// fixed time in milliseconds since 1970. Blocks.
    ///
    /// # Errors
    /// When an embedded plugin cannot be loaded.
    pub fn single(
        host: &PluginHost,
        component: &Arc<Component>,
        settings: &Value,
        within: &PluginConfig,
        http: &HttpGrant,
        now_ms: Option<u64>,
    ) -> anyhow::Result<Self> {
        let mut library = PluginLibrary::embedded(host)?;
        let file = PathBuf::from(component.origin());
        let kinds = component.kinds().iter().copied();
        let binding = |kind| BindingConfig {
            bounds: within.bounds_of(kind, &file),
            http: http.clone(),
            // Whoever tests a plugin wrote its headers, and wants to see what it asks for.
            headers: HeaderGrant::as_sent(),
            rewrites: Rewrite::NAMES.map(str::to_owned).into(),
            ..BindingConfig::of_file(kind, file.clone(), settings.clone())
        };
        let config = PluginConfig {
            bounds: within.bounds.clone(),
            bindings: kinds.map(binding).collect(),
            ..PluginConfig::default()
        };
        library.files.insert(file, Arc::clone(component));
        Ok(Self {
            host: host.clone(),
            fingerprint: FilesFingerprint::take(&config),
            config: Arc::new(config),
            library,
            rejected: Vec::new(),
            // It is here already, and no other will be read.
            prove: Arc::new(|_, _, _| Ok(0)),
            counters: Arc::new(|_| Arc::new(Ledger::new())),
            now_ms,
        })
    }

    /// JSON Schema of the settings of the plugin of a kind: that of a file, else the embedded one. None if it
    /// carries none.
    pub fn settings_schema(&self, kind: Kind) -> Option<&str> {
        let mut all = self.library.files.values().chain(&self.library.embedded);
        all.find(|component| component.kinds().contains(&kind))?
            .settings_schema()
    }

    /// Loaded plugins and their assignments for these models, as JSON.
    pub fn describe(&self, auth: &AuthConfig, models: &[ModelKey<'_>]) -> anyhow::Result<Value> {
        let all = self
            .library
            .embedded
            .iter()
            .chain(self.library.files.values());
        let loaded = all.map(|component| {
            let kinds = component.kinds().iter().map(|kind| kind.as_str());
            json!({
                "plugin": component.name(),
                "version": component.version(),
                "built_against": component.built_against(),
                "kinds": kinds.collect::<Vec<_>>(),
                "origin": component.origin(),
                "digest": component.digest(),
            })
        });
        let assignments = assign(&self.config, auth, &self.library, models)?;
        let serving = assignments.iter().map(Assignment::to_json);
        Ok(json!({
            "plugins": loaded.collect::<Vec<_>>(),
            "serving": serving.collect::<Vec<_>>(),
        }))
    }

    /// Whether any assignment depends on the architecture of a model.
    pub fn are_chosen_by_architecture(&self) -> bool {
        let declared = |component| DeclaredModels::of(component).ok().flatten();
        self.config
            .bindings
            .iter()
            .any(BindingConfig::is_by_architecture)
            || self
                .library
                .files
                .values()
                .filter_map(|file| declared(file))
                .any(|one| one.is_by_architecture())
    }

    /// Assign and bind the plugins.
    ///
    /// # Errors
    /// When the configuration does not fit the files, or a plugin fails to bind.
    pub async fn bind(
        mut self,
        auth: &AuthConfig,
        models: &[ModelFacts],
    ) -> anyhow::Result<PluginSet> {
        let mut ledgers = Ledgers::new(Arc::clone(&self.counters));
        // The reason to fail, if leaving files out mends nothing.
        let mut first = None;
        // Every round leaves one file out, so there are no more rounds than files.
        let bound = loop {
            let error = match self.try_bind(auth, models, &mut ledgers).await {
                Ok(bound) => break bound,
                Err(error) => error,
            };
            let (library, config) = (&mut self.library, &self.config);
            let mut blamed = error.blame.iter();
            let left_out = blamed
                .find(|path| config.quarantine && library.quarantine(path, config))
                .cloned();
            let Some(path) = left_out else {
                return Err(first.unwrap_or(error).into());
            };
            self.rejected.push(Rejected {
                path,
                reason: error.message.clone(),
            });
            first.get_or_insert(error);
        };
        Ok(PluginSet {
            rejected: self.rejected,
            host: self.host,
            config: self.config,
            library: self.library,
            fingerprint: self.fingerprint,
            ledgers,
            bound,
            prove: self.prove,
        })
    }

    async fn try_bind(
        &self,
        auth: &AuthConfig,
        models: &[ModelFacts],
        ledgers: &mut Ledgers,
    ) -> Result<BoundPlugins, PluginSetError> {
        let keys: Vec<ModelKey<'_>> = models.iter().map(ModelFacts::key).collect();
        let assignments = assign(&self.config, auth, &self.library, &keys)?;
        let binder = Binder {
            host: &self.host,
            embedded: &self.library.embedded,
            models,
            now_ms: self.now_ms,
        };
        BoundPlugins::bind(&binder, assignments, ledgers, &BoundPlugins::default()).await
    }
}

impl PluginSet {
    /// Log all assignments, and the files that have none.
    pub fn report(&self) {
        for file in &self.rejected {
            tracing::error!(
                file = file.file(),
                reason = file.reason,
                "a plugin file was refused; the server starts without it"
            );
        }
        self.bound.report(&BoundPlugins::default());
    }

    /// Plugins of a model.
    pub fn plugins_of(&self, model: &ModelFacts) -> Option<ModelPlugins> {
        self.bound.plugins_of(model)
    }

    /// Tool plugins in the order of the configuration.
    pub fn tools(&self) -> Vec<Arc<dyn RunTool>> {
        self.bound.tools()
    }

    /// Guardrails in the order in which they look.
    pub fn guardrails(&self) -> Vec<Arc<dyn GuardAnswer>> {
        self.bound.guardrails()
    }

    /// Retrievers in the order of the configuration.
    pub fn retrievers(&self) -> Vec<Arc<dyn Retrieve>> {
        self.bound.retrievers()
    }

    /// Policies in the order in which they are asked.
    pub fn policies(&self) -> Vec<Arc<dyn DecidePolicy>> {
        self.bound.policies()
    }
}
