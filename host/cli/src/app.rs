//! Wiring of all crates to a server, and its life from start to stop. Nothing else knows them all.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use mortise_admin::{Admin, Around, MetricsPage};
use mortise_api::batches::Batches;
use mortise_api::llm::{self, Llm};
use mortise_api::{
    ApiState, Collections, SearchTool, anthropic, batches, echo_socket, files, login, ollama,
    openai, rerank, responses, resume_collections, vector_stores,
};
use mortise_author::install_sources;
use mortise_config::{
    AdminConfig, Config, ConfigSource, HttpConfig, fault_folder, registry_credentials,
};
use mortise_engine::FaultPoint;
use mortise_harness::golden_cases;
use mortise_http::{
    BodyBudget, BodyLimits, ConnectionLimits, ConnectionShares, ConnectionTable, Elsewhere, Guard,
    HttpState, Startup, Stop, TlsServer, router, serve as listen, serve_beside,
};
use mortise_identity::Identity;
use mortise_library::Library;
use mortise_models::AliasTable;
use mortise_models::lifecycle::ModelManager;
use mortise_plugin_manager::{
    AuthConfig, LivePlugins, LoadedPlugins, ManagedModel, ModelFacts, PluginConfig, PluginSet,
    ReadConfig, SwapCounters,
};
use mortise_service::{HoldModels, Observer, Service, ServiceConfig};
use mortise_telemetry::{Metrics, flush_log, start_logging};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind};
use tokio::sync::{Mutex, watch};

use crate::audit::Audit;
use crate::callers::Callers;
use crate::counters::KeptCounters;
use crate::discovery::KnownModels;
use crate::doors::{Certificates, Door, Doors};
use crate::faults::{self, fault_in};
use crate::hand_over::{Arrival, HandOver};
use crate::health::Health;
use crate::kept::Kept;
use crate::library::OnApi;
use crate::measure::measure;
use crate::memory::trim_regularly;
use crate::operator::Operating;
use crate::reload::Reloader;
use crate::serving::{built_in, service_config, serving, set_retriever};
use crate::sharing::{Shared, start_sharing_store};
use crate::spending::{Money, accountant, charged};
use crate::supervise::{must_go_on, supervise};
use crate::tasks::{
    listener_of, reload_on_hangup, signals, start_idle_check, start_sharing, start_watcher,
    start_writing,
};
use crate::traces::Traces;
use crate::watch::Watched;
use crate::{library, logins, notify, remote, start};

/// Time for policies to hear of the last requests, and for threads to end.
const SETTLE: Duration = Duration::from_secs(2);

/// Writer of problems on paths of no dialect.
const ELSEWHERE: Elsewhere = Elsewhere {
    shape: openai::error_body,
    problem: openai::ERROR,
};

const LISTENER_ENDED: &str = "the listener ended, and without it there is no server";

/// Serve until a signal ends it. Plugins and keys are read from `source` again on a reload.
pub(crate) fn serve(source: ConfigSource, take_over: bool) -> anyhow::Result<()> {
    let arrival = Arrival::receive(take_over)?;
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
    let result = runtime.block_on(run(config, source, arrival));
    runtime.shutdown_timeout(SETTLE);
    flush_log();
    result
}

