//! Counters of plugins: calls, faults, latency and instances, for metrics.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use crate::limits::MAX_COUNTER_NAMES;
use crate::{Fault, Kind, PluginError};

/// Upper bounds of the histogram of call durations, in seconds; one more bucket holds the rest.
pub const DURATION_BUCKETS: [f64; 10] = [
    0.000_01, 0.000_1, 0.000_5, 0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0,
];

/// Name under which counters beyond the allowed number of names are added up.
const OTHER_COUNTER: &str = "other";

/// Breakdowns of a plugin in one kind that are kept for operators.
pub(crate) const MAX_BREAKDOWNS: usize = 8;

/// Durations that are kept of one function.
const MAX_TIMINGS: usize = 1 << 17;

/// Longest name of a counter.
const MAX_COUNTER_NAME_BYTES: usize = 64;

/// Counters of one plugin in one of its kinds.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginStats {
    /// Name of the plugin.
    pub plugin: String,
    /// The version that was bound last; the numbers are those of all versions.
    pub version: String,
    /// The kind that the numbers are for.
    pub kind: Kind,
    /// Instances alive now, idle or busy.
    pub live_instances: u64,
    /// Instances made so far.
    pub created_instances: u64,
    /// Bindings that are not called at present, since they failed too often.
    pub suspended_bindings: u64,
    /// Suspensions of bindings so far.
    pub suspensions: u64,
    /// Most bytes of memory that one instance has had.
    pub memory_peak_bytes: u64,
    /// Bytes of prepared memory that further instances begin with; all instances of a binding share them.
    pub image_bytes: u64,
    /// Reason for which the latest prepared memory could not be kept, so that each instance is prepared.
    pub prepared_anew: Option<String>,
    /// One entry for each function of the kind.
    pub functions: Vec<FunctionStats>,
    /// Counters that the plugin keeps itself (`host.count`).
    pub custom: Vec<(String, u64)>,
    /// Its latest breakdowns, the last one first.
    pub breakdowns: Vec<Breakdown>,
}

/// A call that ended by a breakdown of the plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breakdown {
    /// All that is known of it.
    pub error: PluginError,
    /// Time of the breakdown.
    pub at: SystemTime,
}

/// Counters of one function.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionStats {
    /// Its name, such as `chat-template.render`.
    pub function: &'static str,
    /// Calls that ended, well or badly.
    pub calls: u64,
    /// Calls that were given up by the host's caller before they ended.
    pub cancelled: u64,
    /// Failed calls by [`Fault::label`]; only those above zero.
    pub faults: Vec<(&'static str, u64)>,
    /// Time in all calls.
    pub seconds_sum: f64,
    /// Calls that took at most so many seconds, rising and cumulative; [`FunctionStats::calls`]
    /// stands for infinity.
    pub seconds_buckets: Vec<(f64, u64)>,
    /// Durations of calls in nanoseconds, evenly chosen if there were very many; empty unless
    /// [`HostConfig::timings`](crate::HostConfig::timings) asked for them.
    pub timings: Vec<u64>,
}

/// The functions of each kind that are counted.
fn functions_of(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::ChatTemplate => &["lifecycle.prepare", "chat-template.render"],
        Kind::OutputParser => &[
            "lifecycle.prepare",
            "output-parser.describe",
            "output-parser.constraint",
            "output-parser.open",
            "output-parser.feed",
            "output-parser.close",
            "resource-drop",
        ],
        Kind::Grammar => &[
            "lifecycle.prepare",
            "grammar.compile",
            "grammar.mask",
            "grammar.advance",
            "grammar.probe",
            "grammar.rollback",
            "grammar.fork",
            "resource-drop",
        ],
        Kind::Policy => &[
            "lifecycle.prepare",
            "policy.identify",
            "policy.authorize",
            "policy.account",
        ],
        Kind::Tool => &["lifecycle.prepare", "tool.describe", "tool.call"],
        Kind::Guardrail => &[
            "lifecycle.prepare",
            "guardrail.describe",
            "guardrail.check-input",
            "guardrail.open",
            "guardrail.feed",
            "guardrail.close",
            "resource-drop",
        ],
        Kind::Retriever => &[
            "lifecycle.prepare",
            "retriever.describe",
            "retriever.chunk",
            "retriever.rewrite",
            "retriever.assemble",
        ],
    }
}

