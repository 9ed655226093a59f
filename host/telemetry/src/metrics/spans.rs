//! Spans that were sent to a collector and those that were not, for Prometheus.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

use mortise_trace::SpanCounts;

/// Source of the numbers, asked when the page is read.
pub(super) struct Spans(pub(super) Box<dyn Fn() -> SpanCounts + Send + Sync>);

impl fmt::Debug for Spans {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Spans")
    }
}

impl Collector for Spans {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counts = (self.0)();
        let help = "Spans that the collector of traces took";
        let counter =
            encoder.encode_descriptor("trace_spans_exported", help, None, MetricType::Counter)?;
        ConstCounter::new(counts.exported).encode(counter)?;
        let help = "Spans that no collector of traces got, by reason";
        let mut family =
            encoder.encode_descriptor("trace_spans_dropped", help, None, MetricType::Counter)?;
        for (reason, count) in [("queue_full", counts.dropped), ("not_taken", counts.failed)] {
            ConstCounter::new(count).encode(family.encode_family(&[("reason", reason)])?)?;
        }
        Ok(())
    }
}
