//! Traces of a server: their exporter, from the start to the last span.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use mortise_supervise::supervise;
use mortise_telemetry::Metrics;
use mortise_trace::{Exporter, TraceConfig};

/// The exporter of traces, where there is a collector.
#[derive(Clone)]
pub(crate) struct Traces(Option<Arc<Exporter>>);

impl Traces {
    /// Record traces from now on, and send them for as long as the server runs.
    pub(crate) fn start(config: Option<&TraceConfig>) -> anyhow::Result<Self> {
        let Some(config) = config else {
            return Ok(Self(None));
        };
        let exporter = Exporter::start(config).context("traces cannot be exported")?;
        let exporter = Arc::new(exporter);
        let running = Arc::clone(&exporter);
        supervise("traces", move || {
            let exporter = Arc::clone(&running);
            async move { exporter.run().await }
        });
        tracing::info!(endpoint = config.endpoint, "traces go to a collector");
        Ok(Self(Some(exporter)))
    }

    /// Numbers of spans on the page of metrics.
    pub(crate) fn measured(&self, metrics: Metrics) -> Metrics {
        match self.0.clone() {
            Some(exporter) => metrics.with_spans(move || exporter.counts()),
            None => metrics,
        }
    }

    /// Send the last spans, for as long as `limit`.
    pub(crate) async fn flush(&self, limit: Duration) {
        if let Some(exporter) = &self.0 {
            exporter.flush(limit).await;
        }
    }
}
