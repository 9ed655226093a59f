//! Money that requests cost, for Prometheus.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

/// Source of the millionths that were charged, by model, asked when the page is read; and the currency.
pub(super) struct Charged {
    pub(super) currency: String,
    pub(super) source: Box<dyn Fn() -> Vec<(String, u64)> + Send + Sync>,
}

impl fmt::Debug for Charged {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Charged")
    }
}

impl Collector for Charged {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Millionths of the currency that requests were charged";
        let mut family =
            encoder.encode_descriptor("spend_micros", help, None, MetricType::Counter)?;
        for (model, micros) in (self.source)() {
            let labels = [("model", model.as_str()), ("currency", &self.currency)];
            ConstCounter::new(micros).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
