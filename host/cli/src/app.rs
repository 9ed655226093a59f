//! Wiring of all crates to a server, and its life from start to stop. Nothing else knows them all.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use mortise_admin::Admin;
use mortise_api::{ApiState, ollama, openai};
use mortise_config::{AdminConfig, Config, ConfigSource, HttpConfig, LimitConfig, hub_config};
use mortise_engine::EngineLoad;
use mortise_harness::golden_cases;
use mortise_http::{
    BodyBudget, BodyLimits, ConnectionLimits, ConnectionShares, ConnectionTable, Guard, HttpState,
    Stop, router, serve as listen, serve_beside,
};
use mortise_models::{
    EngineSettings, Generator, LoadedWeights, Model, ModelConfig, ModelRuntime, ModelSource,
    NameMatching, ScriptKind, ScriptedConversation, TextEmbedder, TokenGenerator, download,
    start_runtime,
};
use mortise_plugin::PluginHost;
use mortise_plugin_manager::{
    LivePlugins, LoadedPlugins, ModelFacts, PluginSet, ReadConfig, SwapCounters,
};
use mortise_service::{ModelPlugins, Observer, ServedModel, Service, ServiceConfig};
use mortise_telemetry::{Metrics, PluginSwaps, flush_log, start_logging};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::supervise::{restarts, supervise};

/// Time for policies to hear of the last requests, and for threads to end.
const SETTLE: Duration = Duration::from_secs(2);

/// Serve until a signal ends it. Plugins and keys are read from `source` again on a reload.
pub(crate) fn serve(source: ConfigSource) -> anyhow::Result<()> {
    let config = source.load()?;
    start_logging(config.log.0, config.log.1).context("cannot start the log")?;
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
    let address = SocketAddr::new(config.host, config.port);
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}; is another server running there?"))?;
    let address = listener
        .local_addr()
        .context("the listener has no address")?;
    let admin = match config.admin.take() {
        Some(admin) => Some(bind_admin(admin).await?),
        None => None,
    };
    let watch_every = config.plugins.watch;
    let connection_limits = connection_limits(&config.http);
    let shares = ConnectionShares::new(
        config.http.max_connections,
        config.http.max_connections_per_address,
    );
    if !address.ip().is_loopback() && config.auth.keys == 0 {
        tracing::warn!("other machines can reach this server and it asks for no key");
    }
    let (draining, draining_seen) = watch::channel(false);
    let (cut, cut_seen) = watch::channel(false);
    let stop = Stop {
        draining,
        cut,
        drain: config.http.drain,
    };
    let (state, live) = tokio::select! {
        opened = open(config, source, address, shares, draining_seen, cut_seen) => opened?,
        signal = signals.recv() => {
            tracing::info!(signal, "stopped before the start was complete");
            return Ok(());
        }
    };
    let state = Arc::new(state);
    let service = Arc::clone(&state.service);
    reload_on_hangup(Arc::clone(&live))?;
    if let Some(every) = watch_every {
        start_watcher(Arc::clone(&live), every);
    }
    if let Some(admin) = admin {
        start_admin(admin, live, shares, connection_limits.clone(), &state.http);
    }
    tracing::info!("listening on http://{address}");
    let http = Arc::clone(&state.http);
    let connections = Arc::clone(&http.connections);
    let router = router(
        http,
        vec![openai::api(Arc::clone(&state)), ollama::api(state)],
        openai::error_body,
    );
    listen(
        Arc::new(listener),
        router,
        connection_limits,
        connections,
        signals,
        stop,
    )
    .await;
    // Usage of the last requests still has to reach the policies.
    let _ = tokio::time::timeout(SETTLE, service.settle()).await;
    Ok(())
}

fn connection_limits(http: &HttpConfig) -> ConnectionLimits {
    ConnectionLimits {
        headers: http.headers,
        header_timeout: http.header_timeout,
        write_timeout: http.write_timeout,
    }
}

/// Watch the plugins folder for as long as the server runs.
fn start_watcher(live: Arc<LivePlugins>, every: Duration) {
    supervise("plugin-watcher", move || {
        let live = Arc::clone(&live);
        async move { live.watch(every).await }
    });
}

