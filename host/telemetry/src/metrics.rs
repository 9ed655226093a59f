//! Counters, gauges and histograms for Prometheus. The number of series is bounded: routes, models
//! and statuses are known, and of error codes only the first ones are told apart.

mod alias_numbers;
mod aliases;
mod exemplars;
mod figures;
mod gen_ai;
mod guardrails;
mod latency;
mod loads;
mod log;
mod recent;
mod shared_counters;
mod sources;
mod spans;
mod spend;
mod states;
mod tasks;
mod tools;
mod totals;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use mortise_http::{AccessObserver, EndedRequest, RequestFigures, RequestStart, RequestSums};
use mortise_models::lifecycle::ModelStatus;
use mortise_plugin::{FunctionStats, PluginStats};
use mortise_service::{ModelObserver, Observer, ServiceError};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::access_log;

pub use self::alias_numbers::AliasSource;
use self::exemplars::{TracedHistogram, observe_traced, traced_histogram};
use self::figures::ModelFigures;
use self::latency::ModelFamilies;
use self::loads::Loads;
use self::log::LostLines;
pub use self::recent::FirstTokens;
pub use self::shared_counters::SharedCounters;
use self::states::{ModelStates, StatusSource};
use self::tasks::Restarts;
use self::totals::SpendTotals;

/// Error codes told apart; a policy plugin may make up any number of them.
const MAX_ERROR_CODES: usize = 64;

/// Seconds, from a health check to a long answer. 0.8 and 5 are the objectives of `docs/metrics.md`.
const DURATIONS: [f64; 17] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.8, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    120.0,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    model: String,
    status: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabel {
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabel {
    model: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: String,
}

/// Counters of plugin replacements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PluginSwaps {
    /// Sets of plugins that have served, from 1.
    pub generation: u64,
    /// Reloads after which something else served.
    pub replaced: u64,
    /// Reloads that found nothing new.
    pub unchanged: u64,
    /// Files refused in reloads, and reloads that failed as a whole.
    pub rejected: u64,
}

/// All metrics of the server.
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    duration: Family<RouteLabel, TracedHistogram>,
    models: ModelFamilies,
    in_flight: Gauge,
    streams: Gauge,
    errors: Family<CodeLabel, Counter>,
    rate_limited: Counter,
    codes: Mutex<HashSet<String>>,
    totals: SpendTotals,
    log_begins: bool,
    aliases: bool,
    gen_ai: bool,
    figures: ModelFigures,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Metrics")
    }
}

fn histogram() -> Histogram {
    Histogram::new(DURATIONS)
}

fn traced() -> TracedHistogram {
    traced_histogram(DURATIONS)
}

impl AccessObserver for Metrics {
    fn request_began(&self) {
        self.in_flight.inc();
    }

    fn request_taken_up(&self, id: &str, route: &'static str, peer: IpAddr, begun: &RequestStart) {
        if self.log_begins {
            access_log::write_begun(id, route, peer, begun);
        }
    }

    fn stream_began(&self) {
        self.streams.inc();
    }

    fn stream_ended(&self) {
        self.streams.dec();
    }

    fn request_ended(&self, access: &EndedRequest<'_>) {
        self.in_flight.dec();
        self.count(access);
        access_log::write(access);
    }

    fn figures(&self) -> RequestFigures {
        self.figures.now()
    }

    fn sums(&self, account: &str) -> BTreeMap<String, RequestSums> {
        self.totals.of(account)
    }
}

impl Observer for Metrics {
    fn model(&self, name: &str) -> Arc<dyn ModelObserver> {
        self.models.of(name)
    }

    fn refused(&self, model: Option<&str>, error: &ServiceError) {
        self.models.refused(model, error.kind());
    }
}

