//! Store data of one instance: its grants, the bounds on its memory, and the call in progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mortise_aot::PreparedState;
use wasmtime::ResourceLimiter;
use wasmtime::component::Instance;

use crate::cpu_share::FaultHistory;
use crate::engine::EPOCH;
use crate::headers::CredentialHandle;
use crate::limits::MAX_LOG_BYTES_PER_CALL;
use crate::log_rate::LogRate;
use crate::quotas_rest::QuotasRest;
use crate::stats::PluginCounters;
use crate::{
    Component, HeaderGrant, Kind, Limits, ModelDescription, Outbound, Profile, RateCounters,
    Secret, Vocabulary,
};

/// Elements of all tables of an instance: function pointers, a few thousand in large plugins.
const MAX_TABLE_ELEMENTS: usize = 20_000;

/// Cost of a log line beside its text, so that empty lines are bounded too.
const LOG_LINE_BYTES: usize = 64;

/// Cost of a field of a log line beside its text: the signs around it.
const LOG_FIELD_BYTES: usize = 2;

/// Bytes of what a guest last wrote to its standard error that are kept for a trap's message.
const LAST_WORDS_BYTES: usize = 1024;

/// Bytes of what a guest last printed and logged in a call that are kept with its breakdown.
pub(crate) const MAX_PRINTED_BYTES: usize = 8 << 10;

/// The end of a text that grows.
#[derive(Default)]
pub(crate) struct Tail<const MAX: usize>(String);

impl<const MAX: usize> Tail<MAX> {
    /// Add a text, and let go of the beginning if it is too much.
    pub(crate) fn push(&mut self, text: &str) {
        let text = &text[text.ceil_char_boundary(text.len().saturating_sub(MAX))..];
        let excess = (self.0.len() + text.len()).saturating_sub(MAX);
        let cut = self.0.ceil_char_boundary(excess);
        self.0.drain(..cut);
        self.0.push_str(text);
    }

    /// Add a text that begins a line.
    pub(crate) fn push_line(&mut self, text: &str) {
        if !self.0.is_empty() && !self.0.ends_with('\n') {
            self.push("\n");
        }
        self.push(text);
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Grants of a binding, shared by its instances.
pub(crate) struct Grants {
    pub(crate) component: Arc<Component>,
    pub(crate) kind: Kind,
    pub(crate) counters: Arc<PluginCounters>,
    /// Faults of the plugin's own: they lower the share of all its long calls.
    pub(crate) fault_history: FaultHistory,
    /// Instances that a call lost, whoever was to blame: they lower the share of the next such loss.
    pub(crate) lost_instances: FaultHistory,
    pub(crate) log_rate: LogRate,
    /// The log says that headers of the policy are left out.
    pub(crate) told_of_headers: AtomicBool,
    /// A policy that broke down in telling limits is not asked for them for a while.
    pub(crate) quotas_rest: QuotasRest,
    /// A prompt of the template was looked at for the tools that it should show.
    pub(crate) looked_for_tools: AtomicBool,
    /// Prompts of the template that were looked at for control tokens in plain segments.
    pub(crate) prompts_looked_at: AtomicU32,
    pub(crate) settings: String,
    /// Settings of the inner plugin, of a component that is composed of two.
    pub(crate) inner_settings: String,
    pub(crate) model: Option<Arc<ModelDescription>>,
    pub(crate) vocabulary: Option<Arc<Vocabulary>>,
    pub(crate) secrets: Vec<Secret>,
    pub(crate) headers: HeaderGrant,
    pub(crate) rewrites: Vec<String>,
    /// The log says that the policy gets handles in place of credentials.
    pub(crate) told_of_handles: AtomicBool,
    pub(crate) ledger: Arc<dyn RateCounters>,
    pub(crate) http: Outbound,
    /// Time at which the clock is frozen, if it is.
    pub(crate) now_ms: Option<u64>,
    pub(crate) limits: Limits,
    /// Profile that samples of the guest go to.
    pub(crate) profile: Option<Arc<Profile>>,
}

/// The data of a store.
pub(crate) struct StoreData {
    pub(crate) grants: Arc<Grants>,
    pub(crate) memory: MemoryUse,
    pub(crate) call: CallState,
    pub(crate) mask: MaskRow,
    /// The instance, once it is there.
    pub(crate) instance: Option<Instance>,
    /// State that the instance hands over, while it does.
    pub(crate) kept: Option<PreparedState>,
    /// Other instances are to begin with what this one is prepared to: it may do nothing that another would do
    /// for itself.
    pub(crate) is_pattern: bool,
    /// State of the generator behind `wasi:random`.
    pub(crate) random: u64,
}

impl StoreData {
    pub(crate) fn new(grants: Arc<Grants>) -> Self {
        // The same for all instances of a plugin: what a guest computes must not depend on which
        // instance serves it.
        let seed = u64::from_str_radix(&grants.component.digest()[..16], 16).unwrap_or(0);
        let words = grants.vocabulary.as_ref().map_or(0, |v| v.mask_words());
        Self {
            memory: MemoryUse::new(grants.limits.memory_bytes),
            call: CallState::idle(),
            mask: MaskRow {
                words: vec![
                    0;
                    if grants.kind == Kind::Grammar {
                        words
                    } else {
                        0
                    }
                ],
                slot: None,
                written: false,
            },
            instance: None,
            kept: None,
            is_pattern: false,
            random: seed,
            grants,
        }
    }

    /// Milliseconds since 1970, as the guest is told them.
    pub(crate) fn unix_millis(&self) -> u64 {
        self.grants.now_ms.unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
        })
    }

