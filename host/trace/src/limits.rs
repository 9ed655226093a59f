//! Bounds of traces.

use std::time::Duration;

/// Attributes of a span.
pub const MAX_ATTRIBUTES: u32 = 48;
/// Characters of an attribute that a caller chose.
pub const MAX_VALUE_CHARS: usize = 128;
/// Bytes of a caller's `tracestate`; a longer one is left out, as the standard allows.
pub const MAX_TRACE_STATE_BYTES: usize = 512;
/// Spans of one request to the collector.
pub const MAX_BATCH_SPANS: usize = 512;
/// Longest time that a span waits for others to be sent with it.
pub const BATCH_WAIT: Duration = Duration::from_secs(1);
/// Attempts to send a batch.
pub const MAX_ATTEMPTS: u32 = 4;
/// Longest pause between two attempts, whatever the collector asks for.
pub const MAX_RETRY_PAUSE: Duration = Duration::from_secs(10);
/// Bytes of a collector's answer that are read.
pub const MAX_ANSWER_BYTES: usize = 64 * 1024;
