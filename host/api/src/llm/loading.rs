//! `POST /api/v1/llm/models/load`, `…/unload` and `…/ingest`, for operators.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use http::{Request as HttpRequest, StatusCode};
use mortise_http::{Context, Owner, Problem, json_response, read_object};
use mortise_service::{LifecycleError, LoadOverrides, ModelStatus, Override};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Llm;
use super::answer::milliseconds;
use super::models::{MIB, state_name};
use super::operator::operators_only;
use crate::fields::{FieldPath, FieldReader, RouteFields};
use crate::unsupported::Unsupported;

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct LoadFields {
    model_id: String,
    path: Option<String>,
    options: Option<LoadOptions>,
    pin: Option<bool>,
}

/// Options of a load.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
struct LoadOptions {
    n_gpu_layers: Option<i64>,
    n_ctx: Option<u32>,
    n_batch: Option<u32>,
    n_threads: Option<u32>,
    use_mmap: Option<bool>,
    use_mlock: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct UnloadFields {
    model_id: String,
}

/// The fields of a load, for the contract.
pub(super) fn fields() -> RouteFields {
    RouteFields::new(Unsupported::Refuse).with::<LoadFields>()
}

/// The fields of an unload, for the contract.
pub(super) fn unload_fields() -> RouteFields {
    RouteFields::new(Unsupported::Refuse).with::<UnloadFields>()
}

/// `POST /api/v1/llm/models/load`
pub(super) async fn load(
    State(llm): State<Arc<Llm>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let object = object_of(&llm, &context, request).await?;
    let mut reader = FieldReader::new(object, Unsupported::Refuse);
    let fields: LoadFields = reader.read()?;
    let mut settings = settings(fields.options.unwrap_or_default(), &mut reader)?;
    reader.finish(|_| false)?;
    let name = &fields.model_id;
    let status = status(&llm, name)?;
    as_configured(&llm, &status, fields.path).await?;
    // What is so already is no setting of this load.
    if let Some(pin) = fields.pin.filter(|pin| *pin != status.pinned) {
        settings.pinned = Override::Set(pin);
    }
    tracing::info!(model = name, "an operator loads a model");
    let began = Instant::now();
    let loaded = llm.operator.load(name, settings).await;
    loaded.map_err(|error| problem(&llm, error))?;
    let status = self::status(&llm, name)?;
    let body = json!({
        "model_id": name,
        "status": state_name(status.state),
        "load_time_ms": milliseconds(began),
        "memory_used_mb": status.memory_bytes / MIB,
    });
    Ok(json_response(StatusCode::OK, &body))
}

/// `POST /api/v1/llm/models/unload`
pub(super) async fn unload(
    State(llm): State<Arc<Llm>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let object = object_of(&llm, &context, request).await?;
    let mut reader = FieldReader::new(object, Unsupported::Refuse);
    let fields: UnloadFields = reader.read()?;
    reader.finish(|_| false)?;
    let name = &fields.model_id;
    let before = status(&llm, name)?;
    let held = before.loaded.as_ref().map_or(0, |_| before.memory_bytes);
    tracing::info!(model = name, "an operator unloads a model");
    let unloaded = llm.operator.unload(name).await;
    unloaded.map_err(|error| problem(&llm, error))?;
    let body = json!({
        "model_id": name,
        "status": "unloaded",
        "memory_freed_mb": held / MIB,
    });
    Ok(json_response(StatusCode::OK, &body))
}

/// `POST /api/v1/llm/models/ingest`
pub(super) async fn ingest(
    State(llm): State<Arc<Llm>>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    operators_only(&*llm.operator, request.headers())?;
    tracing::info!("an operator uploads a model");
    let made = llm.operator.ingest(request).await?;
    let version = made["version"].as_str().unwrap_or_default();
    let urn = made["urn"].as_str().unwrap_or_default();
    let body = json!({
        "model_id": made["name"],
        "version": made["version"],
        "urn": match version.is_empty() {
            true => urn.to_owned(),
            false => format!("{urn}:{version}"),
        },
        "size_bytes": made["size_bytes"],
        "checksum": made["checksum"],
        "upload_time_ms": made["upload_time_ms"],
        "replication_status": made["replication_status"],
        "shards_replicated": made["shards_replicated"],
        "total_shards": made["total_shards"],
    });
    Ok(json_response(StatusCode::CREATED, &body))
}

/// The body of an operator's request.
pub(super) async fn object_of(
    llm: &Llm,
    context: &Context,
    request: HttpRequest<Body>,
) -> Result<Map<String, Value>, Problem> {
    let (parts, body) = request.into_parts();
    operators_only(&*llm.operator, &parts.headers)?;
    let http = &llm.api.http;
    let mut reserved = http.bodies.open(Owner::new(context.peer.ip(), None));
    read_object(&parts.headers, body, &http.body, &mut reserved).await
}

/// Settings of a load from its options; those that cannot be had are refused.
fn settings(options: LoadOptions, reader: &mut FieldReader) -> Result<LoadOverrides, Problem> {
    let path = FieldPath::from("options");
    let mut settings = Map::new();
    match options.n_gpu_layers {
        None => {}
        // As the server chooses.
        Some(-1) => {
            settings.insert("device".to_owned(), json!("auto"));
        }
        Some(0) => {
            settings.insert("device".to_owned(), json!("cpu"));
        }
        Some(_) => {
            let why = "all layers of a model are on one device: 0 is the processor, -1 what the server chooses";
            reader.unsupported(&path.key("n_gpu_layers"), why)?;
        }
    }
    if let Some(tokens) = options.n_ctx {
        settings.insert("max_context".to_owned(), json!(tokens));
    }
    let refused = [
        (
            "n_batch",
            options.n_batch.is_some(),
            "the scheduler decides on the size of a step; see `engine.step_token_budget`",
        ),
        (
            "n_threads",
            options.n_threads.is_some(),
            "all models share the threads of `engine.threads`",
        ),
        (
            "use_mmap",
            options.use_mmap == Some(false),
            "files are mapped into memory while they are read",
        ),
        (
            "use_mlock",
            options.use_mlock == Some(true),
            "weights are not locked in memory",
        ),
    ];
    for (name, _, why) in refused.iter().filter(|(_, refused, _)| *refused) {
        reader.unsupported(&path.key(name), why)?;
    }
    serde_json::from_value(Value::Object(settings))
        .map_err(|error| Problem::invalid("options", format!("`options`: {error}")))
}

/// Check that a path is what the configuration says: nobody brings files from elsewhere over HTTP.
async fn as_configured(
    llm: &Llm,
    status: &ModelStatus,
    path: Option<String>,
) -> Result<(), Problem> {
    let name = &status.listing.name;
    if let Some(path) = path
        && llm.operator.facts(status).await.path.as_ref() != Some(&path)
    {
        let message = format!(
            "`path` must be that of the configured model `{name}`, or left out; models are added to the configuration"
        );
        return Err(Problem::invalid("path", message));
    }
    Ok(())
}

fn status(llm: &Llm, name: &str) -> Result<ModelStatus, Problem> {
    let unknown = || problem(llm, LifecycleError::Unknown(name.to_owned()));
    llm.operator.status(name).ok_or_else(unknown)
}

/// A refusal of the life cycle, with every detail: its reader is the operator.
pub(super) fn problem(llm: &Llm, error: LifecycleError) -> Problem {
    let status = match &error {
        LifecycleError::Unknown(_) => StatusCode::NOT_FOUND,
        LifecycleError::BadOverride { .. } => StatusCode::BAD_REQUEST,
        LifecycleError::Failed { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        LifecycleError::Late { .. } => StatusCode::GATEWAY_TIMEOUT,
        LifecycleError::NoRoom { .. } | LifecycleError::Stopping => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::CONFLICT,
    };
    let code = match &error {
        LifecycleError::Failed { .. } => "model_load_failed",
        other => other.code(),
    };
    let problem = Problem::new(status, code, error.to_string());
    match &error {
        LifecycleError::Unknown(_) => {
            let statuses = llm.operator.statuses();
            let names = statuses.iter().map(|status| status.listing.name.clone());
            problem.among(names.collect()).at("model_id")
        }
        LifecycleError::BadOverride { field, .. } => {
            let field = match *field {
                "max_context" => "options.n_ctx",
                "device" => "options.n_gpu_layers",
                other => other,
            };
            problem.at(field)
        }
        _ => problem,
    }
}
