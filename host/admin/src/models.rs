//! Models of a running server: states, load, unload.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use http::StatusCode;
use mortise_http::{Problem, json_response};
use mortise_models::lifecycle::{LifecycleError, LoadOverrides};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use serde_json::{Value, json};

use crate::Admin;
use crate::limits::MAX_BODY_BYTES;
use crate::persist::{PersistRequest, is_wanted, kept};
use crate::row::row;

/// All models, loaded or not.
pub(crate) async fn list(State(admin): State<Arc<Admin>>) -> Response {
    let models: Vec<Value> = admin.models.statuses().iter().map(row).collect();
    let body = json!({"object": "list", "data": models, "can_persist": admin.reloads.keeps});
    json_response(StatusCode::OK, &body)
}

pub(crate) type ModelName = Result<Path<String>, PathRejection>;

/// One model.
pub(crate) async fn show(
    State(admin): State<Arc<Admin>>,
    name: ModelName,
) -> Result<Response, Problem> {
    shown(&admin, &name_of(name)?)
}

/// Load a model, with the settings of the body if there is one, and wait until it serves.
pub(crate) async fn load(
    State(admin): State<Arc<Admin>>,
    name: ModelName,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<Response, Problem> {
    let name = name_of(name)?;
    let keep = is_wanted(query.as_deref())?;
    let overrides = read::<LoadOverrides>(body).await?.unwrap_or_default();
    let response = loaded(&admin, &name, overrides).await?;
    kept(&admin, keep, PersistRequest::Enabled(name, true), response).await
}

/// Unload a model, and wait until its memory is free.
pub(crate) async fn unload(
    State(admin): State<Arc<Admin>>,
    name: ModelName,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<Response, Problem> {
    let name = name_of(name)?;
    let keep = is_wanted(query.as_deref())?;
    // An unload has no settings: what a body says would be left out of account.
    read::<NoFields>(body).await?;
    let response = unloaded(&admin, &name).await?;
    kept(&admin, keep, PersistRequest::Enabled(name, false), response).await
}

/// Last lines of the output of a model's processes, which outlive them.
pub(crate) async fn log(
    State(admin): State<Arc<Admin>>,
    name: ModelName,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let name = name_of(name)?;
    let wanted = match query.as_deref() {
        None | Some("") => usize::MAX,
        Some(query) => lines_of(query)?,
    };
    let unknown = || problem(LifecycleError::Unknown(name.clone()));
    let log = admin.models.output(&name).ok_or_else(unknown)?;
    let lines = log.last(wanted);
    let lines: Vec<Value> = lines
        .iter()
        .map(|line| json!({"number": line.number, "at_ms": line.at_ms, "text": line.text}))
        .collect();
    let body = json!({"model": name, "written": log.written(), "lines": lines});
    Ok(json_response(StatusCode::OK, &body))
}

/// Lines that a query wants.
fn lines_of(query: &str) -> Result<usize, Problem> {
    let count = query.strip_prefix("lines=");
    count.and_then(|count| count.parse().ok()).ok_or_else(|| {
        let message = "the query may be `lines=N`, the number of lines to give";
        refusal(StatusCode::BAD_REQUEST, "invalid_query", message)
    })
}

/// A body that says nothing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoFields {}

/// A model by its name in the body, with settings for its load.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedModel {
    model: String,
    overrides: Option<LoadOverrides>,
}

/// Load the model that the body names.
pub(crate) async fn load_named(
    State(admin): State<Arc<Admin>>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<Response, Problem> {
    let keep = is_wanted(query.as_deref())?;
    let NamedModel { model, overrides } = named(body).await?;
    let response = loaded(&admin, &model, overrides.unwrap_or_default()).await?;
    kept(&admin, keep, PersistRequest::Enabled(model, true), response).await
}

/// Unload the model that the body names.
pub(crate) async fn unload_named(
    State(admin): State<Arc<Admin>>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<Response, Problem> {
    let keep = is_wanted(query.as_deref())?;
    let NamedModel { model, overrides } = named(body).await?;
    if !overrides.unwrap_or_default().is_empty() {
        let message = "`overrides` are settings of a load; leave them out";
        return Err(refusal(
            StatusCode::BAD_REQUEST,
            "invalid_load_request",
            message,
        ));
    }
    let response = unloaded(&admin, &model).await?;
    kept(
        &admin,
        keep,
        PersistRequest::Enabled(model, false),
        response,
    )
    .await
}

async fn named(body: Body) -> Result<NamedModel, Problem> {
    let named = read::<NamedModel>(body).await?;
    named.ok_or_else(|| {
        let message = "the body must name a model, as in {\"model\": \"NAME\"}";
        refusal(StatusCode::BAD_REQUEST, "invalid_load_request", message)
    })
}

async fn loaded(admin: &Admin, name: &str, overrides: LoadOverrides) -> Result<Response, Problem> {
    let load = admin.models.load(name, overrides).await;
    load.map_err(|error| refused(admin, error))?;
    shown(admin, name)
}

async fn unloaded(admin: &Admin, name: &str) -> Result<Response, Problem> {
    let unload = admin.models.unload(name).await;
    unload.map_err(|error| refused(admin, error))?;
    shown(admin, name)
}

/// A refusal; of an alias, whose model is meant.
fn refused(admin: &Admin, error: LifecycleError) -> Problem {
    let target = match &error {
        LifecycleError::Unknown(name) => admin.aliases.target(name),
        _ => None,
    };
    let text = target.map(|target| {
        format!("{error}: it is an alias of `{target}`, which has to be named itself")
    });
    let problem = problem(error);
    match text {
        Some(text) => Problem {
            message: text.into(),
            ..problem
        },
        None => problem,
    }
}

fn shown(admin: &Admin, name: &str) -> Result<Response, Problem> {
    let unknown = || refused(admin, LifecycleError::Unknown(name.to_owned()));
    let status = admin.models.status(name).ok_or_else(unknown)?;
    Ok(json_response(StatusCode::OK, &row(&status)))
}

pub(crate) fn name_of(name: ModelName) -> Result<String, Problem> {
    let bad = |_| {
        let message = "the name of the model in the address is not UTF-8";
        refusal(StatusCode::BAD_REQUEST, "invalid_load_request", message)
    };
    Ok(name.map_err(bad)?.0)
}

/// The body as JSON; `None` if it is empty.
pub(crate) async fn read<T: DeserializeOwned>(body: Body) -> Result<Option<T>, Problem> {
    let bad = |status, message: String| Err(refusal(status, "invalid_load_request", message));
    let Ok(bytes) = to_bytes(body, MAX_BODY_BYTES).await else {
        let message = format!("the body is incomplete or longer than {MAX_BODY_BYTES} bytes");
        return bad(StatusCode::PAYLOAD_TOO_LARGE, message);
    };
    if bytes.is_empty() {
        return Ok(None);
    }
    // Structs are read from lists, too, in the order of their fields, which nobody means.
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        let message = "the body is wrong: it must be an object, not a list";
        return bad(StatusCode::UNPROCESSABLE_ENTITY, message.to_owned());
    }
    match serde_json::from_slice(&bytes) {
        Ok(value) => Ok(Some(value)),
        Err(error) => {
            let status = match error.classify() {
                Category::Data => StatusCode::UNPROCESSABLE_ENTITY,
                _ => StatusCode::BAD_REQUEST,
            };
            bad(status, format!("the body is wrong: {error}"))
        }
    }
}

fn refusal(status: StatusCode, code: &str, message: impl Into<String>) -> Problem {
    Problem::new(status, code, message)
}

/// A refusal of the life cycle, with every detail: its reader is the operator.
pub(crate) fn problem(error: LifecycleError) -> Problem {
    let (status, code) = match &error {
        LifecycleError::Unknown(_) => (StatusCode::NOT_FOUND, error.code()),
        LifecycleError::BadOverride { .. } => (StatusCode::BAD_REQUEST, error.code()),
        LifecycleError::Failed { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "model_load_failed"),
        LifecycleError::Late { .. } => (StatusCode::GATEWAY_TIMEOUT, error.code()),
        LifecycleError::NoRoom { .. } | LifecycleError::Stopping => {
            (StatusCode::SERVICE_UNAVAILABLE, error.code())
        }
        LifecycleError::Excluded { .. }
        | LifecycleError::Stuck(_)
        | LifecycleError::NotLoaded(_)
        | LifecycleError::Loaded(_)
        | LifecycleError::Loading(_)
        | LifecycleError::Unloading(_)
        | LifecycleError::Unloaded(_) => (StatusCode::CONFLICT, error.code()),
    };
    refusal(status, code, error.to_string())
}