async fn run(mut config: Config, source: ConfigSource, mut arrival: Arrival) -> anyhow::Result<()> {
    // Before anything slow: a signal during the start ends the server too, and a port in use
    // should be known before a model is read.
    let (ends, mut signals) = signals()?;
    let successors = listener_of(SignalKind::user_defined2(), "SIGUSR2")?;
    let hangups = listener_of(SignalKind::hangup(), "SIGHUP")?;
    let operator_key = operator_key(config.admin.as_ref());
    let admin_page = config.admin.as_ref().is_some_and(|admin| admin.page);
    let traces = Traces::start(config.traces.as_ref())?;
    let doors = Arc::new(Doors::open(&mut config, &mut arrival.inherited).await?);
    let door = &doors.main;
    let limits = connection_limits(&config);
    let shares = connection_shares(&config.http);
    let (stop, draining, cut) = stop_after(config.http.drain);
    let closing = stop.closing.subscribe();
    if let Some(upstream) = &config.upstream {
        config.models = tokio::select! {
            found = remote::found(upstream) => found?,
            _ = signals.recv() => return Ok(()),
        };
    }
    let library = library::open(&config).await?;
    let known = KnownModels::of(&config, library.clone());
    if let Some(known) = &known {
        config.models = known.scan().await?.models;
    }
    let models = start::model_manager(&config);
    let startup = starting(&models, door.address);
    let surroundings = Surroundings {
        address: door.address,
        connections: ConnectionTable::new(shares),
        tls: door.tls.clone(),
        draining,
        cut,
        traces: traces.clone(),
    };
    let (endpoint, bounds) = (Arc::clone(&door.endpoint), limits.clone());
    let (router, table) = (startup.router(), Arc::clone(&surroundings.connections));
    let mut answers = arrival.answers();
    let listening = async move {
        tokio::select! {
            _ = answers.wait_for(|answers| *answers) => {}
            _ = signals.recv() => return,
        }
        listen(endpoint, router, bounds, table, signals, stop).await;
    };
    let mut listening = std::pin::pin!(must_go_on("listener", listening));
    let running = tokio::select! {
        opened = open(config, source.clone(), Arc::clone(&models), surroundings, &mut arrival) => opened?,
        ended = &mut listening => {
            ended.context(LISTENER_ENDED)?;
            tracing::info!("stopped before the start was complete");
            return Ok(());
        }
    };
    let reloader = running.reloader(source, &models, known, doors.certificates());
    running.tie(library.as_ref(), &models, &reloader, &doors);
    running.start_tasks(&models, &reloader, hangups);
    if let Some((door, key)) = &doors.admin {
        let admin = running.admin(&models, &reloader, (key.clone(), admin_page), library);
        start_admin(admin, door, shares, limits, closing)?;
    }
    running.complete(&startup, Operating::new(Arc::clone(&models), operator_key))?;
    tracing::info!("listening on {}", door.url());
    arrival.ready()?;
    HandOver::start(Arc::clone(&doors), ends, successors)?;
    listening.await.context(LISTENER_ENDED)?;
    running.end(&models, &traces).await;
    Ok(())
}

/// Tell policies of the last requests, write what they counted, and end all runtimes.
async fn settle(service: &Service, models: &ModelManager, counters: &KeptCounters) {
    let _ = tokio::time::timeout(SETTLE, service.settle()).await;
    let _ = tokio::time::timeout(SETTLE, counters.write()).await;
    let _ = tokio::time::timeout(SETTLE, counters.leave()).await;
    let limit = SETTLE + start::longest_end(&models.statuses());
    let _ = tokio::time::timeout(limit, models.stop()).await;
}

/// Stop of the listener, and what tells of it: that the server drains, and that it waits no longer.
fn stop_after(drain: Duration) -> (Stop, watch::Receiver<bool>, watch::Receiver<bool>) {
    let (draining, draining_seen) = watch::channel(false);
    let closing = watch::Sender::new(false);
    let (cut, cut_seen) = watch::channel(false);
    let stop = Stop {
        draining,
        closing,
        cut,
        drain,
    };
    (stop, draining_seen, cut_seen)
}

/// Router that answers while models are loaded.
fn starting(models: &Arc<ModelManager>, address: SocketAddr) -> Arc<Startup> {
    tracing::info!(%address, models = models.statuses().len(), "loading models");
    let models = Arc::clone(models);
    Startup::new(
        move || start::progress(&models.statuses()),
        vec![
            anthropic::DIALECT,
            ollama::DIALECT,
            llm::DIALECT,
            login::DIALECT,
        ],
        openai::error_body,
    )
}

/// State that the listener and the handlers share.
struct Surroundings {
    address: SocketAddr,
    connections: Arc<ConnectionTable>,
    tls: Option<Arc<TlsServer>>,
    draining: watch::Receiver<bool>,
    cut: watch::Receiver<bool>,
    traces: Traces,
}

/// A server that is ready.
struct Running {
    state: Arc<ApiState>,
    live: Arc<LivePlugins>,
    aliases: Arc<AliasTable>,
    audit: Arc<Audit>,
    /// The admin side shows the numbers.
    admin_metrics: bool,
    identity: Arc<Identity>,
    counters: Arc<KeptCounters>,
    money: Option<Money>,
    /// OpenAI's main routes are there without `/v1` too.
    unversioned: bool,
    /// Interval at which the plugin files are polled.
    watch: Option<Duration>,
    /// Lines of batches that are answered at once.
    batch_lines: usize,
    /// The page of the playground is at `/`.
    playground: bool,
    /// A WebSocket sends back what it gets.
    websocket_echo: bool,
    metrics: Arc<Metrics>,
}

fn connection_shares(http: &HttpConfig) -> ConnectionShares {
    ConnectionShares::new(http.max_connections, http.max_connections_per_address)
}

fn connection_limits(config: &Config) -> ConnectionLimits {
    let http = &config.http;
    ConnectionLimits {
        proxies: config.proxies.clone(),
        headers: http.headers,
        header_timeout: http.header_timeout,
        write_timeout: http.write_timeout,
    }
}

