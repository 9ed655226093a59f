//! Wiring of all crates to a server, and its life from start to stop. Nothing else knows them all.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::Context as _;
use mortise_admin::Admin;
use mortise_api::batches::Batches;
use mortise_api::llm::{self, Llm};
use mortise_api::{
    ApiState, Collections, anthropic, batches, files, ollama, openai, rerank, responses,
    resume_collections, vector_stores,
};
use mortise_config::{AdminConfig, Config, ConfigSource, HttpConfig, LimitConfig, fault_folder};
use mortise_engine::FaultPoint;
use mortise_harness::golden_cases;
use mortise_http::{
    BodyBudget, BodyLimits, ConnectionLimits, ConnectionShares, ConnectionTable, Elsewhere, Guard,
    HttpState, Startup, Stop, router, serve as listen, serve_beside,
};
use mortise_models::lifecycle::ModelManager;
use mortise_models::{AliasTable, EngineSettings, NameMatching};
use mortise_plugin::{PluginHost, epoch_restarts};
use mortise_plugin_manager::{
    LivePlugins, LoadedPlugins, ManagedModel, ModelFacts, ReadConfig, SwapCounters,
};
use mortise_service::{HoldModels, Observer, ServedModel, Service, ServiceConfig};
use mortise_store::{SqliteStore, Store, StoreConfig};
use mortise_telemetry::{Metrics, PluginSwaps, flush_log, log_restarts, start_logging};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Mutex, mpsc, watch};

use crate::discovery::KnownModels;
use crate::faults::{self, fault_in};
use crate::memory::trim_regularly;
use crate::operator::Operating;
use crate::reload::Reloader;
use crate::supervise::{must_go_on, restarts, supervise};
use crate::{remote, start};

/// Time for policies to hear of the last requests, and for threads to end.
const SETTLE: Duration = Duration::from_secs(2);

const LISTENER_ENDED: &str = "the listener ended, and without it there is no server";

/// Serve until a signal ends it. Plugins and keys are read from `source` again on a reload.
pub(crate) fn serve(source: ConfigSource) -> anyhow::Result<()> {
    let mut config = source.load()?;
    if let Some(folder) = fault_folder() {
        faults::enable(folder);
        config.engine.engine.fault = FaultPoint(fault_in!("engine"));
        config.plugins.fault = fault_in!("plugin-epochs");
    }
    let (format, level) = config.log;
    start_logging(format, level, fault_in!("log")).context("cannot start the log")?;
    faults::warn();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("mortise-server")
        .build()
        .context("cannot start the server's threads")?;
    let result = runtime.block_on(run(config, source));
    runtime.shutdown_timeout(SETTLE);
    flush_log();
    result
}

async fn run(mut config: Config, source: ConfigSource) -> anyhow::Result<()> {
    // Before anything slow: a signal during the start ends the server too, and a port in use
    // should be known before a model is read.
    let mut signals = signals()?;
    let hangups = listener_of(SignalKind::hangup(), "SIGHUP")?;
    let listener = bind(&config).await?;
    let address = listener
        .local_addr()
        .context("the listener has no address")?;
    let operator_key = operator_key(config.admin.as_ref());
    let admin = match config.admin.take() {
        Some(admin) => Some(bind_admin(admin).await?),
        None => None,
    };
    let limits = connection_limits(&config.http);
    let shares = ConnectionShares::new(
        config.http.max_connections,
        config.http.max_connections_per_address,
    );
    let (stop, draining, cut) = stop_after(config.http.drain);
    if let Some(upstream) = &config.upstream {
        config.models = tokio::select! {
            found = remote::found(upstream) => found?,
            _ = signals.recv() => return Ok(()),
        };
    }
    let known = config.upstream.is_none().then(|| KnownModels::of(&config));
    if let Some(known) = &known {
        config.models = known.scan().await?.models;
    }
    let models = start::model_manager(&config);
    let startup = starting(&models, address);
    let surroundings = Surroundings {
        address,
        connections: ConnectionTable::new(shares),
        draining,
        cut,
    };
    let listening = listen(
        Arc::new(listener),
        startup.router(),
        limits.clone(),
        Arc::clone(&surroundings.connections),
        signals,
        stop,
    );
    let mut listening = std::pin::pin!(must_go_on("listener", listening));
    let running = tokio::select! {
        opened = open(config, source.clone(), Arc::clone(&models), surroundings) => opened?,
        ended = &mut listening => {
            ended.context(LISTENER_ENDED)?;
            tracing::info!("stopped before the start was complete");
            return Ok(());
        }
    };
    let service = Arc::clone(&running.state.service);
    let live = Arc::clone(&running.live);
    let reloader = Reloader::new(source, live, Arc::clone(&models), known);
    running.start_tasks(&models, &reloader, hangups);
    if let Some((listener, address, key)) = admin {
        let admin = running.admin(&models, &reloader, key);
        let http = &running.state.http;
        start_admin(admin, (listener, address), shares, limits, http)?;
    }
    running.complete(&startup, Operating::new(Arc::clone(&models), operator_key))?;
    tracing::info!("listening on http://{address}");
    listening.await.context(LISTENER_ENDED)?;
    settle(&service, &models).await;
    Ok(())
}