impl Metrics {
    /// `models` tells the state of each model, and what the runtimes of loaded ones are doing.
    /// `plugins` tells what each plugin did, `swaps` how often plugins were replaced, and `restarts` how often
    /// background tasks were started again.
    pub fn new(
        models: impl Fn() -> Vec<ModelStatus> + Send + Sync + 'static,
        plugins: impl Fn() -> Vec<PluginStats> + Send + Sync + 'static,
        swaps: impl Fn() -> PluginSwaps + Send + Sync + 'static,
        restarts: fn() -> Vec<(&'static str, u64)>,
    ) -> Self {
        let mut registry = Registry::with_prefix("mortise");
        let metrics = Self {
            requests: Family::default(),
            duration: Family::new_with_constructor(traced),
            in_flight: Gauge::default(),
            streams: Gauge::default(),
            errors: Family::default(),
            rate_limited: Counter::default(),
            codes: Mutex::default(),
            totals: SpendTotals::default(),
            log_begins: false,
            aliases: false,
            gen_ai: false,
            figures: ModelFigures::new(),
            models: ModelFamilies::new(&mut registry),
            registry: Registry::default(),
        };
        let version = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The version that is running", version);
        let r = &mut registry;
        r.register("requests", "Requests answered", metrics.requests.clone());
        r.register(
            "request_duration_seconds",
            "Time from a request's arrival to the last byte of its answer",
            metrics.duration.clone(),
        );
        r.register(
            "requests_in_flight",
            "Requests being answered",
            metrics.in_flight.clone(),
        );
        r.register(
            "active_streams",
            "Streamed answers under way",
            metrics.streams.clone(),
        );
        r.register(
            "errors",
            "Requests failed, by error code",
            metrics.errors.clone(),
        );
        r.register(
            "rate_limit_dropped",
            "Requests refused with status 429",
            metrics.rate_limited.clone(),
        );
        let models: StatusSource = Arc::new(models);
        r.register_collector(Box::new(Loads::new(Arc::clone(&models))));
        r.register_collector(Box::new(ModelStates::new(models)));
        r.register_collector(Box::new(Plugins(Box::new(plugins))));
        r.register_collector(Box::new(Swaps(Box::new(swaps))));
        r.register_collector(Box::new(LostLines));
        r.register_collector(Box::new(Restarts(restarts)));
        Self {
            registry,
            ..metrics
        }
    }

    /// Write a line when a request begins, and add series under names that the field knows, if so configured.
    #[must_use]
    pub fn with(self, log_begins: bool, aliases: bool) -> Self {
        Self {
            log_begins,
            aliases,
            ..self
        }
    }

    /// Tells how many requests are being answered.
    pub fn requests(&self) -> impl Fn() -> usize + Send + Sync + use<> {
        let in_flight = self.in_flight.clone();
        move || usize::try_from(in_flight.get()).unwrap_or(0)
    }

    /// Tokens generated since the start.
    pub fn generated_tokens(&self) -> u64 {
        self.models.recent().generated()
    }

    /// Times to first token over the last minute.
    pub fn first_tokens(&self) -> Option<FirstTokens> {
        self.models.recent().first_tokens()
    }

    fn count(&self, outcome: &EndedRequest<'_>) {
        self.totals.count(outcome);
        self.figures.count(outcome);
        let route = outcome.route.to_owned();
        let model = outcome.model.filter(|_| outcome.known_model);
        let model = model.unwrap_or("other").to_owned();
        self.requests
            .get_or_create(&RequestLabels {
                route: route.clone(),
                model,
                status: u32::from(outcome.status),
            })
            .inc();
        let trace = outcome.trace_id.filter(|_| outcome.sampled);
        let duration = self.duration.get_or_create_owned(&RouteLabel { route });
        observe_traced(&duration, outcome.elapsed, trace.map(str::to_owned));
        if let Some(code) = outcome.error {
            let code = self.bounded(code);
            self.errors.get_or_create(&CodeLabel { code }).inc();
        }
        if outcome.status == 429 {
            self.rate_limited.inc();
        }
    }

    fn bounded(&self, code: &str) -> String {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        if codes.contains(code) {
            return code.to_owned();
        }
        if codes.len() >= MAX_ERROR_CODES {
            return "other".to_owned();
        }
        codes.insert(code.to_owned());
        code.to_owned()
    }

    /// The page that Prometheus reads. Exemplars stand behind their samples as OpenMetrics has them; the text format has
    /// none, so whoever serves it takes them out.
    pub fn page(&self) -> String {
        let mut page = String::new();
        // Writing to a string does not fail.
        let _ = text::encode(&mut page, &self.registry);
        let page = classic(&page);
        let page = match self.aliases {
            true => aliases::add(page),
            false => page,
        };
        match self.gen_ai {
            true => gen_ai::add(page),
            false => page,
        }
    }
}

type PluginSource = Box<dyn Fn() -> Vec<PluginStats> + Send + Sync>;

/// Collector of plugin statistics, read with the page.
struct Plugins(PluginSource);

impl fmt::Debug for Plugins {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Plugins")
    }
}

