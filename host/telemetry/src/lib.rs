//! Telemetry: metrics for Prometheus, the access log and the log.

mod access_log;
mod content_log;
mod logging;
mod metrics;
mod redact;

pub use content_log::{ContentLogConfig, RedactedContent};
pub use logging::{LogFormat, LogLevel, flush_log, log_restarts, print_last, start_logging};
pub use metrics::{AliasSource, FirstTokens, Metrics, PluginSwaps, SharedCounters};
