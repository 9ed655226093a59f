//! `GET /api/v1/llm/models` and `GET /api/v1/llm/models/{id}`.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use http::{Request as HttpRequest, StatusCode};
use mortise_http::{Context, Problem, append_headers, json_response};
use mortise_service::{ModelState, ModelStatus};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::operator::ModelFileFacts;
use super::{Llm, MODEL, MODELS};
use crate::call::{call_of, record_admitted};
use crate::problem::problem_of;

pub(super) const MIB: u64 = 1 << 20;

/// `GET /api/v1/llm/models`
pub(super) async fn list(
    State(llm): State<Arc<Llm>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let (parts, _) = request.into_parts();
    let service = &llm.api.service;
    let call = call_of(&context, MODELS, "GET", &parts.headers);
    let admission = service.authorize(&call, None).await;
    let admission = admission.map_err(problem_of)?;
    let operator = llm.operator.knows_key(&parts.headers) == Some(true);
    let mut rows = Vec::new();
    for model in service.permitted(&call).await {
        if let Some(status) = llm.operator.status(&model.listing.name) {
            let facts = llm.operator.facts(&status).await;
            rows.push(row(&status, &facts, operator));
        }
    }
    let mut response = json_response(StatusCode::OK, &json!({"models": rows}));
    append_headers(response.headers_mut(), &admission.allowance().headers);
    Ok(response)
}

/// `GET /api/v1/llm/models/{id}`
pub(super) async fn retrieve(
    State(llm): State<Arc<Llm>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let (parts, _) = request.into_parts();
    let service = &llm.api.service;
    context.record.asked(&id, false);
    let call = call_of(&context, MODEL, "GET", &parts.headers);
    let admission = service.authorize(&call, Some(&id)).await;
    let admission = admission.map_err(problem_of)?;
    let model = service.model_for(&call, &id).await.map_err(problem_of)?;
    record_admitted(&context, &model.listing.name, &admission);
    let gone = || mortise_service::LifecycleError::Unknown(model.listing.name.clone());
    let status = llm.operator.status(&model.listing.name);
    let status = status.ok_or_else(|| problem_of(gone().into()))?;
    let facts = llm.operator.facts(&status).await;
    let operator = llm.operator.knows_key(&parts.headers) == Some(true);
    let mut response = json_response(StatusCode::OK, &detail(&status, &facts, operator));
    append_headers(response.headers_mut(), &admission.allowance().headers);
    Ok(response)
}

/// The state's name in the dialect.
pub(super) fn state_name(state: ModelState) -> &'static str {
    match state {
        ModelState::Unloaded => "available",
        other => other.name(),
    }
}

/// Row of a model in the list. Paths of files are for operators.
fn row(status: &ModelStatus, facts: &ModelFileFacts, operator: bool) -> Value {
    let mut row = json!({
        "model_id": status.listing.name,
        "status": state_name(status.state),
        "size_bytes": facts.size_bytes,
        "format": facts.format,
        "n_layers": facts.shape.as_ref().map(|shape| shape.layers),
        "usage_count": status.uses,
    });
    if let Some(path) = facts.path.as_ref().filter(|_| operator) {
        row["path"] = json!(path);
    }
    if let Some(at) = status.loaded_at_ms {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(at);
        row["loaded_timestamp"] = json!(timestamp(at));
    }
    if let Some(idle) = status.idle.filter(|_| status.uses > 0)
        && let Some(at) = SystemTime::now().checked_sub(idle)
    {
        row["last_used"] = json!(timestamp(at));
    }
    row
}

/// All that is known of a model.
fn detail(status: &ModelStatus, facts: &ModelFileFacts, operator: bool) -> Value {
    let mut row = row(status, facts, operator);
    let shape = facts.shape.as_ref();
    let loaded = status.loaded.as_ref();
    let context = loaded.and_then(|model| model.context_length());
    let memory = status.loaded.as_ref().map_or(0, |_| status.memory_bytes);
    for (name, value) in [
        // No file says which version of a model it is.
        ("version", Value::Null),
        (
            "architecture",
            json!(shape.map(|shape| &shape.architecture)),
        ),
        ("n_heads", json!(shape.map(|shape| shape.heads))),
        ("n_embd", json!(shape.map(|shape| shape.width))),
        ("n_vocab", json!(shape.map(|shape| shape.vocabulary))),
        (
            "context_length",
            json!(context.or(shape.map(|shape| shape.context))),
        ),
        ("memory_usage_mb", json!(memory / MIB)),
        ("gpu_layers", json!(facts.gpu_layers)),
        ("pinned", json!(status.pinned)),
    ] {
        row[name] = value;
    }
    row
}

/// A time as RFC 3339 has it, in whole seconds.
pub(super) fn timestamp(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time);
    // Only years beyond 9999 cannot be written.
    let whole = time.replace_nanosecond(0).unwrap_or(time);
    whole.format(&Rfc3339).unwrap_or_default()
}
