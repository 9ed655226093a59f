//! Configuration: a TOML file, the environment and the command line, checked once into the structs of the
//! crates that they configure. Nothing else reads the environment.

mod aliases;
mod audit;
mod auth;
mod auth_terms;
mod auth_tokens;
mod child;
mod day;
mod discovery;
mod drafts;
mod engine;
mod faults;
mod guardrails;
mod health;
mod hex;
mod http;
mod hub;
mod inherited;
mod kept_layer;
mod laid_changes;
mod layers;
mod library;
mod lifecycle;
mod limits;
mod listener;
mod merging;
mod metrics;
mod model_settings;
mod models;
mod object_store;
mod persisted;
mod plugins;
mod policy_grants;
mod raw;
mod registry;
mod response_cache;
mod retrieval;
mod router_file;
mod settings;
mod spend;
mod store;
mod templates;
mod terminal;
#[cfg(test)]
mod tests;
mod traces;
mod upstream;
mod valkey;
mod variables;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mortise_api::Unsupported;
use mortise_http::{ProxyProtocol, TlsSettings};
use mortise_hub::ModelReference;
use mortise_identity::IdentityConfig;
use mortise_library::LibraryConfig;
use mortise_models::lifecycle::LifecycleConfig;
use mortise_models::{
    AliasMeanings, Catalogue, DeviceChoice, DiscoveryConfig, EngineSettings, Listing, ModelConfig,
    NameMatching, UpstreamConfig,
};
use mortise_plugin_manager::{AuthConfig, PluginConfig, at_line};
use mortise_service::CacheConfig;
use mortise_telemetry::{LogFormat, LogLevel};
use mortise_trace::TraceConfig;
use mortise_valkey::ValkeyConfig;

use self::aliases::{AliasTargets, check_aliases};
pub use self::audit::AuditConfig;
use self::auth::check_auth;
pub use self::faults::fault_folder;
pub use self::health::HealthConfig;
pub use self::http::HttpConfig;
use self::http::check_http;
pub use self::hub::hub_config;
pub use self::inherited::{Inherited, notify_socket};
use self::laid_changes::LaidChanges;
pub use self::layers::{config_files, merged_text};
pub use self::limits::LimitConfig;
use self::limits::check_limits;
pub use self::listener::{AdminConfig, SocketConfig};
use self::listener::{RawServer, check_admin, check_plaintext, check_proxies, check_socket};
pub use self::metrics::MetricsConfig;
use self::models::{check_models, doubtful, reserve_places};
pub use self::persisted::{KeptChange, keep, keeps_changes, kept_bindings};
use self::plugins::check_plugins;
use self::raw::{Raw, RawLog};
pub use self::registry::registry_credentials;
pub use self::retrieval::{IndexHome, RetrievalConfig};
pub use self::router_file::{ImportedRouter, import_router};
pub use self::settings::Settings;
pub use self::spend::SpendConfig;
pub use self::store::StateConfig;
pub use self::terminal::{TerminalConfig, terminal};
pub use self::upstream::UpstreamOverride;
pub use self::variables::{UnsetVariable, variable_of, with_placeholders};

/// The commented sample file.
pub const DEFAULT_FILE: &str = include_str!("default.toml");

/// Errors of a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("the configuration file `{}` cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file is no TOML of known keys.
    #[error("the configuration file `{}` is wrong: {message}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line, column and what was found there.
        message: String,
    },
    /// The value of a key cannot be used.
    #[error("the setting `{key}`{} is wrong: {message}", at_line(*line))]
    Invalid {
        /// The key, with its path.
        key: String,
        /// Line in the file, from 1, if the line is known.
        line: Option<usize>,
        /// The problem, and a right value.
        message: String,
    },
}

/// Source of a configuration, so that it can be read again.
#[derive(Debug, Clone)]
pub struct ConfigSource {
    /// Files, each laid over those before it.
    pub files: Vec<PathBuf>,
    /// Settings of the command line.
    pub overrides: Overrides,
}

impl ConfigSource {
    /// Read and check the configuration.
    pub fn load(&self) -> Result<Config, ConfigError> {
        Config::load(&self.files, self.overrides.clone())
    }

    /// Check a text in the place of the files, as if it lay beside the first of them, and its keys and values.
    ///
    /// # Errors
    /// When it is wrong.
    pub fn candidate(&self, text: &str) -> Result<(Config, Settings), ConfigError> {
        let base = layers::folder_of(&self.files);
        let (raw, laid, table) = layers::of_candidate(text, base)?;
        let config = Config::check(raw, &laid, base, self.overrides.clone())?;
        Ok((config, Settings::of_table(table)))
    }

