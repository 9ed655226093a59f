//! Answers of a collector.

use std::time::Duration;

use bytes::Bytes;

/// Outcome of a request.
pub(crate) enum TracedOutcome {
    /// The spans were taken; the body says more.
    Taken(Bytes),
    /// Not now; the text says why.
    Later(String, Option<Duration>),
    /// Not these; the text says why.
    Refused(String),
}
