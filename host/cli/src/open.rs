//! Opening of a server: plugins and models are loaded and tied together.

use std::net::SocketAddr;
use std::sync::Arc;

use mortise_api::{ApiState, Collections, SearchTool, index_of};
use mortise_author::install_sources;
use mortise_config::{
    AuditConfig, Config, ConfigSource, HttpConfig, IndexHome, MetricsConfig, StateConfig,
    registry_credentials,
};
use mortise_http::{BodyBudget, BodyLimits, ConnectionTable, Guard, HttpState, TlsServer};
use mortise_identity::{CallerDirectory, IdentityConfig};
use mortise_library::Library;
use mortise_models::lifecycle::ModelManager;
use mortise_models::{AliasTable, DeviceChoice};
use mortise_plugin_manager::{
    AuthConfig, LivePlugins, ManagedModel, ModelFacts, PluginConfig, PluginSet, ReadConfig,
    SwapCounters,
};
use mortise_service::{HoldModels, Observer, ServiceConfig};
use mortise_telemetry::Metrics;
use mortise_valkey::ValkeyConfig;
use tokio::sync::watch;

use crate::advice;
use crate::aliases::alias_table;
use crate::callers::Callers;
use crate::counters::KeptCounters;
use crate::hand_over::InheritedListeners;
use crate::health::Health;
use crate::kept::DurableState;
use crate::measure::measure;
use crate::running::{Offered, Running};
use crate::serving::{built_in, logged, service_config, serving, set_retrieval};
use crate::spending::{SpendLimits, accountant, charged};
use crate::start;
use crate::start_times::timed;
use crate::traces::Traces;

/// State that the listener and the handlers share.
pub(crate) struct Surroundings {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<ConnectionTable>,
    pub(crate) tls: Option<Arc<TlsServer>>,
    pub(crate) draining: watch::Receiver<bool>,
    pub(crate) cut: watch::Receiver<bool>,
    pub(crate) traces: Traces,
    pub(crate) library: Option<Arc<Library>>,
}

/// Reader of the plugin configuration, for reloads.
fn read_again(source: ConfigSource) -> ReadConfig {
    Arc::new(move || {
        let config = source.load()?;
        install_sources(&config.plugins, &registry_credentials())?;
        Ok((config.plugins, config.auth))
    })
}

/// Load plugins and the models of the start, and bind the former to the latter. Policies draw from `counters`.
async fn load(
    plugins: PluginConfig,
    auth: &AuthConfig,
    counters: Arc<KeptCounters>,
    models: &Arc<ModelManager>,
    (strict, device): (bool, DeviceChoice),
) -> anyhow::Result<(PluginSet, Vec<ManagedModel>)> {
    // Plugins first: a broken file should be known before a model is read.
    let plugins = tokio::task::spawn_blocking(move || {
        install_sources(&plugins, &registry_credentials())?;
        advice::load_plugins(plugins)
    });
    let plugins = timed("plugins", plugins).await??;
    let plugins = plugins.counted_by(Arc::new(move |name| counters.ledger(name)));
    timed("models", start::load_enabled(models, strict, device)).await?;
    let managed: Vec<ManagedModel> = models.known().into_iter().map(ManagedModel::new).collect();
    let plugins = timed("binding", plugins.bind(auth, &facts_of(&managed))).await?;
    plugins.report();
    Ok((plugins, managed))
}

/// Facts of the models that are loaded.
fn facts_of(managed: &[ManagedModel]) -> Vec<ModelFacts> {
    let facts = managed.iter().filter_map(|model| model.facts.clone());
    facts.collect()
}

/// Parts of the server that have numbers to show.
struct Measured<'a> {
    models: &'a Arc<ModelManager>,
    aliases: &'a Arc<AliasTable>,
    swaps: &'a Arc<SwapCounters>,
    money: Option<&'a SpendLimits>,
    counters: &'a Arc<KeptCounters>,
    traces: &'a Traces,
}

impl Measured<'_> {
    /// Metrics of these parts and of the plugins.
    fn metrics(&self, plugins: &PluginSet, config: &MetricsConfig) -> Arc<Metrics> {
        let (models, aliases) = (Arc::clone(self.models), Arc::clone(self.aliases));
        let metrics = measure(models, plugins.host.clone(), self.swaps, aliases, config);
        let metrics = charged(metrics, self.money, self.counters);
        let metrics = Arc::new(self.traces.measured(metrics));
        plugins.host.count_requests(metrics.requests());
        metrics
    }
}

/// Open what outlives the process, and find out which callers it knows.
async fn keep(
    (state, index): (&StateConfig, IndexHome),
    (audit, valkey, identity): (AuditConfig, Option<ValkeyConfig>, IdentityConfig),
    models: &Arc<ModelManager>,
) -> anyhow::Result<(DurableState, Arc<CallerDirectory>)> {
    let kept = DurableState::open(state, index, audit, valkey).await?;
    kept.audit.follow_models(models);
    let identity = CallerDirectory::open(Arc::clone(&kept.store), identity);
    let identity = Arc::new(timed("identity", identity).await?);
    Ok((kept, identity))
}