    /// The next number for `wasi:random` (SplitMix64).
    pub(crate) fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Whether the call may write another line. Asked before its text is read, since a flood is not worth
    /// that.
    pub(crate) fn takes_line(&mut self) -> bool {
        let takes = self.call.log_bytes_left >= LOG_LINE_BYTES;
        self.call.log_lines_dropped += u64::from(!takes);
        takes
    }

    /// Write a line to the server's log, within the budgets of the call and of the plugin. After the
    /// first that does not fit, the call writes none.
    pub(crate) fn log(
        &mut self,
        level: tracing::Level,
        message: &str,
        fields: &[(String, String)],
    ) {
        self.call.printed.push_line(message);
        for (name, value) in fields {
            let said = format!(" {name}={value}");
            self.call.printed.push(&said);
        }
        self.call.printed.push("\n");
        self.write_line(level, message, fields);
    }

    fn write_line(&mut self, level: tracing::Level, message: &str, fields: &[(String, String)]) {
        let text_bytes: usize = fields
            .iter()
            .map(|(name, value)| name.len() + value.len() + LOG_FIELD_BYTES)
            .sum();
        if LOG_LINE_BYTES + message.len() + text_bytes > self.call.log_bytes_left {
            return self.drop_line();
        }
        let message = escape(message);
        let mut details = String::new();
        for (name, value) in fields {
            details.push_str(if details.is_empty() { "" } else { " " });
            details.push_str(&escape(name));
            details.push('=');
            details.push_str(&escape(value));
        }
        // Escaped, a text may be six times as long: what is written is what counts.
        let written = LOG_LINE_BYTES + message.len() + details.len();
        if !self.grants.log_rate.admits(written) {
            return self.drop_line();
        }
        self.call.log_bytes_left = self.call.log_bytes_left.saturating_sub(written);
        let request = &*self.call.request_id;
        let (plugin, version) = (
            self.grants.component.name(),
            self.grants.component.version(),
        );
        let kind = self.grants.kind.as_str();
        macro_rules! line {
            ($level:ident) => {
                tracing::event!(target: "mortise::plugin", tracing::Level::$level, plugin, version,
                    kind, request, details, "{message}")
            };
        }
        match level {
            tracing::Level::TRACE => line!(TRACE),
            tracing::Level::DEBUG => line!(DEBUG),
            tracing::Level::INFO => line!(INFO),
            tracing::Level::WARN => line!(WARN),
            tracing::Level::ERROR => line!(ERROR),
        }
    }

    fn drop_line(&mut self) {
        self.call.log_bytes_left = 0;
        self.call.log_lines_dropped += 1;
    }

    /// Log text that the guest wrote to standard output or error.
    pub(crate) fn print(&mut self, level: tracing::Level, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        if level == tracing::Level::WARN {
            self.call.last_words.push(&text);
        }
        self.call.printed.push(&text);
        for line in text.lines().filter(|line| !line.is_empty()) {
            if self.takes_line() {
                self.write_line(level, line, &[]);
            }
        }
    }
}

