//! Adapters of the models of a running server: lists, load, unload.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::StatusCode;
use mortise_http::{Problem, json_response};
use mortise_models::lifecycle::{AdapterRefusal, LifecycleError};
use mortise_models::{AdapterConfig, AdapterError, AdapterState, AdapterStatus};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::Admin;
use crate::models::{ModelName, name_of, problem, read};

/// The list of all adapters of loaded models.
pub(crate) fn all(admin: &Admin) -> Value {
    let statuses = admin.models.statuses();
    let adapters = statuses.iter().flat_map(|model| {
        let adapters = model.adapters().into_iter();
        adapters.map(move |adapter| row(&model.listing.name, &adapter))
    });
    json!({"loras": adapters.collect::<Vec<Value>>()})
}

/// All adapters of loaded models, or of the one of the query, in the state of the query.
pub(crate) async fn list(
    State(admin): State<Arc<Admin>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let [model, state] = queried(query.as_deref(), ["model", "status"])?;
    let states = ["available", "loading", "loaded", "unloading"];
    if let Some(state) = state.as_deref().filter(|state| !states.contains(state)) {
        let message = format!("`status` is `{state}`; it may be {}", states.join(", "));
        return Err(refusal(StatusCode::BAD_REQUEST, "invalid_query", message));
    }
    let known = known(&admin, model.as_deref())?;
    let wanted = |adapter: &AdapterStatus| {
        let mut state = state.iter();
        state.all(|state| adapter.state.name() == state)
    };
    let rows = known.iter().filter(|(_, adapter)| wanted(adapter));
    let rows: Vec<Value> = rows.map(|(model, adapter)| row(model, adapter)).collect();
    Ok(json_response(StatusCode::OK, &json!({"loras": rows})))
}

/// One adapter, of the model of the query where several models have one of this name.
pub(crate) async fn show(
    State(admin): State<Arc<Admin>>,
    name: ModelName,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let name = name_of(name)?;
    let [model] = queried(query.as_deref(), ["base_model"])?;
    let mut found = known(&admin, model.as_deref())?;
    found.retain(|(_, adapter)| adapter.config.name == name);
    match found.as_slice() {
        [(model, adapter)] => Ok(json_response(StatusCode::OK, &row(model, adapter))),
        [] => {
            let message = format!("no loaded model has an adapter `{name}`");
            Err(refusal(StatusCode::NOT_FOUND, "lora_not_found", message))
        }
        several => {
            let models: Vec<&str> = several.iter().map(|(model, _)| model.as_str()).collect();
            let message = format!(
                "the models {} have an adapter `{name}`; say which with `base_model`",
                models.join(", ")
            );
            Err(refusal(StatusCode::CONFLICT, "lora_ambiguous", message))
        }
    }
}

/// Body of a load.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoadLora {
    lora_id: String,
    base_model: String,
    /// Needed where the adapter is not known.
    path: Option<PathBuf>,
    scale: Option<f32>,
}

/// Body of an unload.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UnloadLora {
    lora_id: String,
    base_model: String,
}

/// Load an adapter of a loaded model, and wait until requests can use it.
pub(crate) async fn load(State(admin): State<Arc<Admin>>, body: Body) -> Result<Response, Problem> {
    let asked = read::<LoadLora>(body).await?.ok_or_else(needs_body)?;
    let known = admin.models.status(&asked.base_model);
    let known = known.and_then(|model| model.loaded?.adapters()?.status(&asked.lora_id));
    let known = known.map(|adapter| adapter.config);
    let (path, scale) = known.map_or((None, None), |known| (Some(known.path), Some(known.scale)));
    let Some(path) = asked.path.or(path) else {
        let message = "`path` is missing; it must name a folder or a GGUF file";
        return Err(refusal(
            StatusCode::UNPROCESSABLE_ENTITY,
            "invalid_load_request",
            message,
        ));
    };
    let config = AdapterConfig {
        name: asked.lora_id,
        path,
        scale: asked.scale.or(scale).unwrap_or(1.0),
    };
    let loaded = admin.models.load_adapter(&asked.base_model, config).await;
    let loaded = loaded.map_err(refused)?;
    let body = json!({
        "lora_id": loaded.config.name,
        "base_model": asked.base_model,
        "status": loaded.state.name(),
        "load_time_ms": loaded.load_time.map(milliseconds),
        "slot": loaded.slot,
    });
    Ok(json_response(StatusCode::OK, &body))
}

