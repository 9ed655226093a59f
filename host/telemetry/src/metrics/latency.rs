//! Latency and tokens of each model, as the service measures them.

use std::sync::Arc;
use std::time::Duration;

use mortise_service::{GuardedPart, ModelObserver, Summary, ToolRun};
use mortise_trace::Span;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::exemplars::{TracedHistogram, observe};
use super::gen_ai::{AnswerFamilies, AnswerSeries};
use super::guardrails::Guardrails;
use super::recent::RecentWindow;
use super::tools::ToolMetrics;
use super::{ModelLabel, traced};

/// Seconds, from a token of a small model to a stalled stream.
const TOKEN_GAPS: [f64; 16] = [
    0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0,
];

fn gaps() -> Histogram {
    Histogram::new(TOKEN_GAPS)
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    model: String,
    reason: &'static str,
}

/// Series of all models.
pub(super) struct ModelFamilies {
    queue_time: Family<ModelLabel, TracedHistogram>,
    first_token: Family<ModelLabel, TracedHistogram>,
    inter_token: Family<ModelLabel, Histogram>,
    per_token: Family<ModelLabel, TracedHistogram>,
    input: Family<ModelLabel, Counter>,
    cached: Family<ModelLabel, Counter>,
    output: Family<ModelLabel, Counter>,
    refusals: Family<RefusalLabels, Counter>,
    tools: ToolMetrics,
    guardrails: Guardrails,
    recent: Arc<RecentWindow>,
    answers: AnswerFamilies,
}

impl ModelFamilies {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let families = Self {
            queue_time: Family::new_with_constructor(traced),
            first_token: Family::new_with_constructor(traced),
            inter_token: Family::new_with_constructor(gaps),
            per_token: Family::new_with_constructor(traced),
            input: Family::default(),
            cached: Family::default(),
            output: Family::default(),
            refusals: Family::default(),
            tools: ToolMetrics::new(registry),
            guardrails: Guardrails::new(registry),
            recent: Arc::default(),
            answers: AnswerFamilies::new(registry),
        };
        let mut histogram = |name: &str, help: &str, family: &Family<_, _>| {
            registry.register(name, help, Family::clone(family));
        };
        histogram(
            "queue_time_seconds",
            "Time that requests wait in the queue for their first step",
            &families.queue_time,
        );
        histogram(
            "time_to_first_token_seconds",
            "Time from a request's arrival to its first token",
            &families.first_token,
        );
        histogram(
            "latency_per_token_seconds",
            "Mean time between the tokens of an answer after the first; see inter_token_latency_seconds",
            &families.per_token,
        );
        registry.register(
            "inter_token_latency_seconds",
            "Time between two tokens of a choice",
            families.inter_token.clone(),
        );
        let mut counter = |name: &str, help: &str, family: &Family<ModelLabel, Counter>| {
            registry.register(name, help, family.clone());
        };
        counter("tokens_input", "Tokens of prompts", &families.input);
        counter(
            "tokens_cached",
            "Tokens of prompts found in a cache",
            &families.cached,
        );
        counter("tokens_output", "Tokens generated", &families.output);
        registry.register(
            "refusals",
            "Requests that were refused or failed before their answer began, by reason",
            families.refusals.clone(),
        );
        families
    }

    /// Figures of late, over all models.
    pub(super) fn recent(&self) -> &RecentWindow {
        &self.recent
    }

    /// Listener for the requests of a model.
    pub(super) fn of(&self, name: &str) -> Arc<dyn ModelObserver> {
        let label = ModelLabel {
            model: name.to_owned(),
        };
        Arc::new(ModelSeries {
            queue_time: self.queue_time.get_or_create_owned(&label),
            first_token: self.first_token.get_or_create_owned(&label),
            inter_token: self.inter_token.get_or_create_owned(&label),
            per_token: self.per_token.get_or_create_owned(&label),
            input: self.input.get_or_create_owned(&label),
            cached: self.cached.get_or_create_owned(&label),
            output: self.output.get_or_create_owned(&label),
            tools: self.tools.clone(),
            guardrails: self.guardrails.clone(),
            recent: Arc::clone(&self.recent),
            answers: self.answers.of(name),
        })
    }

    /// Count a refusal. `reason` is one of a fixed set.
    pub(super) fn refused(&self, model: Option<&str>, reason: &'static str) {
        let labels = RefusalLabels {
            model: model.unwrap_or("other").to_owned(),
            reason,
        };
        self.refusals.get_or_create(&labels).inc();
    }
}