#[derive(Default)]
struct FunctionCounters {
    calls: AtomicU64,
    cancelled: AtomicU64,
    faults: [AtomicU64; Fault::LABELS.len()],
    nanoseconds: AtomicU64,
    buckets: [AtomicU64; DURATION_BUCKETS.len()],
    timings: Option<Mutex<Timings>>,
}

/// Durations of calls: of each call at first, and of every second, fourth and so on where they become many.
struct Timings {
    nanoseconds: Vec<u64>,
    /// Calls for each that is kept.
    every: u64,
    /// Calls since one was kept.
    passed: u64,
}

impl Timings {
    fn new() -> Self {
        Self {
            nanoseconds: Vec::new(),
            every: 1,
            passed: 0,
        }
    }

    fn note(&mut self, nanoseconds: u64) {
        self.passed += 1;
        if self.passed < self.every {
            return;
        }
        if self.nanoseconds.len() >= MAX_TIMINGS {
            // The last one is kept, so that this call is half of the way to the next.
            let kept = self.nanoseconds.iter().skip(1).step_by(2).copied();
            self.nanoseconds = kept.collect();
            self.every = self.every.saturating_mul(2);
            return;
        }
        self.passed = 0;
        self.nanoseconds.push(nanoseconds);
    }
}

/// Counters of one plugin in one kind, shared by all its bindings.
pub(crate) struct PluginCounters {
    functions: Vec<(&'static str, FunctionCounters)>,
    pub(crate) live: AtomicU64,
    pub(crate) created: AtomicU64,
    pub(crate) suspended: AtomicU64,
    pub(crate) suspensions: AtomicU64,
    pub(crate) memory_peak: AtomicU64,
    pub(crate) image_bytes: AtomicU64,
    prepared_anew: Mutex<Option<String>>,
    custom: Mutex<BTreeMap<String, u64>>,
    breakdowns: Mutex<VecDeque<Breakdown>>,
}

impl PluginCounters {
    pub(crate) fn new(kind: Kind, timings: bool) -> Self {
        let functions = functions_of(kind).iter();
        let function = || FunctionCounters {
            timings: timings.then(|| Mutex::new(Timings::new())),
            ..FunctionCounters::default()
        };
        Self {
            functions: functions.map(|name| (*name, function())).collect(),
            live: AtomicU64::new(0),
            created: AtomicU64::new(0),
            suspended: AtomicU64::new(0),
            suspensions: AtomicU64::new(0),
            memory_peak: AtomicU64::new(0),
            image_bytes: AtomicU64::new(0),
            prepared_anew: Mutex::default(),
            custom: Mutex::new(BTreeMap::new()),
            breakdowns: Mutex::default(),
        }
    }

    /// Note a call that ended.
    pub(crate) fn ended(&self, function: &str, took: Duration, fault: Option<&Fault>) {
        let Some(counters) = self.function(function) else {
            return;
        };
        counters.calls.fetch_add(1, Relaxed);
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        counters.nanoseconds.fetch_add(nanoseconds, Relaxed);
        if let Some(timings) = &counters.timings {
            let mut timings = timings.lock().unwrap_or_else(PoisonError::into_inner);
            timings.note(nanoseconds);
        }
        let seconds = took.as_secs_f64();
        if let Some(index) = DURATION_BUCKETS.iter().position(|bound| seconds <= *bound) {
            counters.buckets[index].fetch_add(1, Relaxed);
        }
        if let Some(fault) = fault {
            counters.faults[fault.index()].fetch_add(1, Relaxed);
        }
    }

    /// Count a fault of a call that has been counted without it.
    pub(crate) fn fault(&self, function: &str, fault: &Fault) {
        if let Some(counters) = self.function(function) {
            counters.faults[fault.index()].fetch_add(1, Relaxed);
        }
    }

    /// Keep what is known of a breakdown, for the operator.
    pub(crate) fn note_breakdown(&self, error: &PluginError) {
        let breakdown = Breakdown {
            error: error.clone(),
            at: SystemTime::now(),
        };
        let mut kept = self.lock_breakdowns();
        kept.truncate(MAX_BREAKDOWNS - 1);
        kept.push_front(breakdown);
    }