impl Collector for Plugins {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all = (self.0)();
        for (name, help, kind, field) in PLUGIN_FIELDS {
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for stats in &all {
                let labels = [
                    ("plugin", stats.plugin.as_str()),
                    ("kind", stats.kind.as_str()),
                ];
                let encoder = family.encode_family(&labels)?;
                match kind {
                    MetricType::Counter => ConstCounter::new(field(stats)).encode(encoder)?,
                    _ => {
                        let value = i64::try_from(field(stats)).unwrap_or(i64::MAX);
                        ConstGauge::new(value).encode(encoder)?;
                    }
                }
            }
        }
        let help = "Calls into plugins that ended";
        let mut family =
            encoder.encode_descriptor("plugin_calls", help, None, MetricType::Counter)?;
        for stats in &all {
            for function in &stats.functions {
                let labels = [
                    ("plugin", stats.plugin.as_str()),
                    ("kind", stats.kind.as_str()),
                    ("function", function.function),
                ];
                ConstCounter::new(function.calls).encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Calls into plugins that were given up before they ended";
        let mut family =
            encoder.encode_descriptor("plugin_calls_given_up", help, None, MetricType::Counter)?;
        for stats in &all {
            for function in stats
                .functions
                .iter()
                .filter(|function| function.cancelled > 0)
            {
                let labels = [
                    ("plugin", stats.plugin.as_str()),
                    ("kind", stats.kind.as_str()),
                    ("function", function.function),
                ];
                ConstCounter::new(function.cancelled).encode(family.encode_family(&labels)?)?;
            }
        }
        encode_durations(&mut encoder, &all)?;
        encode_faults(&mut encoder, &all)
    }
}

fn encode_durations(
    encoder: &mut DescriptorEncoder<'_>,
    all: &[PluginStats],
) -> Result<(), fmt::Error> {
    let help = "Time in each call into a plugin";
    let mut family = encoder.encode_descriptor(
        "plugin_call_duration_seconds",
        help,
        None,
        MetricType::Histogram,
    )?;
    for stats in all {
        for function in stats.functions.iter().filter(|function| function.calls > 0) {
            let labels = [
                ("plugin", stats.plugin.as_str()),
                ("kind", stats.kind.as_str()),
                ("function", function.function),
            ];
            CallDurations(function).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn encode_faults(
    encoder: &mut DescriptorEncoder<'_>,
    all: &[PluginStats],
) -> Result<(), fmt::Error> {
    let help = "Calls into plugins that failed";
    let mut family = encoder.encode_descriptor("plugin_faults", help, None, MetricType::Counter)?;
    for stats in all {
        for function in &stats.functions {
            for (fault, count) in &function.faults {
                let labels = [
                    ("plugin", stats.plugin.as_str()),
                    ("kind", stats.kind.as_str()),
                    ("function", function.function),
                    ("fault", *fault),
                ];
                ConstCounter::new(*count).encode(family.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
}

type PluginField = fn(&PluginStats) -> u64;

/// Single figures of each plugin: name, help, type and value.
const PLUGIN_FIELDS: [(&str, &str, MetricType, PluginField); 6] = [
    (
        "plugin_instances",
        "Instances alive, idle or busy",
        MetricType::Gauge,
        |stats| stats.live_instances,
    ),
    (
        "plugin_instances_made",
        "Instances made",
        MetricType::Counter,
        |stats| stats.created_instances,
    ),
    (
        "plugin_memory_peak_bytes",
        "Most memory that one instance has had",
        MetricType::Gauge,
        |stats| stats.memory_peak_bytes,
    ),
    (
        "plugin_image_bytes",
        "Prepared memory that instances begin with and share",
        MetricType::Gauge,
        |stats| stats.image_bytes,
    ),
    (
        "plugin_suspended",
        "Bindings that are not called at present, since they failed too often",
        MetricType::Gauge,
        |stats| stats.suspended_bindings,
    ),
    (
        "plugin_suspensions",
        "How often a binding was suspended",
        MetricType::Counter,
        |stats| stats.suspensions,
    ),
];

/// The histogram of one function.
struct CallDurations<'a>(&'a FunctionStats);

impl EncodeMetric for CallDurations<'_> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let mut below = 0;
        let mut buckets = Vec::with_capacity(self.0.seconds_buckets.len() + 1);
        for &(bound, cumulative) in &self.0.seconds_buckets {
            // Counted while calls go on, so the numbers may disagree by a call.
            buckets.push((bound, cumulative.saturating_sub(below)));
            below = cumulative;
        }
        let count = self.0.calls.max(below);
        buckets.push((f64::INFINITY, count - below));
        encoder.encode_histogram::<NoLabelSet>(self.0.seconds_sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// Counters of plugin replacements.
struct Swaps(Box<dyn Fn() -> PluginSwaps + Send + Sync>);

impl fmt::Debug for Swaps {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Swaps")
    }
}

impl Collector for Swaps {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "The set of plugins that serves, counted from 1";
        let swaps = (self.0)();
        let generation = i64::try_from(swaps.generation).unwrap_or(i64::MAX);
        let gauge =
            encoder.encode_descriptor("plugin_generation", help, None, MetricType::Gauge)?;
        ConstGauge::new(generation).encode(gauge)?;
        let help = "Reloads of plugins by outcome, and files refused in them";
        let mut family =
            encoder.encode_descriptor("plugin_reloads", help, None, MetricType::Counter)?;
        for (outcome, count) in [
            ("replaced", swaps.replaced),
            ("unchanged", swaps.unchanged),
            ("rejected", swaps.rejected),
        ] {
            let counter = ConstCounter::new(count);
            counter.encode(family.encode_family(&[("outcome", outcome)])?)?;
        }
        Ok(())
    }
}

/// The page in Prometheus' own text format, which every scraper and `promtool` read: there, a
/// counter is declared under the full name of its samples.
fn classic(open_metrics: &str) -> String {
    let mut page = String::with_capacity(open_metrics.len() + 512);
    // Each block begins with HELP; TYPE, which says what the block is, comes second.
    let mut help = None;
    for line in open_metrics.lines() {
        if line.starts_with("# HELP ") {
            help = Some(line);
            continue;
        }
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                other => ("", other),
            };
            let text = help
                .take()
                .and_then(|line| line.splitn(4, ' ').nth(3))
                .unwrap_or_default();
            page.push_str(&format!("# HELP {name}{suffix} {text}\n"));
            page.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with('#') {
            page.push_str(line);
            page.push('\n');
        }
    }
    page
}

#[cfg(test)]
mod tests;
