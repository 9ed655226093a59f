//! Metrics of a server: where their numbers come from.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use mortise_config::MetricsConfig;
use mortise_models::AliasTable;
use mortise_models::lifecycle::ModelManager;
use mortise_plugin::{PluginHost, epoch_restarts};
use mortise_plugin_manager::SwapCounters;
use mortise_supervise::restarts;
use mortise_telemetry::{Metrics, PluginSwaps, log_restarts};

/// Metrics of all models and of all plugins of `host`.
pub(crate) fn measure(
    models: Arc<ModelManager>,
    host: PluginHost,
    swaps: &Arc<SwapCounters>,
    aliases: Arc<AliasTable>,
    config: &MetricsConfig,
) -> Metrics {
    let swaps = Arc::clone(swaps);
    let metrics = Metrics::new(
        move || models.statuses(),
        move || host.stats(),
        move || numbers(&swaps),
        task_restarts,
    );
    let metrics = metrics.with_aliases(Box::new(move || aliases.sums()));
    let metrics = metrics.with(config.log_begins, config.aliases);
    metrics.with_gen_ai(config.gen_ai)
}

/// Restarts of tasks and threads that must go on. An engine counts its own, by model.
fn task_restarts() -> Vec<(&'static str, u64)> {
    let mut all = restarts();
    all.extend([("log", log_restarts()), ("plugin-epochs", epoch_restarts())]);
    all
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