    fn lock_breakdowns(&self) -> MutexGuard<'_, VecDeque<Breakdown>> {
        let kept = self.breakdowns.lock();
        kept.unwrap_or_else(PoisonError::into_inner)
    }

    /// Note whether the latest prepared memory could be kept, or why it could not.
    pub(crate) fn note_prepared_anew(&self, reason: Option<String>) {
        *self.lock_prepared_anew() = reason;
    }

    fn lock_prepared_anew(&self) -> MutexGuard<'_, Option<String>> {
        let reason = self.prepared_anew.lock();
        reason.unwrap_or_else(PoisonError::into_inner)
    }

    /// Note a call whose future was dropped.
    pub(crate) fn cancelled(&self, function: &str) {
        if let Some(counters) = self.function(function) {
            counters.cancelled.fetch_add(1, Relaxed);
        }
    }

    /// Add to a counter of the plugin's own.
    pub(crate) fn count(&self, name: &str, by: u64) {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        let well_named =
            !name.is_empty() && name.len() <= MAX_COUNTER_NAME_BYTES && name.bytes().all(plain);
        let mut custom = self.custom.lock().unwrap_or_else(PoisonError::into_inner);
        let room = custom.contains_key(name)
            || custom.keys().filter(|key| *key != OTHER_COUNTER).count() < MAX_COUNTER_NAMES;
        let name = if well_named && room {
            name
        } else {
            OTHER_COUNTER
        };
        let value = custom.entry(name.to_owned()).or_default();
        *value = value.saturating_add(by);
    }

    fn function(&self, name: &str) -> Option<&FunctionCounters> {
        let mut functions = self.functions.iter();
        functions
            .find(|(known, _)| *known == name)
            .map(|(_, counters)| counters)
    }

    fn snapshot(&self, plugin: &str, version: &str, kind: Kind) -> PluginStats {
        let custom = self.custom.lock().unwrap_or_else(PoisonError::into_inner);
        PluginStats {
            plugin: plugin.to_owned(),
            version: version.to_owned(),
            kind,
            live_instances: self.live.load(Relaxed),
            created_instances: self.created.load(Relaxed),
            suspended_bindings: self.suspended.load(Relaxed),
            suspensions: self.suspensions.load(Relaxed),
            memory_peak_bytes: self.memory_peak.load(Relaxed),
            image_bytes: self.image_bytes.load(Relaxed),
            prepared_anew: self.lock_prepared_anew().clone(),
            functions: self
                .functions
                .iter()
                .map(|(name, counters)| counters.snapshot(name))
                .collect(),
            custom: custom
                .iter()
                .map(|(name, value)| (name.clone(), *value))
                .collect(),
            breakdowns: self.lock_breakdowns().iter().cloned().collect(),
        }
    }
}

impl FunctionCounters {
    fn snapshot(&self, function: &'static str) -> FunctionStats {
        let mut below = 0;
        let buckets = DURATION_BUCKETS
            .iter()
            .zip(&self.buckets)
            .map(|(bound, count)| {
                below += count.load(Relaxed);
                (*bound, below)
            });
        let faults = Fault::LABELS.iter().zip(&self.faults);
        let faults = faults.map(|(label, count)| (*label, count.load(Relaxed)));
        let timings = self.timings.as_ref().map(|timings| {
            let timings = timings.lock().unwrap_or_else(PoisonError::into_inner);
            timings.nanoseconds.clone()
        });
        FunctionStats {
            function,
            timings: timings.unwrap_or_default(),
            seconds_buckets: buckets.collect(),
            calls: self.calls.load(Relaxed),
            cancelled: self.cancelled.load(Relaxed),
            faults: faults.filter(|(_, count)| *count > 0).collect(),
            seconds_sum: Duration::from_nanos(self.nanoseconds.load(Relaxed)).as_secs_f64(),
        }
    }
}

/// Name and kind of a plugin. The version is no part of it: the numbers of a plugin go on when
/// another version takes its place, and a thousand versions make no thousand series.
type Key = (String, Kind);

/// All counters of a host.
#[derive(Default)]
pub(crate) struct CounterRegistry {
    plugins: Mutex<BTreeMap<Key, Entry>>,
    /// Counters keep what each call took.
    timings: bool,
}

