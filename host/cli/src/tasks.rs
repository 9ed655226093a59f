//! Tasks that go on for as long as the server runs, and the signals that end it or have the settings read again.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use mortise_models::lifecycle::ModelManager;
use mortise_plugin_manager::LivePlugins;
use mortise_supervise::supervise;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use crate::counters::KeptCounters;
use crate::reload::Reloader;

/// Reloads by signals that may be under way: one that reads, and others that wait for their turn with all but the keys.
const MAX_RELOADS: usize = 8;

/// Watch the plugins folder for as long as the server runs.
pub(crate) fn start_watcher(live: Arc<LivePlugins>, every: Duration) {
    supervise("plugin-watcher", move || {
        let live = Arc::clone(&live);
        async move { live.watch(every).await }
    });
}

/// Write counters for as long as the server runs.
pub(crate) fn start_writing(counters: Arc<KeptCounters>) {
    supervise("counters", move || {
        let counters = Arc::clone(&counters);
        async move { counters.write_regularly().await }
    });
}

/// Keep the server through which hosts share their counters, for as long as this one runs.
pub(crate) fn start_sharing(counters: &KeptCounters) {
    if let Some(valkey) = counters.shared().cloned() {
        supervise("shared-counters", move || {
            let valkey = Arc::clone(&valkey);
            async move { valkey.keep().await }
        });
    }
}

/// Look for idle models for as long as the server runs.
pub(crate) fn start_idle_check(models: Arc<ModelManager>) {
    supervise("idle-models", move || {
        let models = Arc::clone(&models);
        async move { models.unload_idle().await }
    });
}

/// Read the settings again on every SIGHUP. One that came during the start is not lost.
pub(crate) fn reload_on_hangup(reloader: Arc<Reloader>, hangups: Arc<Mutex<Signal>>) {
    supervise("reload-on-hangup", move || {
        let (reloader, hangups) = (Arc::clone(&reloader), Arc::clone(&hangups));
        async move {
            // A reload that a disk holds up does not keep the keys of the next one in force.
            let mut reloads = JoinSet::new();
            while hangups.lock().await.recv().await.is_some() {
                while reloads.len() >= MAX_RELOADS {
                    reloads.join_next().await;
                }
                while reloads.try_join_next().is_some() {}
                let reloader = Arc::clone(&reloader);
                reloads.spawn(async move { reloader.reload("SIGHUP").await });
            }
        }
    });
}

/// Signal that ends the server.
pub(crate) type Ends = mpsc::Sender<&'static str>;

/// SIGINT and SIGTERM, by name. Two are told apart; what comes later changes nothing.
pub(crate) fn signals() -> anyhow::Result<(Ends, mpsc::Receiver<&'static str>)> {
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
    Ok((sender, receiver))
}

/// A signal's stream, which outlives a task that listens to it: what comes while the task is started again is
/// not lost.
pub(crate) fn listener_of(kind: SignalKind, name: &str) -> anyhow::Result<Arc<Mutex<Signal>>> {
    let stream = signal(kind).with_context(|| format!("cannot listen for {name}"))?;
    Ok(Arc::new(Mutex::new(stream)))
}
