//! Queue of spans that have ended: bounded, and never waited for by a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use tokio::sync::mpsc::Sender;

/// Numbers of spans since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// Taken by the collector.
    pub exported: u64,
    /// Dropped since the queue was full.
    pub dropped: u64,
    /// Given up since the collector did not take them.
    pub failed: u64,
}

/// See [`SpanCounts`]. The numbers are independent of one another: no order is needed.
#[derive(Debug, Default)]
pub(crate) struct SpanCounters {
    pub(crate) exported: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) failed: AtomicU64,
}

impl SpanCounters {
    pub(crate) fn now(&self) -> SpanCounts {
        SpanCounts {
            exported: self.exported.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
            failed: self.failed.load(Relaxed),
        }
    }
}

/// Way of a span that has ended into the queue.
#[derive(Debug)]
pub(crate) struct Enqueue {
    pub(crate) sender: Sender<SpanData>,
    pub(crate) counters: Arc<SpanCounters>,
}

impl SpanProcessor for Enqueue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.sender.try_send(span).is_err() {
            self.counters.dropped.fetch_add(1, Relaxed);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}