    /// Read and check keys, issuers and users alone. The files must be TOML; other tables may be wrong.
    pub fn auth(&self) -> Result<(AuthConfig, IdentityConfig), ConfigError> {
        let base = self.files.first().and_then(|file| file.parent());
        let raw = layers::auth_of(&self.files)?;
        let keys = &self.overrides.api_keys;
        check_auth(raw, keys, base.unwrap_or(Path::new(".")))
    }

    /// Keys and values of the configuration, for comparison. A file that cannot be read has none; [`load`](Self::load)
    /// reports the error.
    pub fn settings(&self) -> Settings {
        Settings::of_table(layers::table_of(&self.files, true))
    }
}

/// A checked configuration.
#[derive(Debug)]
pub struct Config {
    /// The address to listen on.
    pub host: IpAddr,
    /// The port; 0 picks a free one.
    pub port: u16,
    /// `None`: requests and answers go in the clear.
    pub tls: Option<TlsSettings>,
    /// A socket in the file system beside the address.
    pub socket: Option<SocketConfig>,
    /// `None`: there is no admin side.
    pub admin: Option<AdminConfig>,
    /// Trusted proxies that speak the PROXY protocol.
    pub proxies: ProxyProtocol,
    /// Bounds of connections and bodies.
    pub http: HttpConfig,
    /// Bounds of requests.
    pub limits: LimitConfig,
    /// Settings of the local engine.
    pub engine: EngineSettings,
    /// Format and level of the log.
    pub log: (LogFormat, LogLevel),
    /// Treatment of fields that cannot be honoured.
    pub unsupported: Unsupported,
    /// OpenAI's main routes are there without `/v1` too.
    pub unversioned: bool,
    /// Steps by which a name finds a model.
    pub names: NameMatching,
    /// Names that stand for models and can be switched while the server runs.
    pub aliases: Vec<(String, AliasMeanings)>,
    /// The configured models; at least one, unless there is an `upstream` or `discovery`.
    pub models: Vec<ModelConfig>,
    /// Places where further models are found.
    pub discovery: DiscoveryConfig,
    /// Models that come over the network; `None`: none do.
    pub library: Option<LibraryConfig>,
    /// Upstreams whose listed models are served, in place of configured models.
    pub upstream: Option<UpstreamConfig>,
    /// Life cycle of models: loading and unloading.
    pub lifecycle: LifecycleConfig,
    /// A model that cannot be loaded ends the start.
    pub strict_models: bool,
    /// Plugins and their bindings.
    pub plugins: PluginConfig,
    /// Configured keys and their permissions.
    pub auth: AuthConfig,
    /// Issuers of tokens, and users.
    pub identity: IdentityConfig,
    /// Store of the state.
    pub state: StateConfig,
    /// Server in which several hosts share their counters.
    pub valkey: Option<ValkeyConfig>,
    /// Prices of models, and budgets.
    pub spend: Option<SpendConfig>,
    /// Audit log.
    pub audit: AuditConfig,
    /// Conditions in which parts of the server count as failed.
    pub health: HealthConfig,
    /// Searches in what callers have stored.
    pub retrieval: RetrievalConfig,
    /// Cache of whole answers.
    pub response_cache: CacheConfig,
    /// Numbers and lines about requests.
    pub metrics: MetricsConfig,
    /// Collector of traces, if there is one.
    pub traces: Option<TraceConfig>,
    /// Warnings about what is right and may mean something else than what was wanted, for a person to read.
    pub warnings: Vec<String>,
}

/// Settings of the command line; each overrides the file.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// `--host`
    pub host: Option<String>,
    /// `--port`
    pub port: Option<u16>,
    /// `--plaintext`
    pub plaintext: bool,
    /// `--model`
    pub model: Option<PathBuf>,
    /// `--hf`
    pub hf: Option<ModelReference>,
    /// `--models-dir`
    pub models_dirs: Vec<PathBuf>,
    /// `--upstream`
    pub upstream: Option<UpstreamOverride>,
    /// `--served-model-name`
    pub served_model_name: Vec<String>,
    /// `--plugins`
    pub plugins: Option<PathBuf>,
    /// `--api-key`
    pub api_keys: Vec<String>,
    /// `--strict`
    pub strict: bool,
    /// `--max-context`
    pub max_context: Option<usize>,
    /// `--device`
    pub device: Option<DeviceChoice>,
    /// `--store`
    pub store: Option<PathBuf>,
    /// `--log-format`
    pub log_format: Option<LogFormat>,
    /// `--log-level`
    pub log_level: Option<LogLevel>,
}

impl Raw {
    /// True if there may be models that the files do not name.
    fn discovers(&self, overrides: &Overrides) -> bool {
        self.discovery.is_enabled(&overrides.models_dirs) || self.library.is_enabled()
    }
}

impl Overrides {
    /// True if the command line names the models.
    fn name_models(&self) -> bool {
        self.model.is_some() || self.hf.is_some() || self.upstream.is_some()
    }
}

