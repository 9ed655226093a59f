//! Log lines on standard error, as text or JSON.

use serde::Deserialize;
use tracing::level_filters::LevelFilter;

/// Format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The least important line that is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Requests that failed because of us.
    Error,
    /// Failures that the server recovered from.
    Warn,
    /// Start, stop and one line for each request.
    #[default]
    Info,
    /// Connections and calls.
    Debug,
    /// Everything.
    Trace,
}

/// Begin to log. Called once, before anything that logs.
pub fn start_logging(format: LogFormat, level: LogLevel) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => builder.with_ansi(false).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    // A panic ends one request, not the process; it belongs in the log like any other defect.
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string);
        tracing::error!(message = %info.payload_as_str().unwrap_or("no message"), place, "panic");
    }));
}
