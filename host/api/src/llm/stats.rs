//! `GET /api/v1/llm/stats`: figures of the server, from the sources of `/metrics`.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use http::Request as HttpRequest;
use mortise_http::{Context, Problem};
use mortise_service::ModelStatus;
use serde_json::{Value, json};

use super::models::MIB;
use super::shown::shown;
use super::workers::{Worker, workers_of};
use super::{Llm, STATS};

/// `GET /api/v1/llm/stats`
pub(super) async fn stats(
    State(llm): State<Arc<Llm>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    shown(&llm, &context, STATS, request, body).await
}

fn body(llm: &Llm) -> Value {
    let figures = llm.api.http.observer.figures();
    let statuses = llm.operator.statuses();
    let (active, queued) = busy(&statuses);
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    let latency = figures.latency.unwrap_or_default();
    json!({
        "uptime_seconds": figures.uptime.as_secs(),
        "total_requests": figures.requests,
        "successful_requests": figures.requests - figures.failed,
        "failed_requests": figures.failed,
        "active_requests": active,
        "queued_requests": queued,
        "throughput": {
            "requests_per_second": figures.requests_per_second,
            "tokens_per_second": figures.tokens_per_second,
        },
        "latency": {
            "p50_ms": milliseconds(latency.p50),
            "p95_ms": milliseconds(latency.p95),
            "p99_ms": milliseconds(latency.p99),
            "avg_ms": milliseconds(latency.mean),
        },
        "models": models(&statuses),
        "loras": adapters(&statuses),
        "workers": workers(&workers_of(&statuses)),
        // The load of a GPU is its driver's to tell.
        "gpu": {"utilization": null, "memory_used_mb": null, "memory_total_mb": null},
    })
}

/// Requests that use a model, and those that wait for one.
pub(super) fn busy(statuses: &[ModelStatus]) -> (usize, usize) {
    statuses.iter().fold((0, 0), |(active, queued), status| {
        let waiting = status
            .loaded
            .as_ref()
            .map_or(0, |model| model.load().waiting);
        let running = status.in_flight.saturating_sub(waiting);
        (active + running, queued + waiting)
    })
}

fn adapters(statuses: &[ModelStatus]) -> Value {
    let all: Vec<_> = statuses.iter().flat_map(ModelStatus::adapters).collect();
    let loaded = all.iter().filter_map(|adapter| adapter.loaded.as_ref());
    let bytes: u64 = loaded.clone().map(|adapter| adapter.bytes()).sum();
    json!({
        "loaded": loaded.count(),
        "total_available": all.len(),
        "memory_used_mb": bytes / (1 << 20),
    })
}

fn models(statuses: &[ModelStatus]) -> Value {
    let loaded = statuses.iter().filter(|status| status.loaded.is_some());
    let bytes: u64 = loaded.clone().map(|status| status.memory_bytes).sum();
    json!({
        "loaded": loaded.count(),
        "total_available": statuses.len(),
        "memory_used_mb": bytes / MIB,
    })
}

fn workers(workers: &[Worker]) -> Value {
    let busy = workers.iter().filter(|worker| worker.is_busy()).count();
    let part = match workers.len() {
        0 => 0.0,
        all => busy as f64 / all as f64,
    };
    json!({
        "total": workers.len(),
        "busy": busy,
        "idle": workers.len() - busy,
        "utilization": part,
    })
}
