//! Log lines on standard error, as text or JSON. Lines pass through a bounded queue to a thread of their
//! own: neither a reader that stalls nor one that goes away holds up or fails a request.

mod line;
mod queue;

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::Deserialize;
use tracing::level_filters::LevelFilter;

use self::line::line;
pub(crate) use self::queue::LogLosses;
use self::queue::{LineQueue, LineWriter};

/// Time for the last lines to be written when the process ends.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

/// Pause after a panic of the thread that writes.
const RESTART_PAUSE: Duration = Duration::from_millis(100);

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

static QUEUE: OnceLock<Arc<LineQueue>> = OnceLock::new();
static RESTARTS: AtomicU64 = AtomicU64::new(0);

/// Begin to log. Called once, before anything that logs. `fault` is called by the thread that writes, before
/// each turn; only fault injection has a use for it.
///
/// # Errors
/// When standard error cannot be had, or the thread that writes does not start.
pub fn start_logging(format: LogFormat, level: LogLevel, fault: Option<fn()>) -> io::Result<()> {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let queue = Arc::clone(QUEUE.get_or_init(Arc::default));
    // A handle of its own: whoever else writes to standard error would wait for the lock of a stalled write.
    let mut sink = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let lines = Arc::clone(&queue);
    std::thread::Builder::new()
        .name("mortise-log".to_owned())
        .spawn(move || {
            let notice = |dropped| dropped_notice(format, dropped);
            // The hook below has queued a line about the panic.
            while catch_unwind(AssertUnwindSafe(|| {
                lines.write_to(&mut sink, notice, fault)
            }))
            .is_err()
            {
                RESTARTS.fetch_add(1, Relaxed);
                std::thread::sleep(RESTART_PAUSE);
            }
        })?;
    let writer = LineWriter(Arc::clone(&queue));
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        // Would be printed to standard error, and so could block.
        .log_internal_errors(false)
        .with_writer(move || writer.clone());
    match format {
        LogFormat::Text => builder.with_ansi(false).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    // A panic ends one request, not the process; it belongs in the log like any other defect. The hook formats
    // the line itself: a panic within a hook aborts, and so must not be possible.
    std::panic::set_hook(Box::new(move |info| {
        queue.push(panic_line(format, info).as_bytes());
    }));
    Ok(())
}

/// Times that the thread which writes was started again after a panic.
pub fn log_restarts() -> u64 {
    RESTARTS.load(Relaxed)
}

/// Counts of lost lines, once logging has begun.
pub(crate) fn losses() -> Option<&'static LogLosses> {
    QUEUE.get().map(|queue| queue.losses())
}

/// Write what is queued, within [`FLUSH_LIMIT`].
pub fn flush_log() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(FLUSH_LIMIT);
    }
}

/// Print a line to standard error as the last act of the program, within [`FLUSH_LIMIT`], whether or not
/// somebody reads it.
pub fn print_last(text: String) {
    let (sender, done) = sync_channel(1);
    let printing = std::thread::Builder::new().spawn(move || {
        let _ = writeln!(io::stderr(), "{text}");
        let _ = sender.send(());
    });
    if printing.is_ok() {
        let _ = done.recv_timeout(FLUSH_LIMIT);
    }
}

fn panic_line(format: LogFormat, info: &PanicHookInfo<'_>) -> String {
    let message = info.payload_as_str().unwrap_or("no message");
    let place = match info.location() {
        Some(place) => format!("{}:{}:{}", place.file(), place.line(), place.column()),
        None => "unknown".to_owned(),
    };
    let message = format!("panic: {message}");
    line(format, "ERROR", &message, &[("place", &place)])
}

fn dropped_notice(format: LogFormat, dropped: u64) -> String {
    let lines = dropped.to_string();
    let message = "log lines were dropped, since they were not read or could not be written";
    line(format, "WARN", message, &[("lines", &lines)])
}
