//! `GET /api/v1/llm/workers`: the engines that compute, one or more for each loaded model.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use http::Request as HttpRequest;
use mortise_http::{Context, Problem};
use mortise_service::ModelStatus;
use serde_json::{Value, json};

use super::shown::shown;
use super::{Llm, WORKERS};

/// One engine.
pub(super) struct Worker {
    model: String,
    running: usize,
    finished: u64,
    busy_ms: u64,
    /// Milliseconds since it was started.
    age_ms: u64,
}

impl Worker {
    pub(super) fn is_busy(&self) -> bool {
        self.running > 0
    }
}

/// Engines of all loaded models, in the order of the models.
pub(super) fn workers_of(statuses: &[ModelStatus]) -> Vec<Worker> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
    let mut workers = Vec::new();
    for status in statuses {
        let Some(model) = &status.loaded else {
            continue;
        };
        let loads = model.loads();
        let alone = loads.len() == 1;
        for load in loads {
            workers.push(Worker {
                model: status.listing.name.clone(),
                running: load.running,
                // An engine counts sequences, of which a request may have several.
                finished: if alone { status.uses } else { load.finished },
                busy_ms: load.busy_ms,
                age_ms: now.saturating_sub(status.loaded_at_ms.unwrap_or(now)),
            });
        }
    }
    workers
}

/// `GET /api/v1/llm/workers`
pub(super) async fn workers(
    State(llm): State<Arc<Llm>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    // Which requests others have is the operator's to know.
    let operator = llm.operator.knows_key(request.headers()) == Some(true);
    let body = |llm: &Llm| {
        let workers = workers_of(&llm.operator.statuses());
        let rows = workers.iter().enumerate();
        let rows = rows.map(|(id, worker)| {
            let current = llm.api.active.oldest(&worker.model);
            row(id, worker, current.filter(|_| operator).as_deref())
        });
        json!({"workers": rows.collect::<Vec<_>>()})
    };
    shown(&llm, &context, WORKERS, request, body).await
}

fn row(id: usize, worker: &Worker, current: Option<&str>) -> Value {
    let part = |of: u64| match of {
        0 => 0.0,
        of => worker.busy_ms as f64 / of as f64,
    };
    let mut row = json!({
        "worker_id": id,
        "model_id": worker.model,
        "status": if worker.is_busy() { "busy" } else { "idle" },
        "requests_processed": worker.finished,
        "total_processing_time_ms": worker.busy_ms,
        "avg_processing_time_ms": part(worker.finished),
        "utilization": part(worker.age_ms).min(1.0),
    });
    if let Some(request) = current.filter(|_| worker.is_busy()) {
        row["current_request_id"] = json!(request);
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feature_o3_a_busy_worker_names_its_request_and_an_idle_one_does_not() {
        let mut worker = Worker {
            model: "m".to_owned(),
            running: 2,
            finished: 4,
            busy_ms: 500,
            age_ms: 2000,
        };
        let busy = row(0, &worker, Some("req_a"));
        let expected = json!({
            "worker_id": 0, "model_id": "m", "status": "busy", "current_request_id": "req_a",
            "requests_processed": 4, "total_processing_time_ms": 500, "avg_processing_time_ms": 125.0,
            "utilization": 0.25,
        });
        assert_eq!(busy, expected);
        worker.running = 0;
        let idle = row(1, &worker, Some("req_a"));
        assert_eq!(idle["status"], "idle");
        assert!(idle.get("current_request_id").is_none());
        (worker.finished, worker.age_ms) = (0, 0);
        assert_eq!(row(1, &worker, None)["avg_processing_time_ms"], 0.0);
    }
}
