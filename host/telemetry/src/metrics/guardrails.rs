//! Refusals of guardrails.

use mortise_service::GuardedPart;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Guardrails are known by the names of their plugins.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    guardrail: String,
    refused: &'static str,
}

/// Counters of each guardrail.
#[derive(Clone, Default)]
pub(super) struct Guardrails(Family<Labels, Counter>);

impl Guardrails {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let guardrails = Self::default();
        registry.register(
            "guardrail_refusals",
            "Requests and choices that a guardrail refused",
            guardrails.0.clone(),
        );
        guardrails
    }

    pub(super) fn refused(&self, guardrail: &str, part: GuardedPart) {
        let labels = Labels {
            guardrail: guardrail.to_owned(),
            refused: part.name(),
        };
        self.0.get_or_create(&labels).inc();
    }
}
