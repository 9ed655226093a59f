//! Plugins from their files to bound handles.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use mortise_plugin::{Component, HostConfig, HttpGrant, PluginHost};
use mortise_service::{DecidePolicy, ModelPlugins, RunTool};
use serde_json::{Value, json};

use crate::config::{AuthConfig, BindingConfig, PluginConfig};
use crate::declared::Declared;
use crate::library::{Fingerprint, Library, Prove};
use crate::model::{ModelFacts, ModelKey};
use crate::places::{Place, places};
use crate::seats::{Ledgers, Seats, Workshop};

/// Plugins that were loaded and are to be bound to models.
pub struct LoadedPlugins {
    /// Runs them.
    pub host: PluginHost,
    config: Arc<PluginConfig>,
    library: Library,
    fingerprint: Fingerprint,
    prove: Prove,
    /// Where the clock stands still that plugins see, in milliseconds since 1970; without it, it is the
    /// system's.
    now_ms: Option<u64>,
}

/// Plugins that serve.
pub struct BoundPlugins {
    /// Runs them.
    pub host: PluginHost,
    pub(crate) config: Arc<PluginConfig>,
    pub(crate) library: Library,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) ledgers: Ledgers,
    pub(crate) seats: Seats,
    pub(crate) prove: Prove,
}

impl std::fmt::Debug for LoadedPlugins {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("LoadedPlugins")
    }
}

impl std::fmt::Debug for BoundPlugins {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("BoundPlugins")
    }
}

impl LoadedPlugins {
    /// Load everything. Blocks: compiling a plugin can take seconds.
    ///
    /// # Errors
    /// When any file cannot be loaded, or fails a case that it carries: a server that starts has all that
    /// it was told to have.
    pub fn load(config: PluginConfig, prove: Prove) -> anyhow::Result<Self> {
        let host = PluginHost::new(HostConfig {
            cache_dir: config.cache_dir.clone(),
            ..HostConfig::default()
        })?;
        let fingerprint = Fingerprint::take(&config);
        let embedded = Library::embedded(&host)?;
        let (library, rejected) = embedded.read_again(&host, &config, &prove)?;
        if let Some(first) = rejected.into_iter().next() {
            bail!(first.reason);
        }
        Ok(Self {
            host,
            config: Arc::new(config),
            library,
            fingerprint,
            prove,
            now_ms: None,
        })
    }

    /// One file that was loaded, to serve as every kind that it has, within the bounds that it would
    /// have in `within` and with nothing else of it, and with what it is granted. The clock stands still at
    /// `now_ms`, in milliseconds since 1970. Blocks.
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
        let mut library = Library::embedded(host)?;
        let file = PathBuf::from(component.origin());
        let kinds = component.kinds().iter().copied();
        let binding = |kind| BindingConfig {
            bounds: within.bounds_of(kind, &file),
            http: http.clone(),
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
            fingerprint: Fingerprint::take(&config),
            config: Arc::new(config),
            library,
            // It is here already, and no other will be read.
            prove: Arc::new(|_, _, _| Ok(())),
            now_ms,
        })
    }

    /// What is loaded, and which place it would have for these models.
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
        let places = places(&self.config, auth, &self.library, models)?;
        let serving = places.iter().map(Place::to_json);
        Ok(json!({
            "plugins": loaded.collect::<Vec<_>>(),
            "serving": serving.collect::<Vec<_>>(),
        }))
    }

    /// Whether it matters what architecture a model is of.
    pub fn are_chosen_by_architecture(&self) -> bool {
        let declared = |component| Declared::of(component).ok().flatten();
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

    /// Bind a plugin in every place.
    ///
    /// # Errors
    /// When the configuration does not fit the files, or a plugin refuses its place.
    pub async fn bind(
        self,
        auth: &AuthConfig,
        models: &[ModelFacts],
    ) -> anyhow::Result<BoundPlugins> {
        let keys: Vec<ModelKey<'_>> = models.iter().map(ModelFacts::key).collect();
        let places = places(&self.config, auth, &self.library, &keys)?;
        let mut ledgers = Ledgers::default();
        let none = Seats::default();
        let shop = Workshop {
            host: &self.host,
            embedded: &self.library.embedded,
            models,
            now_ms: self.now_ms,
        };
        let seats = Seats::bind(&shop, places, &mut ledgers, &none).await?;
        Ok(BoundPlugins {
            host: self.host,
            config: self.config,
            library: self.library,
            fingerprint: self.fingerprint,
            ledgers,
            seats,
            prove: self.prove,
        })
    }
}

impl BoundPlugins {
    /// Write who serves where to the log.
    pub fn report(&self) {
        self.seats.report(&Seats::default());
    }

    /// The plugins of a model that they were bound for.
    pub fn plugins_of(&self, model: &ModelFacts) -> anyhow::Result<ModelPlugins> {
        match self.seats.plugins_of(model) {
            Some(plugins) => Ok(plugins),
            None => bail!("no plugins were bound for the model `{}`", model.name()),
        }
    }

    /// The plugins that bring tools, in the order of the configuration.
    pub fn tools(&self) -> Vec<Arc<dyn RunTool>> {
        self.seats.tools()
    }

    /// The policies in the order in which they are asked.
    pub fn policies(&self) -> Vec<Arc<dyn DecidePolicy>> {
        self.seats.policies()
    }
}