/// Tell policies of the last requests, and end all runtimes.
async fn settle(service: &Service, models: &ModelManager) {
    let _ = tokio::time::timeout(SETTLE, service.settle()).await;
    let limit = SETTLE + start::longest_end(&models.statuses());
    let _ = tokio::time::timeout(limit, models.stop()).await;
}

/// Stop of the listener, and what tells of it: that the server drains, and that it waits no longer.
fn stop_after(drain: Duration) -> (Stop, watch::Receiver<bool>, watch::Receiver<bool>) {
    let (draining, draining_seen) = watch::channel(false);
    let (cut, cut_seen) = watch::channel(false);
    let stop = Stop {
        draining,
        cut,
        drain,
    };
    (stop, draining_seen, cut_seen)
}

/// The main listener.
async fn bind(config: &Config) -> anyhow::Result<TcpListener> {
    let address = SocketAddr::new(config.host, config.port);
    if !address.ip().is_loopback() && config.auth.keys == 0 {
        tracing::warn!("other machines can reach this server and it asks for no key");
    }
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}; is another server running there?"))
}

/// Router that answers while models are loaded.
fn starting(models: &Arc<ModelManager>, address: SocketAddr) -> Arc<Startup> {
    tracing::info!(%address, models = models.statuses().len(), "loading models");
    let models = Arc::clone(models);
    Startup::new(
        move || start::progress(&models.statuses()),
        openai::error_body,
    )
}

/// State that the listener and the handlers share.
struct Surroundings {
    address: SocketAddr,
    connections: Arc<ConnectionTable>,
    draining: watch::Receiver<bool>,
    cut: watch::Receiver<bool>,
}

/// A server that is ready.
struct Running {
    state: Arc<ApiState>,
    live: Arc<LivePlugins>,
    aliases: Arc<AliasTable>,
    /// OpenAI's main routes are there without `/v1` too.
    unversioned: bool,
    /// Interval at which the plugin files are polled.
    watch: Option<Duration>,
    /// Lines of batches that are answered at once.
    batch_lines: usize,
}

fn connection_limits(http: &HttpConfig) -> ConnectionLimits {
    ConnectionLimits {
        headers: http.headers,
        header_timeout: http.header_timeout,
        write_timeout: http.write_timeout,
    }
}

impl Running {
    /// Tasks that go on for as long as the server runs.
    fn start_tasks(
        &self,
        models: &Arc<ModelManager>,
        reloader: &Arc<Reloader>,
        hangups: Arc<Mutex<Signal>>,
    ) {
        reload_on_hangup(Arc::clone(reloader), hangups);
        if let Some(every) = self.watch {
            start_watcher(Arc::clone(&self.live), every);
        }
        start_idle_check(Arc::clone(models));
        trim_regularly();
        tokio::spawn(responses::resume(Arc::clone(&self.state)));
        tokio::spawn(files::sweep(Arc::clone(&self.state)));
    }

    /// The admin side for callers who know `key`.
    fn admin(
        &self,
        models: &Arc<ModelManager>,
        reloader: &Arc<Reloader>,
        key: String,
    ) -> Arc<Admin> {
        let (live, models) = (Arc::clone(&self.live), Arc::clone(models));
        let aliases = Arc::clone(&self.aliases);
        let reload = reloader.on_request();
        Admin::new(live, models, aliases, reload, key, openai::error_body)
    }

    /// Answer on the routes of all dialects from now on.
    fn complete(&self, startup: &Startup, operating: Arc<Operating>) -> anyhow::Result<()> {
        let mut openai = openai::api(Arc::clone(&self.state), self.unversioned);
        openai.router = anthropic::beside(openai.router, Arc::clone(&self.state));
        let responses = responses::api(Arc::clone(&self.state));
        // Lines of batches go to the same routes as requests from outside.
        let lines = openai.router.clone().merge(responses.router.clone());
        let batches = Batches::new(Arc::clone(&self.state), lines, self.batch_lines);
        tokio::spawn(batches::resume(Arc::clone(&batches)));
        let collections = Collections::new(Arc::clone(&self.state));
        tokio::spawn(resume_collections(Arc::clone(&collections)));
        let dialects = vec![
            openai,
            anthropic::api(Arc::clone(&self.state)),
            responses,
            files::api(Arc::clone(&self.state)),
            batches::api(&batches),
            ollama::api(Arc::clone(&self.state)),
            llm::api(Llm::new(Arc::clone(&collections), operating)),
            vector_stores::api(collections),
            rerank::api(Arc::clone(&self.state), openai::error_body),
        ];
        let http = Arc::clone(&self.state.http);
        let elsewhere = Elsewhere {
            shape: openai::error_body,
            problem: openai::ERROR,
        };
        let router = router(http, dialects, elsewhere).map_err(anyhow::Error::msg);
        startup.complete(router.context("the routes make no contract")?);
        Ok(())
    }
}

