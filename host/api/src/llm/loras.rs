//! `GET /api/v1/llm/loras` and `…/{id}`, and for operators `POST /api/v1/llm/loras/load` and `…/unload`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use http::request::Parts;
use http::{Request as HttpRequest, StatusCode};
use mortise_http::{Context, Problem, append_headers, json_response};
use mortise_service::{
    AdapterConfig, AdapterError, AdapterRefusal, AdapterStatus, Admission, LifecycleError,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::loading::{object_of, problem};
use super::models::timestamp;
use super::{LORA, LORAS, Llm};
use crate::call::call_of;
use crate::fields::{FieldReader, RouteFields};
use crate::paging::QueryParameters;
use crate::problem::problem_of;
use crate::unsupported::Unsupported;

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct LoadFields {
    lora_id: String,
    base_model: String,
    path: Option<String>,
    scale: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct UnloadFields {
    lora_id: String,
    base_model: String,
}

/// The fields of a load, for the contract.
pub(super) fn fields() -> RouteFields {
    RouteFields::new(Unsupported::Refuse).with::<LoadFields>()
}

/// The fields of an unload, for the contract.
pub(super) fn unload_fields() -> RouteFields {
    RouteFields::new(Unsupported::Refuse).with::<UnloadFields>()
}

/// States of an adapter, as a list may be filtered by them.
const STATES: [&str; 4] = ["available", "loading", "loaded", "unloading"];

/// `GET /api/v1/llm/loras`
pub(super) async fn list(
    State(llm): State<Arc<Llm>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let (parts, _) = request.into_parts();
    let query = QueryParameters::of(&parts.uri, &["model", "status"])?;
    let state = query.get("status");
    if state.is_some_and(|state| !STATES.contains(&state)) {
        let message = format!("`status` may be {}", STATES.join(", "));
        return Err(Problem::invalid("status", message));
    }
    let (admission, mut known) = known(&llm, &context, LORAS, &parts, query.get("model")).await?;
    known.retain(|(_, adapter)| state.is_none_or(|state| adapter.state.name() == state));
    let operator = llm.operator.knows_key(&parts.headers) == Some(true);
    let rows: Vec<Value> = known
        .iter()
        .map(|(model, adapter)| row(model, adapter, operator))
        .collect();
    Ok(answered(&admission, &json!({"loras": rows})))
}

/// `GET /api/v1/llm/loras/{id}`
pub(super) async fn retrieve(
    State(llm): State<Arc<Llm>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let (parts, _) = request.into_parts();
    let query = QueryParameters::of(&parts.uri, &["base_model"])?;
    let base = query.get("base_model");
    let (admission, mut known) = known(&llm, &context, LORA, &parts, base).await?;
    known.retain(|(_, adapter)| adapter.config.name == id);
    let operator = llm.operator.knows_key(&parts.headers) == Some(true);
    match known.as_slice() {
        [(model, adapter)] => {
            let mut row = row(model, adapter, operator);
            let loaded = adapter.loaded.as_ref();
            row["target_modules"] = json!(loaded.map(|adapter| adapter.modules()));
            row["scale"] = json!(adapter.config.scale);
            row["slot"] = json!(adapter.slot);
            Ok(answered(&admission, &row))
        }
        [] => {
            let id: String = id.chars().take(64).collect();
            let message = format!("no loaded model has an adapter `{id}`");
            Err(Problem::new(
                StatusCode::NOT_FOUND,
                "lora_not_found",
                message,
            ))
        }
        several => {
            let models: Vec<&str> = several.iter().map(|(model, _)| model.as_str()).collect();
            let message = format!(
                "the models {} have an adapter `{id}`; say which with `base_model`",
                models.join(", ")
            );
            let problem = Problem::new(StatusCode::CONFLICT, "lora_ambiguous", message);
            Err(problem.at("base_model"))
        }
    }
}

/// `POST /api/v1/llm/loras/load`
pub(super) async fn load(
    State(llm): State<Arc<Llm>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let object = object_of(&llm, &context, request).await?;
    let mut reader = FieldReader::new(object, Unsupported::Refuse);
    let fields: LoadFields = reader.read()?;
    reader.finish(|_| false)?;
    let model = llm.operator.status(&fields.base_model);
    let known = model.and_then(|model| model.loaded?.adapters()?.status(&fields.lora_id));
    let known = known.map(|adapter| adapter.config);
    let (path, scale) = known.map_or((None, None), |known| (Some(known.path), Some(known.scale)));
    let Some(path) = fields.path.map(PathBuf::from).or(path) else {
        let message = "`path` is missing; it must name a folder or a GGUF file, since the adapter is not known";
        return Err(Problem::invalid("path", message));
    };
    let config = AdapterConfig {
        name: fields.lora_id,
        path,
        scale: fields
            .scale
            .map(|scale| scale as f32)
            .or(scale)
            .unwrap_or(1.0),
    };
    tracing::info!(
        model = fields.base_model,
        adapter = config.name,
        "an operator loads an adapter"
    );
    let loaded = llm.operator.load_adapter(&fields.base_model, config).await;
    let loaded = loaded.map_err(|error| refused(&llm, error))?;
    let body = json!({
        "lora_id": loaded.config.name,
        "base_model": fields.base_model,
        "status": loaded.state.name(),
        "load_time_ms": loaded.load_time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        "slot": loaded.slot,
    });
    Ok(json_response(StatusCode::OK, &body))
}

/// `POST /api/v1/llm/loras/unload`
pub(super) async fn unload(
    State(llm): State<Arc<Llm>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let object = object_of(&llm, &context, request).await?;
    let mut reader = FieldReader::new(object, Unsupported::Refuse);
    let fields: UnloadFields = reader.read()?;
    reader.finish(|_| false)?;
    let UnloadFields {
        lora_id,
        base_model,
    } = fields;
    tracing::info!(
        model = base_model,
        adapter = lora_id,
        "an operator unloads an adapter"
    );
    let slot = llm.operator.unload_adapter(&base_model, &lora_id).await;
    let slot = slot.map_err(|error| refused(&llm, error))?;
    let body = json!({"lora_id": lora_id, "status": "unloaded", "slot_freed": slot});
    Ok(json_response(StatusCode::OK, &body))
}

/// Adapters of the loaded models that the caller may use, or of one of these.
async fn known(
    llm: &Llm,
    context: &Context,
    route: &'static str,
    parts: &Parts,
    model: Option<&str>,
) -> Result<(Admission, Vec<(String, AdapterStatus)>), Problem> {
    let service = &llm.api.service;
    let call = call_of(context, route, "GET", &parts.headers);
    let admission = service.authorize(&call, model).await.map_err(problem_of)?;
    let names = match model {
        Some(model) => {
            let found = service.model_for(&call, model).await.map_err(problem_of)?;
            vec![found.listing.name.clone()]
        }
        None => {
            let permitted = service.permitted(&call).await;
            permitted
                .iter()
                .map(|model| model.listing.name.clone())
                .collect()
        }
    };
    let mut known: Vec<(String, AdapterStatus)> = Vec::new();
    for name in names {
        let status = llm.operator.status(&name);
        let adapters = status.map(|status| status.adapters()).unwrap_or_default();
        known.extend(adapters.into_iter().map(|adapter| (name.clone(), adapter)));
    }
    Ok((admission, known))
}

fn answered(admission: &Admission, body: &Value) -> Response {
    let mut response = json_response(StatusCode::OK, body);
    append_headers(response.headers_mut(), &admission.allowance().headers);
    response
}

/// Row of an adapter. Paths of files are for operators.
fn row(model: &str, adapter: &AdapterStatus, operator: bool) -> Value {
    let loaded = adapter.loaded.as_ref();
    let mut row = json!({
        "lora_id": adapter.config.name,
        "base_model": model,
        "status": adapter.state.name(),
        "size_bytes": loaded.map(|adapter| adapter.bytes()),
        "rank": loaded.map(|adapter| adapter.rank()),
        "alpha": loaded.map(|adapter| adapter.alpha()),
        "usage_count": adapter.uses,
    });
    if operator {
        row["path"] = json!(adapter.config.path.display().to_string());
    }
    for (name, at) in [
        ("loaded_timestamp", adapter.loaded_at_ms),
        ("last_used", adapter.last_used_ms),
    ] {
        if let Some(at) = at {
            let at = SystemTime::UNIX_EPOCH + Duration::from_millis(at);
            row[name] = json!(timestamp(at));
        }
    }
    row
}

/// A refusal with every detail: its reader is the operator.
fn refused(llm: &Llm, refusal: AdapterRefusal) -> Problem {
    let error = match refusal {
        AdapterRefusal::Model(error @ LifecycleError::Unknown(_)) => {
            return problem(llm, error).at("base_model");
        }
        AdapterRefusal::Model(error) => return problem(llm, error),
        AdapterRefusal::Adapter(error) => error,
    };
    let (status, code) = match &error {
        AdapterError::Unknown { .. } => (StatusCode::NOT_FOUND, "lora_not_found"),
        AdapterError::Busy { .. } => (StatusCode::CONFLICT, "lora_busy"),
        AdapterError::Loaded(_) => (StatusCode::CONFLICT, "lora_loaded"),
        AdapterError::Invalid { field, .. } => {
            return Problem::invalid(lora_field(field), error.to_string());
        }
        AdapterError::Unsupported { .. } => (StatusCode::CONFLICT, "lora_not_supported"),
        AdapterError::Files { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "model_load_failed"),
    };
    Problem::new(status, code, error.to_string())
}

/// The name that a field of an adapter has here.
fn lora_field(field: &'static str) -> &'static str {
    match field {
        "name" => "lora_id",
        other => other,
    }
}
