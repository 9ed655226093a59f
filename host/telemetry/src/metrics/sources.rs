//! Sources of numbers that a server may have or not, added when it starts.

use mortise_trace::SpanCounts;

use super::Metrics;
use super::alias_numbers::{AliasFigures, AliasSource};
use super::shared_counters::{SharedCounters, Sharing};
use super::spans::Spans;
use super::spend::Charged;

impl Metrics {
    /// Add the numbers of aliases that are switched.
    #[must_use]
    pub fn with_aliases(mut self, numbers: AliasSource) -> Self {
        let figures = Box::new(AliasFigures(numbers));
        self.registry.register_collector(figures);
        self
    }

    /// Show the state of the server through which hosts share their counters, if there is one.
    #[must_use]
    pub fn sharing(
        mut self,
        source: Option<impl Fn() -> SharedCounters + Send + Sync + 'static>,
    ) -> Self {
        if let Some(source) = source {
            let sharing = Box::new(Sharing(Box::new(source)));
            self.registry.register_collector(sharing);
        }
        self
    }

    /// Show what requests were charged, in millionths of a currency, by model.
    #[must_use]
    pub fn charging(
        mut self,
        currency: String,
        source: impl Fn() -> Vec<(String, u64)> + Send + Sync + 'static,
    ) -> Self {
        let source = Box::new(source);
        let charged = Box::new(Charged { currency, source });
        self.registry.register_collector(charged);
        self
    }

    /// Show series under the names of OpenTelemetry's conventions, too, if so configured.
    #[must_use]
    pub fn with_gen_ai(self, gen_ai: bool) -> Self {
        Self { gen_ai, ..self }
    }

    /// Show what became of spans, too.
    #[must_use]
    pub fn with_spans(mut self, counts: impl Fn() -> SpanCounts + Send + Sync + 'static) -> Self {
        let spans = Box::new(Spans(Box::new(counts)));
        self.registry.register_collector(spans);
        self
    }
}
