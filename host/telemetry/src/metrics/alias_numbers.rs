//! Numbers of aliases that are switched, by the model that was chosen: what decides about a canary.

use std::fmt;

use mortise_models::AliasSums;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

/// Numbers of all aliases, as they are now.
pub type AliasSource = Box<dyn Fn() -> Vec<AliasSums> + Send + Sync>;

/// Collector of the numbers, read with the page.
pub(super) struct AliasFigures(pub(super) AliasSource);

impl fmt::Debug for AliasFigures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("AliasFigures")
    }
}

/// A family: its name, its help, and its value.
type Figure = (&'static str, &'static str, fn(&AliasSums) -> f64);

const FIGURES: [Figure; 5] = [
    (
        "alias_requests",
        "Requests that an alias sent to a model and that have ended",
        |sums| sums.requests as f64,
    ),
    ("alias_errors", "Those of them that failed", |sums| {
        sums.errors as f64
    }),
    (
        "alias_latency_seconds",
        "Time from their arrival to their end, together",
        |sums| sums.elapsed.as_secs_f64(),
    ),
    (
        "alias_first_tokens",
        "Those of them that came to a first token",
        |sums| sums.first_tokens as f64,
    ),
    (
        "alias_first_token_seconds",
        "Time from the arrival of those to the first token, together",
        |sums| sums.first_token.as_secs_f64(),
    ),
];

impl Collector for AliasFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all = (self.0)();
        for (name, help, value) in FIGURES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for sums in &all {
                let labels = [
                    ("alias", sums.alias.as_str()),
                    ("model", sums.model.as_str()),
                ];
                let encoder = family.encode_family(&labels)?;
                ConstCounter::new(value(sums)).encode(encoder)?;
            }
        }
        Ok(())
    }
}
