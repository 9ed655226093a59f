//! Telemetry: metrics for Prometheus, the access log and the log.

mod access_log;
mod logging;
mod metrics;

pub use logging::{LogFormat, LogLevel, start_logging};
pub use metrics::{Metrics, PluginSwaps};
