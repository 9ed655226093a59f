//! The page of metrics.

use std::time::Duration;

use mortise_models::lifecycle::{MemorySource, ModelState};
use mortise_models::{Listing, Model, ModelConfig};

use super::*;

pub(super) fn access(route: &'static str) -> EndedRequest<'static> {
    EndedRequest {
        id: "req_1",
        method: "POST",
        route,
        status: 403,
        peer: "127.0.0.1",
        model: None,
        known_model: false,
        stream: false,
        max_tokens: None,
        principal: None,
        tenant: None,
        account: None,
        labels: None,
        user: None,
        answer: None,
        elapsed: Duration::ZERO,
        finish: None,
        error: None,
        trace_id: None,
        sampled: false,
    }
}

/// A loaded model whose runtime does nothing.
fn loaded(name: &str) -> ModelStatus {
    let config = ModelConfig {
        name: name.to_owned(),
        ..ModelConfig::of_path(None)
    };
    ModelStatus {
        listing: Arc::new(Listing::of(&config)),
        config: Arc::new(config),
        state: ModelState::Loaded,
        last_error: None,
        progress: None,
        overrides: None,
        loaded: Some(Arc::new(Model {
            name: name.to_owned(),
            architecture: String::new(),
            generator: None,
            embedder: None,
            reranker: None,
            loaded_at: std::time::Instant::now(),
        })),
        pinned: false,
        in_flight: 3,
        uses: 7,
        memory_bytes: 11,
        memory_source: MemorySource::ModelArtifactSize,
        loaded_at_ms: None,
        load_time: None,
        idle: None,
    }
}

fn outcome(route: &'static str, error: &str) -> String {
    let metrics = Metrics::new(
        || vec![loaded("m")],
        Vec::new,
        PluginSwaps::default,
        Vec::new,
    );
    metrics.request_began();
    metrics.request_ended(&EndedRequest {
        status: 429,
        model: Some("m"),
        known_model: true,
        error: Some(error),
        elapsed: Duration::from_millis(20),
        ..access(route)
    });
    metrics.page()
}

#[test]
fn the_page_is_in_the_classic_format() {
    let page = outcome("/v1/chat/completions", "queue_full");
    for line in [
        "# TYPE mortise_requests_total counter",
        "mortise_requests_total{route=\"/v1/chat/completions\",model=\"m\",status=\"429\"} 1",
        "mortise_errors_total{code=\"queue_full\"} 1",
        "mortise_rate_limit_dropped_total 1",
        "mortise_requests_in_flight 0",
        "mortise_queue_depth{model=\"m\"} 0",
        "mortise_model_state{model=\"m\",state=\"loaded\"} 1",
        "mortise_model_state{model=\"m\",state=\"failed\"} 0",
        "mortise_model_memory_bytes{model=\"m\"} 11",
        "mortise_model_requests{model=\"m\"} 3",
        "mortise_model_uses_total{model=\"m\"} 7",
        "# TYPE mortise_build_info gauge",
    ] {
        assert!(
            page.lines().any(|found| found == line),
            "{line} is not in\n{page}"
        );
    }
    assert!(!page.contains("EOF"));
    let mut declared: Vec<_> = page.lines().filter(|l| l.starts_with("# TYPE")).collect();
    let all = declared.len();
    declared.dedup();
    assert_eq!(declared.len(), all, "a family is declared twice");
}

#[test]
fn made_up_error_codes_do_not_make_series() {
    let metrics = Metrics::new(Vec::new, Vec::new, PluginSwaps::default, Vec::new);
    for code in 0..1000 {
        metrics.request_began();
        metrics.request_ended(&EndedRequest {
            error: Some(&format!("code-{code}")),
            ..access("other")
        });
    }
    let series = metrics
        .page()
        .lines()
        .filter(|l| l.starts_with("mortise_errors"))
        .count();
    assert_eq!(series, MAX_ERROR_CODES + 1);
}