/// Series of one model. A measurement costs an observation of a histogram, and no lookup.
struct ModelSeries {
    queue_time: TracedHistogram,
    first_token: TracedHistogram,
    inter_token: Histogram,
    per_token: TracedHistogram,
    input: Counter,
    cached: Counter,
    output: Counter,
    tools: ToolMetrics,
    guardrails: Guardrails,
    recent: Arc<RecentWindow>,
    answers: AnswerSeries,
}

impl ModelObserver for ModelSeries {
    fn admitted(&self, queued: Duration, span: &Span) {
        observe(&self.queue_time, queued, span);
    }

    fn first_token(&self, after: Duration, span: &Span) {
        observe(&self.first_token, after, span);
        self.recent.first_token(after);
    }

    fn next_token(&self, gap: Duration) {
        self.inter_token.observe(gap.as_secs_f64());
        self.recent.next_token();
    }

    fn tool_ran(&self, run: &ToolRun<'_>) {
        self.tools.ran(run);
    }

    fn refused_by(&self, guardrail: &str, part: GuardedPart) {
        self.guardrails.refused(guardrail, part);
    }

    fn ended(&self, summary: &Summary<'_>) {
        let usage = summary.usage;
        self.input.inc_by(u64::from(usage.prompt_tokens));
        self.cached.inc_by(u64::from(usage.cached_tokens));
        self.output.inc_by(u64::from(usage.completion_tokens));
        self.answers.ended(usage, summary.elapsed, summary.span);
        if let (Some(first), 2..) = (summary.first_token, usage.completion_tokens) {
            let rest = summary.elapsed.saturating_sub(first);
            observe(
                &self.per_token,
                rest / (usage.completion_tokens - 1),
                summary.span,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use mortise_service::{FinishReason, Outcome, Usage};

    use super::*;

    #[test]
    fn every_gap_between_tokens_is_counted_where_it_belongs() {
        let mut registry = Registry::with_prefix("mortise");
        let families = ModelFamilies::new(&mut registry);
        let model = families.of("m");
        let milliseconds = Duration::from_millis;
        let span = Span::default();
        model.admitted(milliseconds(3), &span);
        model.first_token(milliseconds(40), &span);
        for gap in [2, 2, 2, 400] {
            model.next_token(milliseconds(gap));
        }
        model.ended(&Summary {
            request_id: "r",
            model: "m",
            replayed: false,
            outcome: Outcome::Finished(FinishReason::Stop),
            usage: Usage {
                prompt_tokens: 7,
                cached_tokens: 1,
                completion_tokens: 5,
                reasoning_tokens: 0,
            },
            queued: Some(milliseconds(3)),
            first_token: Some(milliseconds(40)),
            elapsed: milliseconds(446),
            span: &span,
        });
        families.refused(None, "denied");
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).expect("text");
        for line in [
            "mortise_queue_time_seconds_bucket{le=\"0.005\",model=\"m\"} 1",
            "mortise_time_to_first_token_seconds_bucket{le=\"0.05\",model=\"m\"} 1",
            "mortise_inter_token_latency_seconds_bucket{le=\"0.0025\",model=\"m\"} 3",
            "mortise_inter_token_latency_seconds_bucket{le=\"0.25\",model=\"m\"} 3",
            "mortise_inter_token_latency_seconds_bucket{le=\"0.5\",model=\"m\"} 4",
            // The mean hides the stall.
            "mortise_latency_per_token_seconds_bucket{le=\"0.25\",model=\"m\"} 1",
            "mortise_tokens_input_total{model=\"m\"} 7",
            "mortise_tokens_cached_total{model=\"m\"} 1",
            "mortise_tokens_output_total{model=\"m\"} 5",
            "mortise_refusals_total{model=\"other\",reason=\"denied\"} 1",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }
}