struct Entry {
    /// The version that was bound last.
    version: String,
    counters: Arc<PluginCounters>,
}

impl CounterRegistry {
    pub(crate) fn new(timings: bool) -> Self {
        Self {
            timings,
            ..Self::default()
        }
    }

    /// The counters of a plugin in one kind; the same ones for every binding and version of it.
    pub(crate) fn counters(&self, plugin: &str, version: &str, kind: Kind) -> Arc<PluginCounters> {
        let key = (plugin.to_owned(), kind);
        let mut plugins = self.plugins.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = plugins.entry(key).or_insert_with(|| Entry {
            version: String::new(),
            counters: Arc::new(PluginCounters::new(kind, self.timings)),
        });
        version.clone_into(&mut entry.version);
        Arc::clone(&entry.counters)
    }

    pub(crate) fn snapshot(&self) -> Vec<PluginStats> {
        let plugins = self.plugins.lock().unwrap_or_else(PoisonError::into_inner);
        let all = plugins.iter();
        all.map(|((name, kind), entry)| entry.counters.snapshot(name, &entry.version, *kind))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_sorted_into_cumulative_buckets() {
        let counters = PluginCounters::new(Kind::Policy, false);
        counters.ended("policy.authorize", Duration::from_micros(50), None);
        counters.ended(
            "policy.authorize",
            Duration::from_millis(3),
            Some(&Fault::Stack),
        );
        counters.ended("policy.authorize", Duration::from_secs(60), None);
        let stats = counters.snapshot("p", "1", Kind::Policy);
        let authorize = stats
            .functions
            .iter()
            .find(|f| f.function == "policy.authorize")
            .unwrap();
        assert_eq!(authorize.calls, 3);
        assert_eq!(authorize.faults, [("stack", 1)]);
        let below = |bound: f64| {
            let mut buckets = authorize.seconds_buckets.iter();
            buckets.find(|(b, _)| *b == bound).map(|(_, count)| *count)
        };
        assert_eq!(below(0.000_01), Some(0));
        assert_eq!(below(0.000_1), Some(1));
        assert_eq!(below(10.0), Some(2));
    }

    #[test]
    fn timings_are_thinned_out_evenly() {
        let mut timings = Timings::new();
        let calls = 3 * MAX_TIMINGS as u64;
        for call in 0..calls {
            timings.note(call);
        }
        let kept = &timings.nanoseconds;
        assert!(kept.len() <= MAX_TIMINGS && kept.len() >= MAX_TIMINGS / 2);
        let apart: Vec<u64> = kept.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(
            apart.iter().all(|gap| *gap == timings.every),
            "{:?}",
            &apart[..9]
        );
    }

    #[test]
    fn the_latest_breakdowns_are_kept_with_the_last_one_first() {
        let counters = PluginCounters::new(Kind::Policy, false);
        for number in 0..MAX_BREAKDOWNS + 3 {
            counters.note_breakdown(&PluginError {
                plugin: "p".into(),
                version: "1".into(),
                kind: Kind::Policy,
                function: "policy.authorize",
                request_id: number.to_string().into(),
                fault: Fault::Stack,
                printed: Box::default(),
            });
        }
        let kept = counters.snapshot("p", "1", Kind::Policy).breakdowns;
        let ids: Vec<&str> = kept.iter().map(|kept| &*kept.error.request_id).collect();
        assert_eq!(ids, ["10", "9", "8", "7", "6", "5", "4", "3"]);
    }

    #[test]
    fn names_beyond_the_limit_are_counted_together() {
        let counters = PluginCounters::new(Kind::Policy, false);
        for index in 0..20 {
            counters.count(&format!("name-{index}"), 2);
        }
        counters.count("bad name\n", 1);
        counters.count("name-3", u64::MAX);
        let stats = counters.snapshot("p", "1", Kind::Policy);
        assert_eq!(stats.custom.len(), MAX_COUNTER_NAMES + 1);
        let value = |name: &str| {
            stats
                .custom
                .iter()
                .find(|(n, _)| n == name)
                .map(|(_, v)| *v)
        };
        assert_eq!(value("other"), Some(9));
        assert_eq!(value("name-3"), Some(u64::MAX));
    }
}