impl Config {
    /// Read the files, each laid over those before it, and lay the command line over them. The other files that they
    /// name lie beside the first.
    pub fn load<P: AsRef<Path>>(files: &[P], overrides: Overrides) -> Result<Self, ConfigError> {
        let (raw, laid) = layers::read(files)?;
        Self::check(raw, &laid, layers::folder_of(files), overrides)
    }

    /// Read what stands in a file, and lay the command line over it. The other files that it names lie
    /// beside this one.
    pub fn of_text(text: &str, path: &Path, overrides: Overrides) -> Result<Self, ConfigError> {
        let raw = raw::parse(text).map_err(|message| ConfigError::Malformed {
            path: path.to_owned(),
            message,
        })?;
        let laid = LaidChanges::default();
        let base = path.parent().unwrap_or(Path::new("."));
        Self::check(raw, &laid, base, overrides)
    }

    fn check(
        mut raw: Raw,
        laid: &LaidChanges,
        base: &Path,
        overrides: Overrides,
    ) -> Result<Self, ConfigError> {
        let doubtful = doubtful(&raw.models, &overrides);
        let (mut models, discovery) = models_of(&mut raw, base, &overrides)?;
        let library = check_library(&mut raw, base, &overrides)?;
        let bindings = std::mem::take(&mut raw.plugins.bindings);
        let server = &raw.server;
        let host = host_of(server, &overrides)?;
        positive("server.max_body_bytes", server.max_body_bytes)?;
        positive("server.max_connections", server.max_connections)?;
        let proxies = check_proxies(server, &raw.auth.trusted_proxies)?;
        let (auth, identity) =
            check_auth(std::mem::take(&mut raw.auth), &overrides.api_keys, base)?;
        let engine = check_engine(&raw, auth.keys > 0, overrides.device)?;
        let upstream = overrides.upstream.as_ref();
        let mut upstream = upstream.map(UpstreamOverride::check).transpose()?;
        reserve_places(&mut models, upstream.as_mut(), engine.engine.reserve_queue);
        drafts::check(&models, engine.engine.speculation)?;
        let (lifecycle, strict) = raw.lifecycle.check()?;
        let state = raw.store.check(base, overrides.store.clone())?;
        let targets = AliasTargets {
            configured: &models,
            may_find_others: upstream.is_some() || discovery.is_enabled() || library.is_some(),
            of_command_line: overrides.name_models(),
        };
        let (aliases, aliases_left_out) = check_aliases(&raw.aliases, targets, laid)?;
        // Who names one model on the command line wants that one or none.
        let named = overrides.model.is_some() || overrides.hf.is_some();
        Ok(Self {
            host,
            admin: check_admin(&raw.admin, base)?,
            port: overrides.port.unwrap_or(server.port),
            tls: server.tls.as_ref().map(|tls| tls.check(base)),
            socket: check_socket(server, base)?,
            proxies,
            http: check_http(server, &raw.limits)?,
            limits: check_limits(&raw.limits, overrides.max_context)?,
            engine,
            log: log_of(&raw.log, &overrides),
            unsupported: raw.openai.unsupported,
            unversioned: raw.openai.unversioned,
            names: raw.names.matching(raw.openai.any_model),
            aliases,
            models,
            discovery,
            library,
            lifecycle,
            strict_models: strict || named || overrides.strict,
            upstream,
            plugins: check_plugins(&raw.plugins, bindings, base, overrides.plugins)?,
            auth,
            identity,
            valkey: raw.valkey.check(base)?,
            spend: raw.spend.check(base)?,
            audit: raw.audit.check(base, state.outlives())?,
            health: raw.health.check()?,
            retrieval: raw.retrieval.check(state.database.is_some())?,
            response_cache: raw.response_cache.check()?,
            metrics: raw
                .metrics
                .check(raw.log.lines()?, raw.admin.port.is_some())?,
            traces: raw.traces.check(base)?,
            warnings: [laid.left_out.clone(), doubtful, aliases_left_out].concat(),
            state,
        })
    }
}

/// Models of the configuration and of the command line, and the places where further ones are found.
fn models_of(
    raw: &mut Raw,
    base: &Path,
    overrides: &Overrides,
) -> Result<(Vec<ModelConfig>, DiscoveryConfig), ConfigError> {
    let drafts = raw.models.iter().map(|model| model.draft_model.clone());
    let drafts: Vec<Option<String>> = drafts.collect();
    let named = std::mem::take(&mut raw.models);
    let discovers = raw.discovers(overrides);
    let mut models = check_models(named, base, overrides, discovers)?;
    let discovery = find_models(raw, &mut models, base, overrides)?;
    if !overrides.name_models() {
        drafts::assign(&mut models, &drafts, base)?;
    }
    check_names(&models)?;
    Ok((models, discovery))
}