impl Running {
    /// Reader of the settings while the server runs.
    fn reloader(
        &self,
        source: ConfigSource,
        models: &Arc<ModelManager>,
        known: Option<KnownModels>,
        certificates: Certificates,
    ) -> Arc<Reloader> {
        let (live, audit) = (Arc::clone(&self.live), Arc::clone(&self.audit));
        let (models, identity) = (Arc::clone(models), Arc::clone(&self.identity));
        Reloader::new(source, live, models, identity, known, certificates, audit)
    }

    /// Tie the library to the server, if there is one.
    fn tie(
        &self,
        library: Option<&Arc<Library>>,
        models: &Arc<ModelManager>,
        reloader: &Arc<Reloader>,
        doors: &Doors,
    ) {
        if let Some(library) = library {
            library::tie(library, reloader, models, &self.aliases);
            let on_api = OnApi {
                library: Arc::clone(library),
                models: Arc::clone(models),
                key: doors.admin.as_ref().map(|(_, key)| key.clone()),
            };
            let _ = self.state.library.set(Arc::new(on_api));
        }
    }

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
        self.audit.follow_plugins(&self.live);
        start_writing(Arc::clone(&self.counters));
        start_sharing(&self.counters);
        tokio::spawn(responses::resume(Arc::clone(&self.state)));
        tokio::spawn(files::sweep(Arc::clone(&self.state)));
    }

    /// End of the server, once the last answer has been given.
    async fn end(&self, models: &ModelManager, traces: &Traces) {
        notify::stopping();
        settle(&self.state.service, models, &self.counters).await;
        traces.flush(SETTLE).await;
        let stop = json!({"action": "server.stop"});
        // Nothing is left to be refused.
        let _ = self.audit.tell(stop).await;
        let _ = tokio::time::timeout(SETTLE, self.state.store.leave()).await;
    }

    /// The admin side for callers who know `key`, with or without its page.
    fn admin(
        &self,
        models: &Arc<ModelManager>,
        reloader: &Arc<Reloader>,
        (key, page): (String, bool),
        library: Option<Arc<Library>>,
    ) -> Arc<Admin> {
        let (live, models) = (Arc::clone(&self.live), Arc::clone(models));
        let aliases = Arc::clone(&self.aliases);
        let reload = reloader.on_request();
        let http = Arc::clone(&self.state.http);
        let numbers: MetricsPage = Box::new(move |headers| http.metrics_page(headers));
        let around = Around {
            identity: Arc::clone(&self.identity),
            auditor: self.audit.auditor(),
            metrics: self.admin_metrics.then_some(numbers),
            watch: Arc::new(Watched {
                service: Arc::clone(&self.state.service),
                metrics: Arc::clone(&self.metrics),
            }),
            page: page.then(|| mortise_web::admin(ELSEWHERE)),
            library,
            draining: self.state.http.draining.clone(),
            spending: self.money.as_ref().map(Money::shown),
        };
        Admin::new(
            live,
            models,
            aliases,
            reload,
            key,
            around,
            openai::error_body,
        )
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
        start_sharing_store(Shared {
            state: Arc::clone(&self.state),
            batches: Arc::clone(&batches),
            collections: Arc::clone(&collections),
            identity: Arc::clone(&self.identity),
        });
        let mut dialects = vec![
            openai,
            anthropic::api(Arc::clone(&self.state)),
            responses,
            files::api(Arc::clone(&self.state)),
            batches::api(&batches),
            ollama::api(Arc::clone(&self.state)),
            llm::api(Llm::new(Arc::clone(&self.state), operating)),
            vector_stores::api(collections),
            rerank::api(Arc::clone(&self.state), openai::error_body),
            login::api(
                Arc::clone(&self.state),
                Arc::clone(&self.identity),
                logins::recorder(&self.audit),
            ),
        ];
        if self.playground {
            dialects.push(mortise_web::api(ELSEWHERE));
        }
        if self.websocket_echo {
            let state = Arc::clone(&self.state);
            dialects.push(echo_socket::api(state, openai::error_body));
        }
        let http = Arc::clone(&self.state.http);
        let router = router(http, dialects, ELSEWHERE).map_err(anyhow::Error::msg);
        startup.complete(router.context("the routes make no contract")?);
        Ok(())
    }
}

/// Serve the admin side beside the API.
fn start_admin(
    admin: Arc<Admin>,
    door: &Door,
    shares: ConnectionShares,
    limits: ConnectionLimits,
    closing: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let router = admin.router().map_err(anyhow::Error::msg)?;
    let (endpoint, table) = (Arc::clone(&door.endpoint), ConnectionTable::new(shares));
    supervise("admin-listener", move || {
        let (endpoint, table) = (Arc::clone(&endpoint), Arc::clone(&table));
        serve_beside(
            endpoint,
            router.clone(),
            limits.clone(),
            table,
            closing.clone(),
        )
    });
    tracing::info!("admin side on {}", door.url());
    Ok(())
}

