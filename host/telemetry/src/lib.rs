//! Telemetry: metrics for Prometheus, the access log and the log.

mod access_log;
mod logging;
mod metrics;

pub use logging::{LogFormat, LogLevel, flush_log, log_restarts, print_last, start_logging};
pub use metrics::{AliasSource, FirstTokens, Metrics, PluginSwaps, SharedCounters};
