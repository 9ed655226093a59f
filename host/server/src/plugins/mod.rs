//! The plugins of a server: which files there are (`library`), who serves where (`places`), the
//! bound handles (`seats`), and how all of it is replaced while the server runs (`live`).

mod declared;
mod library;
mod live;
mod pattern;
mod places;
mod precedence;
mod schema;
mod scope;
mod seats;
mod signature;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use mortise_plugin::{Component, HostConfig, Kind, PluginHost};
use mortise_service::{ModelPlugins, RunTool};
use serde_json::{Value, json};

pub(crate) use self::declared::Declared;
use self::library::Fingerprint;
pub(crate) use self::library::Library;
pub(crate) use self::live::{LivePlugins, SwapCounters};
pub(crate) use self::places::ModelKey;
use self::places::{Place, places};
pub(crate) use self::seats::ModelFacts;
use self::seats::{Ledgers, Seats, Workshop};
use crate::config::{AuthConfig, BindingConfig, BindingKind, PluginConfig};
use crate::surroundings::{Moment, Surroundings};

impl From<BindingKind> for Kind {
    fn from(kind: BindingKind) -> Self {
        match kind {
            BindingKind::ChatTemplate => Self::ChatTemplate,
            BindingKind::OutputParser => Self::OutputParser,
            BindingKind::Grammar => Self::Grammar,
            BindingKind::Policy => Self::Policy,
            BindingKind::Tool => Self::Tool,
        }
    }
}

impl From<Kind> for BindingKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::ChatTemplate => Self::ChatTemplate,
            Kind::OutputParser => Self::OutputParser,
            Kind::Grammar => Self::Grammar,
            Kind::Policy => Self::Policy,
            Kind::Tool => Self::Tool,
        }
    }
}

/// Plugins that were loaded and are to be bound to models.
pub(crate) struct LoadedPlugins {
    pub(crate) host: PluginHost,
    config: Arc<PluginConfig>,
    library: Library,
    fingerprint: Fingerprint,
    /// Where the clock stands still that plugins see; without it, it is the system's.
    now: Option<Moment>,
}

/// Plugins that serve.
pub(crate) struct BoundPlugins {
    pub(crate) host: PluginHost,
    config: Arc<PluginConfig>,
    library: Library,
    fingerprint: Fingerprint,
    ledgers: Ledgers,
    seats: Seats,
}

impl LoadedPlugins {
    /// Load everything. Blocks: compiling a plugin can take seconds.
    ///
    /// # Errors
    /// When any file cannot be loaded, or fails a case that it carries: a server that starts has all that
    /// it was told to have.
    pub(crate) fn load(config: PluginConfig) -> anyhow::Result<Self> {
        let host = PluginHost::new(HostConfig {
            cache_dir: config.cache_dir.clone(),
            ..HostConfig::default()
        })?;
        let fingerprint = Fingerprint::take(&config);
        let embedded = Library::embedded(&host)?;
        let (library, rejected) = embedded.read_again(&host, &config)?;
        if let Some(first) = rejected.into_iter().next() {
            bail!(first.reason);
        }
        Ok(Self {
            host,
            config: Arc::new(config),
            library,
            fingerprint,
            now: None,
        })
    }

    /// Where the clock stands still, if it does.
    pub(crate) fn now(&self) -> Option<Moment> {
        self.now
    }

    /// One file that was loaded, to serve as every kind that it has, within the bounds that it would
    /// have in `within` and with nothing else of it, and with what it is granted. Blocks.
    ///
    /// # Errors
    /// When an embedded plugin cannot be loaded.
    pub(crate) fn single(
        host: &PluginHost,
        component: &Arc<Component>,
        settings: &Value,
        within: &PluginConfig,
        granted: &Surroundings,
    ) -> anyhow::Result<Self> {
        let mut library = Library::embedded(host)?;
        let file = PathBuf::from(component.origin());
        let kinds = component
            .kinds()
            .iter()
            .map(|kind| BindingKind::from(*kind));
        let binding = |kind| BindingConfig {
            bounds: within.bounds_of(kind, &file),
            http: granted.http(),
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
            now: granted.now,
        })
    }

    /// What is loaded, and which place it would have for these models.
    pub(crate) fn describe(
        &self,
        auth: &AuthConfig,
        models: &[ModelKey<'_>],
    ) -> anyhow::Result<Value> {
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
    pub(crate) fn are_chosen_by_architecture(&self) -> bool {
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
    pub(crate) async fn bind(
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
            now: self.now,
        };
        let seats = Seats::bind(&shop, places, &mut ledgers, &none).await?;
        Ok(BoundPlugins {
            host: self.host,
            config: self.config,
            library: self.library,
            fingerprint: self.fingerprint,
            ledgers,
            seats,
        })
    }
}

impl BoundPlugins {
    /// Write who serves where to the log.
    pub(crate) fn report(&self) {
        self.seats.report(&Seats::default());
    }

    /// The plugins of a model that they were bound for.
    pub(crate) fn plugins_of(&self, model: &ModelFacts) -> anyhow::Result<ModelPlugins> {
        match self.seats.plugins_of(model) {
            Some(plugins) => Ok(plugins),
            None => bail!("no plugins were bound for the model `{}`", model.name()),
        }
    }

    /// The plugins that bring tools, in the order of the configuration.
    pub(crate) fn tools(&self) -> Vec<Arc<dyn RunTool>> {
        self.seats.tools()
    }

    /// The policies in the order in which they are asked.
    pub(crate) fn policies(&self) -> Vec<Arc<dyn mortise_service::DecidePolicy>> {
        self.seats.policies()
    }
}
