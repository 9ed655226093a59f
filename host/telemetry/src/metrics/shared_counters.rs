//! Server through which hosts share their counters, for Prometheus.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// State of the server through which hosts share their counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SharedCounters {
    /// The server answers.
    pub up: bool,
    /// Times that the server was lost.
    pub lost: u64,
    /// Decisions on limits without the server.
    pub without: u64,
}

/// Source of the state, asked when the page is read.
pub(super) struct Sharing(pub(super) Box<dyn Fn() -> SharedCounters + Send + Sync>);

impl fmt::Debug for Sharing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Sharing")
    }
}

impl Collector for Sharing {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let now = (self.0)();
        let help = "1 while the server with the counters that hosts share answers";
        let gauge =
            encoder.encode_descriptor("shared_counters_up", help, None, MetricType::Gauge)?;
        ConstGauge::new(i64::from(now.up)).encode(gauge)?;
        for (name, help, count) in [
            (
                "shared_counters_lost",
                "Times that the server with the counters that hosts share was lost",
                now.lost,
            ),
            (
                "shared_counters_decisions_without",
                "Decisions on limits without the server with the counters that hosts share",
                now.without,
            ),
        ] {
            let counter = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(count).encode(counter)?;
        }
        Ok(())
    }
}