/// The engine of all models, and values for requests that say nothing.
fn check_engine(
    raw: &Raw,
    tenants: bool,
    device: Option<DeviceChoice>,
) -> Result<EngineSettings, ConfigError> {
    let engine = raw.engine.check(&raw.limits, &raw.health, tenants)?;
    let defaults = raw.defaults.clone();
    Ok(EngineSettings {
        device: device.unwrap_or(engine.device),
        defaults: defaults.check(&|name| format!("defaults.{name}"))?,
        ..engine
    })
}

/// The main listener's address, which is reached in the clear by consent only.
fn host_of(server: &RawServer, overrides: &Overrides) -> Result<IpAddr, ConfigError> {
    let host = overrides.host.as_ref().unwrap_or(&server.host);
    let host = check_host("server.host", host)?;
    let plaintext = overrides.plaintext || server.plaintext;
    let flag = " (`--plaintext`)";
    check_plaintext("server", host, server.tls.as_ref(), plaintext, flag)?;
    Ok(host)
}

fn log_of(log: &RawLog, overrides: &Overrides) -> (LogFormat, LogLevel) {
    let format = overrides.log_format.unwrap_or(log.format);
    (format, overrides.log_level.unwrap_or(log.level))
}

fn invalid(key: &str, message: impl Into<String>) -> ConfigError {
    ConfigError::Invalid {
        key: key.to_owned(),
        line: None,
        message: message.into(),
    }
}

/// At least 1, and small enough that arithmetic on it is safe.
fn positive(key: &str, value: usize) -> Result<usize, ConfigError> {
    within(key, value, 1 << 31)
}

fn within(key: &str, value: usize, most: usize) -> Result<usize, ConfigError> {
    if (1..=most).contains(&value) {
        return Ok(value);
    }
    Err(invalid(
        key,
        format!("it must be from 1 to {most}; it is {value}"),
    ))
}

fn milliseconds(key: &str, value: u64) -> Result<Duration, ConfigError> {
    const DAY: u64 = 24 * 3600 * 1000;
    if (1..=DAY).contains(&value) {
        return Ok(Duration::from_millis(value));
    }
    Err(invalid(
        key,
        format!("it must be from 1 to {DAY}; it is {value}"),
    ))
}

fn check_host(key: &str, host: &str) -> Result<IpAddr, ConfigError> {
    let address = if host == "localhost" {
        "127.0.0.1"
    } else {
        host
    };
    address.trim_matches(['[', ']']).parse().map_err(|_| {
        invalid(
            key,
            format!("it must be an IP address, such as 127.0.0.1 or 0.0.0.0; it is `{host}`"),
        )
    })
}

/// Places where models are found, unless the command line says which model there is. The model of the start is one of
/// those that are configured, or is to be found.
fn find_models(
    raw: &mut Raw,
    models: &mut [ModelConfig],
    base: &Path,
    overrides: &Overrides,
) -> Result<DiscoveryConfig, ConfigError> {
    let startup = raw.lifecycle.startup_model.take();
    let table = std::mem::take(&mut raw.discovery);
    let named = overrides.name_models();
    let enabled = !named && (table.is_enabled(&overrides.models_dirs) || raw.library.is_enabled());
    let startup = match startup {
        Some(name) if !enabled || models.iter().any(|model| model.name == name) => {
            start_with(models, &name)?;
            None
        }
        startup => startup,
    };
    let discovery = table.check(base, overrides.models_dirs.clone(), startup)?;
    Ok(match named {
        true => DiscoveryConfig::default(),
        false => discovery,
    })
}

/// The library. Where the command line names the models, no others come.
fn check_library(
    raw: &mut Raw,
    base: &Path,
    overrides: &Overrides,
) -> Result<Option<LibraryConfig>, ConfigError> {
    let library = std::mem::take(&mut raw.library);
    let library = library.check(base, raw.admin.port.is_some())?;
    Ok(library.filter(|_| !overrides.name_models()))
}

/// Have this model loaded at the start.
fn start_with(models: &mut [ModelConfig], name: &str) -> Result<(), ConfigError> {
    let key = "lifecycle.startup_model";
    let Some(model) = models.iter_mut().find(|model| model.name == name) else {
        return Err(invalid(key, format!("no model is called `{name}`")));
    };
    model.lifecycle.enabled = true;
    Ok(())
}

/// Refuse two models of one name.
fn check_names(models: &[ModelConfig]) -> Result<(), ConfigError> {
    let listings = models.iter().map(Listing::of).collect();
    let names = Catalogue::new(listings, NameMatching::default());
    names.map_err(|error| invalid("models", error.to_string()))?;
    Ok(())
}
