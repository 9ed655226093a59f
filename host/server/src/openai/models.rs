//! `GET /v1/models` and `GET /v1/models/{id}`.

use std::sync::Arc;

use axum::extract::{Extension, Path, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use mortise_models::Entry;
use mortise_service::ServedModel;
use serde_json::{Value, json};

use super::{MODEL, MODELS};
use crate::http::error::{ApiError, append_headers, json_response};
use crate::http::{Context, Front};

/// All models, each with its aliases.
pub(crate) async fn list(
    State(front): State<Arc<Front>>,
    Extension(context): Extension<Context>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let call = context.call(MODELS, "GET", &headers);
    let admission = front.service.authorize(&call, None).await?;
    let models: Vec<Value> = front
        .service
        .models()
        .iter()
        .map(|model| model_body(model))
        .collect();
    let mut response = json_response(StatusCode::OK, &json!({"object": "list", "data": models}));
    append_headers(response.headers_mut(), &admission.allowance().headers);
    Ok(response)
}

/// One model, by any name that a request could use.
pub(crate) async fn retrieve(
    State(front): State<Arc<Front>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    context.notes.asked(&id, false);
    let call = context.call(MODEL, "GET", &headers);
    let admission = front.service.authorize(&call, Some(&id)).await?;
    let model = front.service.model(&id)?;
    context.notes.answers(&model.name);
    let mut response = json_response(StatusCode::OK, &model_body(&model));
    append_headers(response.headers_mut(), &admission.allowance().headers);
    Ok(response)
}

fn model_body(model: &Entry<ServedModel>) -> Value {
    json!({
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": model.owned_by,
        "aliases": model.aliases,
        "max_model_len": model.value.backend.context_length(),
    })
}
