//! Tokens and durations of answers, and series under the names of OpenTelemetry's conventions for generative AI, as
//! exporters to Prometheus write them.

use std::fmt::Write as _;
use std::time::Duration;

use mortise_service::Usage;
use mortise_trace::Span;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::ModelLabel;
use super::aliases::family_of;
use super::exemplars::{TracedHistogram, observe, traced_histogram};

/// Bounds that the conventions give for tokens.
const TOKENS: [f64; 11] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
];

/// Bounds that the conventions give for the time of a request, in seconds.
const SECONDS: [f64; 14] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    model: String,
    r#type: &'static str,
}

/// Families of answers.
pub(super) struct AnswerFamilies {
    tokens: Family<TokenLabels, Histogram>,
    duration: Family<ModelLabel, TracedHistogram>,
}

/// Series of the answers of one model.
pub(super) struct AnswerSeries {
    input: Histogram,
    output: Histogram,
    duration: TracedHistogram,
}

impl AnswerFamilies {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let families = Self {
            tokens: Family::new_with_constructor(|| Histogram::new(TOKENS)),
            duration: Family::new_with_constructor(|| traced_histogram(SECONDS)),
        };
        registry.register(
            "answer_tokens",
            "Tokens of each answer, by type: those of its prompt (input) and those generated (output)",
            families.tokens.clone(),
        );
        registry.register(
            "answer_duration_seconds",
            "Time from a request's arrival to the end of its answer",
            families.duration.clone(),
        );
        families
    }

    pub(super) fn of(&self, name: &str) -> AnswerSeries {
        let tokens = |r#type| {
            let model = name.to_owned();
            let labels = TokenLabels { model, r#type };
            self.tokens.get_or_create_owned(&labels)
        };
        AnswerSeries {
            input: tokens("input"),
            output: tokens("output"),
            duration: self.duration.get_or_create_owned(&ModelLabel {
                model: name.to_owned(),
            }),
        }
    }
}

impl AnswerSeries {
    pub(super) fn ended(&self, usage: Usage, elapsed: Duration, span: &Span) {
        self.input.observe(f64::from(usage.prompt_tokens));
        // Embeddings generate none.
        if usage.completion_tokens > 0 {
            self.output.observe(f64::from(usage.completion_tokens));
        }
        observe(&self.duration, elapsed, span);
    }
}

/// Our families with the names of the conventions for what they measure.
const NAMES: [(&str, &str); 4] = [
    ("mortise_answer_tokens", "gen_ai_client_token_usage"),
    (
        "mortise_answer_duration_seconds",
        "gen_ai_server_request_duration_seconds",
    ),
    (
        "mortise_time_to_first_token_seconds",
        "gen_ai_server_time_to_first_token_seconds",
    ),
    (
        "mortise_latency_per_token_seconds",
        "gen_ai_server_time_per_output_token_seconds",
    ),
];

/// Add the series under those names to a page in Prometheus' text format. Each has the very samples of ours.
pub(super) fn add(mut page: String) -> String {
    let mut added = String::new();
    for (ours, theirs) in NAMES {
        let of_family = |line: &&str| family_of(line) == Some(ours);
        for line in page.lines().filter(of_family) {
            let line = line.replacen(ours, theirs, 1);
            let line = match line.starts_with('#') {
                true => line,
                false => line
                    .replacen(
                        "model=\"",
                        "gen_ai_provider_name=\"mortise\",gen_ai_request_model=\"",
                        1,
                    )
                    .replacen("type=\"", "gen_ai_token_type=\"", 1),
            };
            let _ = writeln!(added, "{line}");
        }
    }
    page.push_str(&added);
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_told_again_by_the_conventions() {
        let mut registry = Registry::with_prefix("mortise");
        let families = AnswerFamilies::new(&mut registry);
        let usage = Usage {
            prompt_tokens: 5,
            cached_tokens: 0,
            completion_tokens: 17,
            reasoning_tokens: 0,
        };
        let answers = families.of("a");
        answers.ended(usage, Duration::from_millis(30), &Span::default());
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).expect("text");
        let page = add(page);
        let labels = "gen_ai_provider_name=\"mortise\",gen_ai_request_model=\"a\"";
        for line in [
            format!(
                "gen_ai_client_token_usage_bucket{{le=\"16.0\",{labels},gen_ai_token_type=\"input\"}} 1"
            ),
            format!(
                "gen_ai_client_token_usage_bucket{{le=\"16.0\",{labels},gen_ai_token_type=\"output\"}} 0"
            ),
            format!("gen_ai_client_token_usage_sum{{{labels},gen_ai_token_type=\"output\"}} 17.0"),
            format!("gen_ai_server_request_duration_seconds_bucket{{le=\"0.04\",{labels}}} 1"),
            "# TYPE gen_ai_server_request_duration_seconds histogram".to_owned(),
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }
}