/// Serve the admin side beside the API.
fn start_admin(
    (listener, address, key): (TcpListener, SocketAddr, String),
    live: Arc<LivePlugins>,
    shares: ConnectionShares,
    limits: ConnectionLimits,
    http: &HttpState,
) {
    let router = Admin::new(live, key, openai::error_body).router();
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

/// Reload plugins on every SIGHUP.
fn reload_on_hangup(live: Arc<LivePlugins>) -> anyhow::Result<()> {
    let mut hangups = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    let (hangup, mut hung_up) = watch::channel(());
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            hangup.send_replace(());
        }
    });
    hung_up.mark_unchanged();
    supervise("reload-on-hangup", move || {
        let (live, mut hung_up) = (Arc::clone(&live), hung_up.clone());
        async move {
            while hung_up.changed().await.is_ok() {
                live.reload("SIGHUP").await;
            }
        }
    });
    Ok(())
}

/// Metrics of these models and of all plugins of `host`.
fn measure(served: &[ServedModel], host: PluginHost, swaps: Arc<SwapCounters>) -> Arc<Metrics> {
    let models: Vec<Arc<Model>> = served
        .iter()
        .map(|served| Arc::clone(&served.model))
        .collect();
    let loads = move || -> Vec<(String, EngineLoad)> {
        let loads = models
            .iter()
            .map(|model| (model.name.clone(), model.load()));
        loads.collect()
    };
    Arc::new(Metrics::new(
        loads,
        move || host.stats(),
        move || numbers(&swaps),
        restarts,
    ))
}

/// Sources of model files: folders, the hub, and the demo model.
pub(crate) fn model_source() -> ModelSource {
    ModelSource {
        demo: mortise_bundle::demo_model(),
        fetch: Arc::new(|reference| download(&hub_config()?, reference)),
    }
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

/// Load plugins and models and tie them together.
async fn open(
    config: Config,
    source: ConfigSource,
    address: SocketAddr,
    shares: ConnectionShares,
    draining: watch::Receiver<bool>,
    cut: watch::Receiver<bool>,
) -> anyhow::Result<(ApiState, Arc<LivePlugins>)> {
    let (limits, engine, auth, models) = (config.limits, config.engine, config.auth, config.models);
    let (http, plugins) = (config.http, config.plugins);
    // Plugins first: a broken file should be known before a model is read.
    let plugins =
        tokio::task::spawn_blocking(move || LoadedPlugins::load(plugins, golden_cases())).await??;
    let weights = Arc::<LoadedWeights>::default();
    let mut opened = Vec::with_capacity(models.len());
    for model in models {
        opened.push(open_model(model, limits, &engine, &weights).await?);
    }
    let facts = opened.iter().filter_map(|(_, facts)| facts.clone());
    let facts: Vec<ModelFacts> = facts.collect();
    let plugins = plugins.bind(&auth, &facts).await?;
    plugins.report();
    let served = with_plugins(&opened, &plugins)?;
    let swaps = Arc::<SwapCounters>::default();
    let metrics = measure(&served, plugins.host.clone(), Arc::clone(&swaps));
    plugins.host.count_requests(metrics.requests());
    let service = Arc::new(Service::new(
        ServiceConfig {
            name_matching: NameMatching {
                sole_model: config.any_model,
                ..NameMatching::default()
            },
            default_max_tokens: limits.default_max_tokens,
            max_choices: limits.n_max,
            tenant_weights: engine.tenant_weights,
            share_prefixes: engine.share_prefixes,
            tools: limits.tools,
            observer: Arc::clone(&metrics) as Arc<dyn Observer>,
            ..ServiceConfig::default()
        },
        served,
        plugins.policies(),
        &plugins.tools(),
    )?);
    let live = Arc::new(LivePlugins::new(
        plugins,
        Arc::clone(&service),
        opened,
        auth,
        read_again(source),
        swaps,
    ));
    let observed = Observed {
        live: Arc::clone(&live),
        metrics,
    };
    let http = http_state(http, address, shares, (draining, cut), observed);
    let state = ApiState {
        service,
        http: Arc::new(http),
        unsupported: config.unsupported,
    };
    Ok((state, live))
}

/// Each model with the plugins that are bound to it.
fn with_plugins(
    opened: &[(Arc<Model>, Option<ModelFacts>)],
    plugins: &PluginSet,
) -> anyhow::Result<Vec<ServedModel>> {
    let serve = |(model, facts): &(Arc<Model>, Option<ModelFacts>)| {
        Ok(ServedModel {
            model: Arc::clone(model),
            plugins: match facts {
                Some(facts) => plugins.plugins_of(facts)?,
                None => ModelPlugins::default(),
            },
        })
    };
    opened.iter().map(serve).collect()
}

/// Sources of `/metrics` and of the body of `/ready`.
struct Observed {
    live: Arc<LivePlugins>,
    metrics: Arc<Metrics>,
}

/// The state of the HTTP side, from its configuration.
fn http_state(
    http: HttpConfig,
    address: SocketAddr,
    shares: ConnectionShares,
    (draining, cut): (watch::Receiver<bool>, watch::Receiver<bool>),
    observed: Observed,
) -> HttpState {
    let page = Arc::clone(&observed.metrics);
    let live = observed.live;
    HttpState {
        guard: Guard::new(
            http.headers,
            address.ip().is_loopback(),
            &http.allowed_hosts,
            &http.cors_origins,
        ),
        body: BodyLimits {
            bytes: http.max_body_bytes,
            time: http.body_timeout,
            draining: draining.clone(),
        },
        bodies: BodyBudget::new(http.max_body_bytes_in_flight),
        connections: ConnectionTable::new(shares),
        max_queue_wait: http.max_queue_wait,
        heartbeat: http.heartbeat,
        draining,
        cut,
        observer: observed.metrics,
        metrics: Box::new(move || page.page()),
        condition: Box::new(move || Some(("plugins", live.condition()?))),
    }
}

/// SIGINT and SIGTERM, by name. Two are told apart; what comes later changes nothing.
fn signals() -> anyhow::Result<mpsc::Receiver<&'static str>> {
    let (sender, receiver) = mpsc::channel(2);
    for (kind, name) in [
        (SignalKind::interrupt(), "SIGINT"),
        (SignalKind::terminate(), "SIGTERM"),
    ] {
        let mut stream = signal(kind).with_context(|| format!("cannot listen for {name}"))?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                let _ = sender.try_send(name);
            }
        });
    }
    Ok(receiver)
}

