//! `GET /api/v1/llm/health`: whether requests to models can be answered.

use std::sync::Arc;
use std::time::SystemTime;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use http::{Request as HttpRequest, StatusCode};
use mortise_http::{Context, Problem, append_headers, json_response};
use mortise_service::{EngineLoad, ModelState};
use serde_json::json;

use super::models::timestamp;
use super::{HEALTH, Llm};
use crate::call::call_of;
use crate::problem::problem_of;

/// Sequences that wait for each that may run, from which on a queue is long.
const QUEUE_LONG: usize = 16;

/// `GET /api/v1/llm/health`
pub(super) async fn health(
    State(llm): State<Arc<Llm>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let (parts, _) = request.into_parts();
    let call = call_of(&context, HEALTH, "GET", &parts.headers);
    let admission = llm.api.service.authorize(&call, None).await;
    let admission = admission.map_err(problem_of)?;
    let statuses = llm.operator.statuses();
    let serving = statuses
        .iter()
        .filter(|status| status.state == ModelState::Loaded);
    let loads: Vec<EngineLoad> = serving
        .filter_map(|status| Some(status.loaded.as_ref()?.load()))
        .collect();
    let models = !loads.is_empty();
    let draining = *llm.api.http.draining.borrow();
    // Elsewhere another server has the queue.
    let short =
        |load: &EngineLoad| load.max_running == 0 || load.waiting < QUEUE_LONG * load.max_running;
    let queue = loads.iter().all(short);
    let healthy = models && queue && !draining;
    let body = json!({
        "status": if healthy { "healthy" } else { "unhealthy" },
        "timestamp": timestamp(SystemTime::now()),
        "checks": {
            "models_loaded": models,
            "workers_active": models && !draining,
            "gpu_available": llm.operator.has_gpu(),
            "queue_ok": queue,
        },
    });
    let status = match healthy {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let mut response = json_response(status, &body);
    append_headers(response.headers_mut(), &admission.allowance().headers);
    Ok(response)
}
