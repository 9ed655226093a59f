//! `GET /{model}/health`, `/{model}/props` and `/{model}/slots`: a model as a llama-server of its own tells of itself.
//! A model that is not loaded is loaded first, where requests may.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use mortise_http::{Context, Problem, append_headers, json_response};
use mortise_service::{ServedModel, ServiceError};
use serde_json::{Value, json};

use super::props::{props_body, slots_body};
use crate::call::{call_of, record_admitted};
use crate::problem::problem_of;
use crate::receive::wait_limits;
use crate::state::ApiState;

type Name = Result<Path<String>, PathRejection>;

/// `GET /{model}/health`
pub(super) async fn health(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    name: Name,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let route = super::MODEL_HEALTH;
    answer(&state, &context, (route, headers), name, |_| {
        Ok(json!({"status": "ok"}))
    })
    .await
}

/// `GET /{model}/props`
pub(super) async fn props(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    name: Name,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let route = super::MODEL_PROPS;
    answer(&state, &context, (route, headers), name, props_body).await
}

/// `GET /{model}/slots`
pub(super) async fn slots(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    name: Name,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let route = super::MODEL_SLOTS;
    answer(&state, &context, (route, headers), name, slots_body).await
}

async fn answer(
    state: &ApiState,
    context: &Context,
    (route, headers): (&'static str, HeaderMap),
    name: Name,
    body: fn(&ServedModel) -> Result<Value, Problem>,
) -> Result<Response, Problem> {
    let limits = wait_limits(state, context, &headers)?;
    let call = call_of(context, route, "GET", &headers);
    let Ok(Path(name)) = name else {
        state.service.identify(&call).await.map_err(problem_of)?;
        return Err(unavailable("its name is not UTF-8"));
    };
    context.record.asked(&name, false);
    let loading = async {
        let loaded = state.service.load(&call, &name).await;
        loaded.map_err(|error| match error {
            ServiceError::ModelNotFound { .. } => unavailable("no model has this name"),
            error => problem_of(error),
        })
    };
    let (name, admission) = limits.bound(loading).await?;
    record_admitted(context, &name, &admission);
    let model = state.service.model(&name).map_err(problem_of)?;
    let mut response = json_response(StatusCode::OK, &body(&model)?);
    append_headers(response.headers_mut(), &admission.allowance().headers);
    Ok(response)
}

fn unavailable(reason: &str) -> Problem {
    let message = format!("model unavailable: {reason}");
    Problem::new(StatusCode::NOT_FOUND, "model_unavailable", message)
}
