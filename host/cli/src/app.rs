//! Wiring of all crates to a server, and its life from start to stop. Nothing else knows them all.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use mortise_api::{anthropic, llm, login, ollama, openai};
use mortise_config::{AdminConfig, Config, ConfigSource, HttpConfig, fault_folder};
use mortise_engine::FaultPoint;
use mortise_http::{
    ConnectionLimits, ConnectionShares, ConnectionTable, Startup, Stop, serve as listen,
};
use mortise_library::Library;
use mortise_models::lifecycle::ModelManager;
use mortise_supervise::{fault_in, faults, must_go_on};
use mortise_telemetry::{flush_log, start_logging};
use tokio::signal::unix::SignalKind;
use tokio::sync::watch;

use crate::discovery::{KnownModels, check_folders};
use crate::doors::Doors;
use crate::hand_over::{HandOver, InheritedListeners};
use crate::open::{Surroundings, open};
use crate::running::{SETTLE, start_admin};
use crate::tasks::{listener_of, signals};
use crate::traces::Traces;
use crate::{library, remote, start};

/// Time after which an idle thread of the runtime that is there to block ends. Each task wakes the one that has been idle
/// for longest, so that regular tasks, as `memory.rs` has, would keep several for good if this were not less than their pause.
const IDLE_THREAD: Duration = Duration::from_secs(2);

const LISTENER_ENDED: &str = "the listener ended, and without it there is no server";

/// Serve until a signal ends it. Plugins and keys are read from `source` again on a reload.
pub(crate) fn serve(source: ConfigSource, take_over: bool) -> anyhow::Result<()> {
    let arrival = InheritedListeners::receive(take_over)?;
    let mut config = source.load()?;
    if let Some(folder) = fault_folder() {
        faults::enable(folder);
        config.engine.engine.fault = FaultPoint(fault_in!("engine"));
        config.plugins.fault = fault_in!("plugin-epochs");
    }
    let (format, level) = config.log;
    start_logging(format, level, fault_in!("log")).context("cannot start the log")?;
    faults::warn();
    for told in &config.warnings {
        tracing::warn!("{told}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("mortise-server")
        .thread_keep_alive(IDLE_THREAD)
        .build()
        .context("cannot start the server's threads")?;
    let result = runtime.block_on(run(config, source, arrival));
    runtime.shutdown_timeout(SETTLE);
    flush_log();
    result
}

async fn run(
    mut config: Config,
    source: ConfigSource,
    mut arrival: InheritedListeners,
) -> anyhow::Result<()> {
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
    tokio::select! {
        found = remote::find(&mut config) => found?,
        _ = signals.recv() => return Ok(()),
    }
    let (library, known) = known_models(&mut config, arrival.take_over.is_some()).await?;
    let models = start::model_manager(&config, library.clone());
    let startup = starting(&models, door.address);
    let surroundings = Surroundings {
        address: door.address,
        connections: ConnectionTable::new(shares),
        tls: door.tls.clone(),
        draining,
        cut,
        traces: traces.clone(),
        library: library.clone(),
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
    arrival.look_again(&reloader).await;
    running.start_tasks(&models, &reloader, hangups);
    if let Some((door, key)) = &doors.admin {
        let admin = running.admin(&models, &reloader, (key.clone(), admin_page), library);
        start_admin(admin, door, shares, limits, closing)?;
    }
    running.complete(&startup, &models, operator_key, reloader.library())?;
    tracing::info!("listening on {}", door.url());
    arrival.ready()?;
    HandOver::start(Arc::clone(&doors), ends, successors)?;
    listening.await.context(LISTENER_ENDED)?;
    running.end(&models, &traces).await;
    Ok(())
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

/// The library, which may be `shared` with the server that this one takes over from, and the models of known folders, which
/// join those of the configuration.
async fn known_models(
    config: &mut Config,
    shared: bool,
) -> anyhow::Result<(Option<Arc<Library>>, Option<KnownModels>)> {
    check_folders(config)?;
    let library = library::open(config, shared).await?;
    let known = KnownModels::of(config, library.clone());
    if let Some(known) = &known {
        config.models = known.scan().await?.models;
    }
    Ok((library, known))
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

/// The key that the API takes for operators, if it does.
fn operator_key(admin: Option<&AdminConfig>) -> Option<String> {
    let on_api = admin.filter(|admin| admin.llm_routes);
    on_api.map(|admin| admin.key.clone())
}
