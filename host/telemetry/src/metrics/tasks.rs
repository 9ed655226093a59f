//! Restarts of background tasks, for Prometheus.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

/// Tasks that ended although they must go on, asked when the page is read.
#[derive(Debug)]
pub(super) struct Restarts(pub(super) fn() -> Vec<(&'static str, u64)>);

impl Collector for Restarts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Background tasks started again after they ended or panicked";
        let mut family =
            encoder.encode_descriptor("task_restarts", help, None, MetricType::Counter)?;
        for (task, count) in (self.0)() {
            ConstCounter::new(count).encode(family.encode_family(&[("task", task)])?)?;
        }
        Ok(())
    }
}