/// A model without its plugins, and its facts for plugins. A model that runs elsewhere has no facts,
/// and no plugins are bound to it.
async fn open_model(
    config: ModelConfig,
    limits: LimitConfig,
    engine: &EngineSettings,
    weights: &Arc<LoadedWeights>,
) -> anyhow::Result<(Arc<Model>, Option<ModelFacts>)> {
    if let Some(script) = &config.script
        && script.kind == ScriptKind::Conversation
    {
        let runtime = Arc::new(ScriptedConversation::new(script.clone()));
        tracing::info!(model = config.name, scripted = true, "model loaded");
        let generator = Generator::Conversation(runtime);
        return Ok((Arc::new(describe(config, Some(generator), None)), None));
    }
    let engine = engine.clone();
    let weights = Arc::clone(weights);
    let opening = move || -> anyhow::Result<_> {
        let source = model_source();
        let files = source.open(&config)?;
        let context = limits.max_context;
        let runtime = start_runtime(&config, &files, context, engine, &source, &weights)?;
        Ok((config, files, runtime))
    };
    let (config, files, runtime) = tokio::task::spawn_blocking(opening).await??;
    let facts = ModelFacts::of(
        &files.name,
        &files.architecture,
        &files.tokenizer,
        &files.defaults.eos_tokens,
        files.vocabulary_size,
    );
    let (folder, architecture) = (files.folder.name().to_owned(), files.architecture.clone());
    let scripted = config.script.is_some();
    let (generator, embedder) = match runtime {
        ModelRuntime::Tokens(runtime) => {
            let generator = TokenGenerator {
                runtime,
                tokenizer: files.tokenizer,
                vocabulary_size: files.vocabulary_size,
                generation: files.defaults,
            };
            (Some(Generator::Tokens(generator)), None)
        }
        ModelRuntime::Embeddings(runtime) => {
            let tokenizer = files.tokenizer;
            (None, Some(TextEmbedder { runtime, tokenizer }))
        }
    };
    let model = describe(config, generator, embedder);
    tracing::info!(
        model = model.name,
        folder,
        architecture,
        context = model.context_length(),
        scripted,
        "model loaded"
    );
    Ok((Arc::new(model), Some(facts)))
}

fn describe(
    config: ModelConfig,
    generator: Option<Generator>,
    embedder: Option<TextEmbedder>,
) -> Model {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Model {
        name: config.name,
        aliases: config.aliases,
        created: now.map_or(0, |elapsed| elapsed.as_secs()),
        owned_by: "mortise".to_owned(),
        generator,
        embedder,
    }
}