/// Unload an adapter, and wait until no request uses it.
pub(crate) async fn unload(
    State(admin): State<Arc<Admin>>,
    body: Body,
) -> Result<Response, Problem> {
    let asked = read::<UnloadLora>(body).await?.ok_or_else(needs_body)?;
    let models = &admin.models;
    let slot = models.unload_adapter(&asked.base_model, &asked.lora_id);
    let body = json!({
        "lora_id": asked.lora_id,
        "base_model": asked.base_model,
        "status": "unloaded",
        "slot_freed": slot.await.map_err(refused)?,
    });
    Ok(json_response(StatusCode::OK, &body))
}

/// Adapters with the names of their models, of all loaded models or of one.
fn known(admin: &Admin, model: Option<&str>) -> Result<Vec<(String, AdapterStatus)>, Problem> {
    let statuses = match model {
        None => admin.models.statuses(),
        Some(name) => {
            let unknown = || problem(LifecycleError::Unknown(name.to_owned()));
            vec![admin.models.status(name).ok_or_else(unknown)?]
        }
    };
    let mut known = Vec::new();
    for model in statuses {
        let name = &model.listing.name;
        known.extend(
            model
                .adapters()
                .into_iter()
                .map(|adapter| (name.clone(), adapter)),
        );
    }
    Ok(known)
}

/// An adapter with everything that is known of it.
fn row(model: &str, adapter: &AdapterStatus) -> Value {
    let loaded = adapter.loaded.as_ref();
    json!({
        "lora_id": adapter.config.name,
        "base_model": model,
        "path": adapter.config.path.display().to_string(),
        "scale": adapter.config.scale,
        "status": adapter.state.name(),
        "size_bytes": loaded.map(|adapter| adapter.bytes()),
        "rank": loaded.map(|adapter| adapter.rank()),
        "alpha": loaded.map(|adapter| adapter.alpha()),
        "target_modules": loaded.map(|adapter| adapter.modules()),
        "slot": adapter.slot,
        "loaded_timestamp": adapter.loaded_at_ms.and_then(timestamp),
        "load_time_ms": adapter.load_time.map(milliseconds),
        "usage_count": adapter.uses,
        "last_error": adapter.last_error,
    })
}

fn timestamp(ms: u64) -> Option<String> {
    let seconds = i64::try_from(ms / 1000).ok()?;
    let time = OffsetDateTime::from_unix_timestamp(seconds).ok()?;
    time.format(&Rfc3339).ok()
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Values of a query, which may have these names only.
fn queried<const NAMES: usize>(
    query: Option<&str>,
    names: [&str; NAMES],
) -> Result<[Option<String>; NAMES], Problem> {
    let mut values = [const { None }; NAMES];
    for pair in query
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
    {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let place = names.iter().position(|known| *known == name);
        let value = percent_decode_str(value).decode_utf8().ok();
        let slot = place.and_then(|place| values.get_mut(place));
        let (Some(slot), Some(value)) = (slot, value) else {
            let message = format!("the query may have {}, in UTF-8", names.join(" and "));
            return Err(refusal(StatusCode::BAD_REQUEST, "invalid_query", message));
        };
        *slot = Some(value.into_owned());
    }
    Ok(values)
}

fn needs_body() -> Problem {
    let message = "the body must name an adapter and its model, as in {\"lora_id\": \"NAME\", \
                   \"base_model\": \"NAME\"}";
    refusal(StatusCode::BAD_REQUEST, "invalid_load_request", message)
}

fn refused(error: AdapterRefusal) -> Problem {
    let adapter = match error {
        AdapterRefusal::Model(error) => return problem(error),
        AdapterRefusal::Adapter(adapter) => adapter,
    };
    let (status, code) = match &adapter {
        AdapterError::Unknown { .. } => (StatusCode::NOT_FOUND, "lora_not_found"),
        AdapterError::Busy { state, .. } => match state {
            AdapterState::Loading => (StatusCode::CONFLICT, "lora_loading"),
            _ => (StatusCode::CONFLICT, "lora_unloading"),
        },
        AdapterError::Loaded(_) => (StatusCode::CONFLICT, "lora_loaded"),
        AdapterError::Invalid { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "invalid_load_request"),
        AdapterError::Unsupported { .. } => (StatusCode::CONFLICT, "lora_not_supported"),
        AdapterError::Files { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "lora_load_failed"),
    };
    refusal(status, code, adapter.to_string())
}

fn refusal(status: StatusCode, code: &str, message: impl Into<String>) -> Problem {
    Problem::new(status, code, message)
}