/// Watch the plugins folder for as long as the server runs.
fn start_watcher(live: Arc<LivePlugins>, every: Duration) {
    supervise("plugin-watcher", move || {
        let live = Arc::clone(&live);
        async move { live.watch(every).await }
    });
}

/// Look for idle models for as long as the server runs.
fn start_idle_check(models: Arc<ModelManager>) {
    supervise("idle-models", move || {
        let models = Arc::clone(&models);
        async move { models.unload_idle().await }
    });
}

/// Serve the admin side beside the API.
fn start_admin(
    admin: Arc<Admin>,
    (listener, address): (TcpListener, SocketAddr),
    shares: ConnectionShares,
    limits: ConnectionLimits,
    http: &HttpState,
) -> anyhow::Result<()> {
    let router = admin.router().map_err(anyhow::Error::msg)?;
    let (listener, table) = (Arc::new(listener), ConnectionTable::new(shares));
    let draining = http.draining.clone();
    supervise("admin-listener", move || {
        let (listener, table) = (Arc::clone(&listener), Arc::clone(&table));
        serve_beside(
            listener,
            router.clone(),
            limits.clone(),
            table,
            draining.clone(),
        )
    });
    tracing::info!("admin side on http://{address}");
    Ok(())
}

/// The key that the API takes for operators, if it does.
fn operator_key(admin: Option<&AdminConfig>) -> Option<String> {
    let on_api = admin.filter(|admin| admin.llm_routes);
    on_api.map(|admin| admin.key.clone())
}

/// The listener of the admin side, its address and its key.
async fn bind_admin(config: AdminConfig) -> anyhow::Result<(TcpListener, SocketAddr, String)> {
    let address = SocketAddr::new(config.host, config.port);
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address} for the admin side"))?;
    let address = listener
        .local_addr()
        .context("the listener of the admin side has no address")?;
    Ok((listener, address, config.key))
}

/// Read the settings again on every SIGHUP. One that came during the start is not lost.
fn reload_on_hangup(reloader: Arc<Reloader>, hangups: Arc<Mutex<Signal>>) {
    supervise("reload-on-hangup", move || {
        let (reloader, hangups) = (Arc::clone(&reloader), Arc::clone(&hangups));
        async move {
            while hangups.lock().await.recv().await.is_some() {
                reloader.reload("SIGHUP").await;
            }
        }
    });
}

/// Metrics of all models and of all plugins of `host`.
fn measure(models: Arc<ModelManager>, host: PluginHost, swaps: Arc<SwapCounters>) -> Arc<Metrics> {
    Arc::new(Metrics::new(
        move || models.statuses(),
        move || host.stats(),
        move || numbers(&swaps),
        task_restarts,
    ))
}

/// Restarts of tasks and threads that must go on. An engine counts its own, by model.
fn task_restarts() -> Vec<(&'static str, u64)> {
    let mut all = restarts();
    all.extend([("log", log_restarts()), ("plugin-epochs", epoch_restarts())]);
    all
}

/// Reader of the plugin configuration, for reloads.
fn read_again(source: ConfigSource) -> ReadConfig {
    Arc::new(move || {
        let config = source.load()?;
        Ok((config.plugins, config.auth))
    })
}

/// Present values of the replacement counters.
fn numbers(swaps: &SwapCounters) -> PluginSwaps {
    PluginSwaps {
        generation: swaps.generation.load(Relaxed),
        replaced: swaps.replaced.load(Relaxed),
        unchanged: swaps.unchanged.load(Relaxed),
        rejected: swaps.rejected.load(Relaxed),
    }
}

/// The store of what outlives a request.
async fn open_store(config: StoreConfig) -> anyhow::Result<Arc<dyn Store>> {
    let store = tokio::task::spawn_blocking(move || SqliteStore::open(&config)).await??;
    Ok(Arc::new(store))
}

