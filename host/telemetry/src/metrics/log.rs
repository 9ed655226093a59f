//! Lost log lines, for Prometheus.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

use crate::logging;

/// Log lines that did not reach standard error, asked when the page is read.
#[derive(Debug)]
pub(super) struct LostLines;

impl Collector for LostLines {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (dropped, errors) = logging::losses().map_or((0, 0), |losses| {
            (losses.dropped_lines(), losses.write_errors())
        });
        for (name, help, count) in [
            (
                "log_lines_dropped",
                "Log lines dropped since nobody read them in time or writing them failed",
                dropped,
            ),
            ("log_write_errors", "Writes to the log that failed", errors),
        ] {
            let counter = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(count).encode(counter)?;
        }
        Ok(())
    }
}