/// The key that the API takes for operators, if it does.
fn operator_key(admin: Option<&AdminConfig>) -> Option<String> {
    let on_api = admin.filter(|admin| admin.llm_routes);
    on_api.map(|admin| admin.key.clone())
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
    strict: bool,
) -> anyhow::Result<(PluginSet, Vec<ManagedModel>)> {
    // Plugins first: a broken file should be known before a model is read.
    let plugins = tokio::task::spawn_blocking(move || {
        install_sources(&plugins, &registry_credentials())?;
        LoadedPlugins::load(plugins, golden_cases())
    });
    let plugins = plugins.await??;
    let plugins = plugins.counted_by(Arc::new(move |name| counters.ledger(name)));
    start::load_enabled(models, strict).await?;
    let managed: Vec<ManagedModel> = models.known().into_iter().map(ManagedModel::new).collect();
    let plugins = plugins.bind(auth, &facts_of(&managed)).await?;
    plugins.report();
    Ok((plugins, managed))
}

/// Facts of the models that are loaded.
fn facts_of(managed: &[ManagedModel]) -> Vec<ModelFacts> {
    let facts = managed.iter().filter_map(|model| model.facts.clone());
    facts.collect()
}

/// Load plugins and models and tie them together.
async fn open(
    config: Config,
    source: ConfigSource,
    models: Arc<ModelManager>,
    surroundings: Surroundings,
    arrival: &mut Arrival,
) -> anyhow::Result<Running> {
    arrival.prepare(&config, &models).await?;
    let (limits, engine, auth) = (config.limits, config.engine, config.auth);
    let (http, plugins) = (config.http, config.plugins);
    let (watch, playground, echo) = (plugins.watch, http.playground, http.websocket_echo);
    let aliases = start::alias_table(config.aliases, &models)?;
    let kept = Kept::open(&config.state, config.audit, config.valkey).await?;
    kept.audit.follow_models(&models);
    let identity = Arc::new(Identity::open(Arc::clone(&kept.store), config.identity).await?);
    let money = Money::new(config.spend);
    let (counters, strict) = (Arc::clone(&kept.counters), config.strict_models);
    let (plugins, managed) = load(plugins, &auth, counters, &models, strict).await?;
    let swaps = Arc::<SwapCounters>::default();
    let (models_of, host) = (Arc::clone(&models), plugins.host.clone());
    let of_aliases = Arc::clone(&aliases);
    let metrics = measure(models_of, host, &swaps, of_aliases, &config.metrics);
    let metrics = charged(metrics, money.as_ref(), &kept.counters);
    let metrics = Arc::new(surroundings.traces.measured(metrics));
    plugins.host.count_requests(metrics.requests());
    let search = Arc::<SearchTool>::default();
    let service = ServiceConfig {
        observer: Arc::clone(&metrics) as Arc<dyn Observer>,
        holder: Arc::clone(&models) as Arc<dyn HoldModels>,
        aliases: Arc::clone(&aliases),
        recognise: Arc::new(Callers(Arc::clone(&identity))),
        spend: accountant(money.as_ref(), &kept.counters),
        built_in_tools: built_in(config.retrieval.search_tool, &search),
        ..service_config(limits, engine, config.names, config.response_cache)
    };
    let service = serving(service, &plugins, &managed)?;
    let again = read_again(source);
    let live = LivePlugins::new(plugins, Arc::clone(&service), managed, auth, again, swaps);
    let live = Arc::new(live);
    models.publish_to(Arc::<LivePlugins>::downgrade(&live));
    let health = Health::new(config.health, models, Arc::clone(&live), &kept);
    let observed = Observed::begin(health, &metrics, config.metrics.on_main);
    let state = Arc::new(ApiState::new(
        service,
        Arc::new(http_state(http, surroundings, observed)),
        config.unsupported,
        config.lifecycle.keep_alive,
        kept.store,
        config.state.retention,
        config.state.max_file_bytes,
    ));
    search.serve(&state);
    set_retriever(&state, config.retrieval.retriever)?;
    Ok(Running {
        state,
        live,
        aliases,
        audit: kept.audit,
        admin_metrics: config.metrics.on_admin,
        identity,
        counters: kept.counters,
        money,
        unversioned: config.unversioned,
        watch,
        batch_lines: limits.batch_lines,
        playground,
        websocket_echo: echo,
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
    let (page, totals) = (Arc::clone(&observed.metrics), Arc::clone(&observed.metrics));
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
        draining,
        cut: surroundings.cut,
        observer: observed.metrics,
        shows_metrics: observed.on_main,
        metrics: Box::new(move || page.page()),
        totals: Box::new(move || totals.totals()),
        checks: Box::new(move || health.checks()),
    }
}