/// Load plugins and models and tie them together.
async fn open(
    config: Config,
    source: ConfigSource,
    models: Arc<ModelManager>,
    surroundings: Surroundings,
) -> anyhow::Result<Running> {
    let (limits, engine, auth) = (config.limits, config.engine, config.auth);
    let (http, plugins) = (config.http, config.plugins);
    let watch = plugins.watch;
    let aliases = start::alias_table(config.aliases, &models)?;
    let store = open_store(config.state.store.clone()).await?;
    // Plugins first: a broken file should be known before a model is read.
    let plugins =
        tokio::task::spawn_blocking(move || LoadedPlugins::load(plugins, golden_cases())).await??;
    start::load_enabled(&models, config.strict_models).await?;
    let managed: Vec<ManagedModel> = models.known().into_iter().map(ManagedModel::new).collect();
    let facts = managed.iter().filter_map(|model| model.facts.clone());
    let facts: Vec<ModelFacts> = facts.collect();
    let plugins = plugins.bind(&auth, &facts).await?;
    plugins.report();
    let served = |model: &ManagedModel| model.served(|facts| plugins.plugins_of(facts));
    let served: Result<Vec<ServedModel>, String> = managed.iter().map(served).collect();
    let swaps = Arc::<SwapCounters>::default();
    let host = plugins.host.clone();
    let metrics = measure(Arc::clone(&models), host, Arc::clone(&swaps));
    plugins.host.count_requests(metrics.requests());
    let service = ServiceConfig {
        observer: Arc::clone(&metrics) as Arc<dyn Observer>,
        holder: Arc::clone(&models) as Arc<dyn HoldModels>,
        aliases: Arc::clone(&aliases),
        ..service_config(limits, engine, config.names)
    };
    let service = Arc::new(Service::new(
        service,
        served.map_err(anyhow::Error::msg)?,
        plugins.policies(),
        &plugins.tools(),
    )?);
    let live = Arc::new(LivePlugins::new(
        plugins,
        Arc::clone(&service),
        managed,
        auth,
        read_again(source),
        swaps,
    ));
    models.publish_to(Arc::<LivePlugins>::downgrade(&live));
    let observed = Observed {
        live: Arc::clone(&live),
        models,
        metrics,
    };
    let state = Arc::new(ApiState::new(
        service,
        Arc::new(http_state(http, surroundings, observed)),
        config.unsupported,
        config.lifecycle.keep_alive,
        store,
        config.state.retention,
        config.state.max_file_bytes,
    ));
    Ok(Running {
        state,
        live,
        aliases,
        unversioned: config.unversioned,
        watch,
        batch_lines: limits.batch_lines,
    })
}

/// Settings of the service that stand in the configuration.
fn service_config(
    limits: LimitConfig,
    engine: EngineSettings,
    names: NameMatching,
) -> ServiceConfig {
    ServiceConfig {
        name_matching: names,
        default_max_tokens: limits.default_max_tokens,
        max_choices: limits.n_max,
        tenant_weights: engine.tenant_weights,
        share_prefixes: engine.share_prefixes,
        tools: limits.tools,
        ..ServiceConfig::default()
    }
}

/// Sources of `/metrics` and of the body of `/ready`.
struct Observed {
    live: Arc<LivePlugins>,
    models: Arc<ModelManager>,
    metrics: Arc<Metrics>,
}

/// The state of the HTTP side, from its configuration.
fn http_state(http: HttpConfig, surroundings: Surroundings, observed: Observed) -> HttpState {
    let (page, totals) = (Arc::clone(&observed.metrics), Arc::clone(&observed.metrics));
    let (live, models) = (observed.live, observed.models);
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
        max_queue_wait: http.max_queue_wait,
        heartbeat: http.heartbeat,
        draining,
        cut: surroundings.cut,
        observer: observed.metrics,
        metrics: Box::new(move || page.page()),
        totals: Box::new(move || totals.totals()),
        condition: Box::new(move || {
            let plugins = live.condition().map(|condition| ("plugins", condition));
            let failed = start::condition(&models.statuses());
            let models = failed.map(|condition| ("models", condition));
            plugins.into_iter().chain(models).collect()
        }),
    }
}

/// SIGINT and SIGTERM, by name. Two are told apart; what comes later changes nothing.
fn signals() -> anyhow::Result<mpsc::Receiver<&'static str>> {
    let (sender, receiver) = mpsc::channel(2);
    for (kind, name, task) in [
        (SignalKind::interrupt(), "SIGINT", "stop-on-interrupt"),
        (SignalKind::terminate(), "SIGTERM", "stop-on-terminate"),
    ] {
        let (stream, sender) = (listener_of(kind, name)?, sender.clone());
        supervise(task, move || {
            let (stream, sender) = (Arc::clone(&stream), sender.clone());
            async move {
                while stream.lock().await.recv().await.is_some() {
                    let _ = sender.try_send(name);
                }
            }
        });
    }
    Ok(receiver)
}

/// A signal's stream, which outlives a task that listens to it: what comes while the task is started again is
/// not lost.
fn listener_of(kind: SignalKind, name: &str) -> anyhow::Result<Arc<Mutex<Signal>>> {
    let stream = signal(kind).with_context(|| format!("cannot listen for {name}"))?;
    Ok(Arc::new(Mutex::new(stream)))
}