/// Control characters would let a guest forge lines or drive a terminal.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// The call in progress.
pub(crate) struct CallState {
    /// The function of the plugin that was called.
    pub(crate) function: &'static str,
    pub(crate) request_id: Arc<str>,
    /// Epochs in which the guest ran so far.
    pub(crate) epochs: u64,
    /// The deadline, in epochs.
    pub(crate) epochs_max: u64,
    /// Time at which the guest resumes, or resumed, after its last interruption.
    pub(crate) resumes_at: Instant,
    /// Latest end of the call, however little of the time the guest had a processor.
    pub(crate) latest_end: Instant,
    /// The deadline passed while the guest was running.
    pub(crate) expired: bool,
    pub(crate) log_bytes_left: usize,
    pub(crate) log_lines_dropped: u64,
    /// The ledger answers and stays as it is.
    pub(crate) takes_nothing: bool,
    /// HTTP requests are not sent.
    pub(crate) sends_nothing: bool,
    /// Handles of credentials that the call was given. Those of other calls mean nothing to it, or whoever read one
    /// in a log could send it.
    pub(crate) handles: Vec<CredentialHandle>,
    /// A withdrawal was not decided, since the counters cannot be reached.
    pub(crate) counters_lost: bool,
    /// HTTP requests so far.
    pub(crate) http_requests: u32,
    /// The end of what was written to standard error.
    pub(crate) last_words: Tail<LAST_WORDS_BYTES>,
    /// The end of all that was printed and logged.
    pub(crate) printed: Tail<MAX_PRINTED_BYTES>,
}

impl CallState {
    fn idle() -> Self {
        Self::new("", Arc::from(""), Duration::ZERO, Duration::ZERO)
    }

    pub(crate) fn new(
        function: &'static str,
        request_id: Arc<str>,
        deadline: Duration,
        patience: Duration,
    ) -> Self {
        let epochs_max = deadline.as_millis() / EPOCH.as_millis();
        let now = Instant::now();
        Self {
            function,
            request_id,
            epochs: 0,
            epochs_max: u64::try_from(epochs_max).unwrap_or(u64::MAX),
            resumes_at: now,
            latest_end: now + patience,
            expired: false,
            log_bytes_left: MAX_LOG_BYTES_PER_CALL,
            log_lines_dropped: 0,
            takes_nothing: false,
            sends_nothing: false,
            handles: Vec::new(),
            counters_lost: false,
            http_requests: 0,
            last_words: Tail::default(),
            printed: Tail::default(),
        }
    }
}

/// Row that the guest's masks are written to. Empty for kinds that have none.
pub(crate) struct MaskRow {
    pub(crate) words: Vec<u32>,
    /// The slot that the call in progress was given.
    pub(crate) slot: Option<u32>,
    /// A mask came during this call.
    pub(crate) written: bool,
}

/// Memory of an instance, over all its linear memories.
pub(crate) struct MemoryUse {
    limit: usize,
    pub(crate) used: usize,
    /// The guest asked for more than it may have.
    pub(crate) denied: bool,
}

impl MemoryUse {
    /// None used of so many bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            used: 0,
            denied: false,
        }
    }
}

impl ResourceLimiter for MemoryUse {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let total = self.used.saturating_add(desired.saturating_sub(current));
        let fits = total <= self.limit && maximum.is_none_or(|maximum| desired <= maximum);
        self.denied |= !fits;
        if !fits {
            // An error traps. A mere refusal would surface as a panic of the guest's allocator.
            return Err(wasmtime::Error::msg("memory limit reached"));
        }
        self.used = total;
        Ok(true)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        self.denied = true;
        Err(error)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let limit = maximum.map_or(MAX_TABLE_ELEMENTS, |maximum| {
            maximum.min(MAX_TABLE_ELEMENTS)
        });
        self.denied |= desired > limit;
        if desired > limit {
            return Err(wasmtime::Error::msg("table limit reached"));
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_cannot_reach_the_log() {
        assert_eq!(escape("a\nb\u{1b}[31m\u{85}é"), "a\\nb\\u{1b}[31m\\u{85}é");
    }

    #[test]
    fn memories_are_counted_together() {
        let mut memory = MemoryUse {
            limit: 100,
            used: 0,
            denied: false,
        };
        assert!(memory.memory_growing(0, 60, None).is_ok());
        assert!(memory.memory_growing(0, 40, None).is_ok());
        assert!(!memory.denied);
        assert!(memory.memory_growing(60, 61, None).is_err());
        assert!(memory.denied);
        assert_eq!(memory.used, 100);
    }
}