/// Plugins that hear of models that come and go.
fn published(live: LivePlugins, models: &ModelManager) -> Arc<LivePlugins> {
    let live = Arc::new(live);
    models.publish_to(Arc::<LivePlugins>::downgrade(&live));
    live
}

/// Load plugins and models and tie them together.
pub(crate) async fn open(
    config: Config,
    source: ConfigSource,
    models: Arc<ModelManager>,
    surroundings: Surroundings,
    arrival: &mut InheritedListeners,
) -> anyhow::Result<Running> {
    let library = surroundings.library.as_ref();
    arrival.prepare(&config, &models, library).await?;
    let aliases = alias_table(&config, &models)?;
    let (offered, watch) = (Offered::of(&config), config.plugins.watch);
    let (limits, auth, http, plugins) = (config.limits, config.auth, config.http, config.plugins);
    let parts = (config.audit, config.valkey, config.identity);
    let home = (&config.state, config.retrieval.index);
    let (kept, identity) = keep(home, parts, &models).await?;
    let money = SpendLimits::new(config.spend)?;
    let search = Arc::<SearchTool>::default();
    let (counters, strict) = (Arc::clone(&kept.counters), config.strict_models);
    let strict = (strict, config.engine.device);
    let (plugins, managed) = load(plugins, &auth, counters, &models, strict).await?;
    let (host, swaps) = (plugins.host.clone(), Arc::default());
    let measured = Measured {
        models: &models,
        aliases: &aliases,
        swaps: &swaps,
        money: money.as_ref(),
        counters: &kept.counters,
        traces: &surroundings.traces,
    };
    let metrics = measured.metrics(&plugins, &config.metrics);
    let service = ServiceConfig {
        observer: Arc::clone(&metrics) as Arc<dyn Observer>,
        holder: Arc::clone(&models) as Arc<dyn HoldModels>,
        aliases: Arc::clone(&aliases),
        recognise: Arc::new(Callers(Arc::clone(&identity))),
        spend: accountant(money.as_ref(), &kept.counters),
        built_in_tools: built_in(config.retrieval.search_tool, &search),
        ..service_config(limits, config.engine, config.names, config.response_cache)
    };
    let service = serving(logged(service, &config.metrics), &plugins, &managed)?;
    let again = read_again(source);
    let live = LivePlugins::new(plugins, Arc::clone(&service), managed, auth, again, swaps);
    let live = published(live, &models);
    let health = Health::new(config.health, (models, &aliases), Arc::clone(&live), &kept);
    let observed = Observed::begin(health, &metrics, config.metrics.on_main);
    let index = index_of(&kept.store, kept.passages);
    let state = Arc::new(ApiState::new(
        service,
        Arc::new(http_state(http, surroundings, observed)),
        config.unsupported,
        config.lifecycle.keep_alive,
        (kept.store, index),
        config.state.retention,
        config.state.max_file_bytes,
    ));
    set_retrieval(&state, &search, config.retrieval.retriever, host)?;
    Ok(Running {
        collections: Collections::new(Arc::clone(&state)),
        state,
        live,
        aliases,
        audit: kept.audit,
        offered,
        identity,
        counters: kept.counters,
        money,
        watch,
        metrics,
    })
}

/// Sources of `/metrics` and of the body of `/ready`.
struct Observed {
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    /// The main listener shows the numbers.
    on_main: bool,
}

impl Observed {
    /// From now on the parts of the server are checked.
    fn begin(health: Arc<Health>, metrics: &Arc<Metrics>, on_main: bool) -> Self {
        health.start();
        Self {
            health,
            metrics: Arc::clone(metrics),
            on_main,
        }
    }
}

/// The state of the HTTP side, from its configuration.
fn http_state(http: HttpConfig, surroundings: Surroundings, observed: Observed) -> HttpState {
    let page = Arc::clone(&observed.metrics);
    let health = observed.health;
    let draining = surroundings.draining;
    HttpState {
        guard: Guard::new(
            http.headers,
            surroundings.address.ip().is_loopback(),
            &http.allowed_hosts,
            &http.cors_origins,
        ),
        body: BodyLimits {
            bytes: http.max_body_bytes,
            time: http.body_timeout,
            draining: draining.clone(),
        },
        bodies: BodyBudget::new(http.max_body_bytes_in_flight),
        connections: surroundings.connections,
        tls: surroundings.tls,
        max_queue_wait: http.max_queue_wait,
        heartbeat: http.heartbeat,
        websocket_time: http.websocket_time,
        draining,
        cut: surroundings.cut,
        observer: observed.metrics,
        shows_metrics: observed.on_main,
        metrics: Box::new(move || page.page()),
        checks: Box::new(move || health.checks()),
    }
}
