//! States of models: which are loaded, what they take, who uses them.

use std::fmt;
use std::sync::Arc;

use mortise_models::lifecycle::{ModelState, ModelStatus};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Tells the state of each model.
pub(super) type StatusSource = Arc<dyn Fn() -> Vec<ModelStatus> + Send + Sync>;

/// Collector of the states, read with the page.
pub(super) struct ModelStates(StatusSource);

impl ModelStates {
    pub(super) fn new(models: StatusSource) -> Self {
        Self(models)
    }
}

impl fmt::Debug for ModelStates {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ModelStates")
    }
}

type Field = fn(&ModelStatus) -> u64;

const GAUGES: [(&str, &str, Field); 2] = [
    (
        "model_memory_bytes",
        "Memory that a loaded model takes, as observed during its load or by the size of its files",
        |model| match model.loaded {
            Some(_) => model.memory_bytes,
            None => 0,
        },
    ),
    (
        "model_requests",
        "Requests that use a model or wait until it is loaded",
        |model| model.in_flight as u64,
    ),
];

impl Collector for ModelStates {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let models = (self.0)();
        let help = "1 for the state that a model is in";
        let mut family = encoder.encode_descriptor("model_state", help, None, MetricType::Gauge)?;
        for model in &models {
            for state in ModelState::ALL {
                let labels = [
                    ("model", model.listing.name.as_str()),
                    ("state", state.name()),
                ];
                ConstGauge::new(i64::from(model.state == state))
                    .encode(family.encode_family(&labels)?)?;
            }
        }
        for (name, help, field) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for model in &models {
                let value = i64::try_from(field(model)).unwrap_or(i64::MAX);
                let labels = [("model", model.listing.name.as_str())];
                ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Requests that a model has taken";
        let mut family =
            encoder.encode_descriptor("model_uses", help, None, MetricType::Counter)?;
        for model in &models {
            let labels = [("model", model.listing.name.as_str())];
            ConstCounter::new(model.uses).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
