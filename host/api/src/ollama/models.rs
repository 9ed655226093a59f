//! Lists of models and what is known of one: `GET /api/tags`, `/api/ps`, `/api/version`, `POST /api/show`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use http::{HeaderMap, Request as HttpRequest, StatusCode};
use mortise_http::{Context, Problem, append_headers, json_response};
use mortise_service::{Capability, Generator, LoadedModel, ServedModel};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{PS, SHOW, TAGS};
use crate::call::{call_of, record_admitted};
use crate::fields::{FieldPath, FieldReader, RouteFields, missing};
use crate::problem::problem_of;
use crate::receive::{ReceivedRequest, receive};
use crate::state::ApiState;
use crate::unsupported::Unsupported;

/// Tag that Ollama gives to a name without one.
const DEFAULT_TAG: &str = ":latest";

/// A time that never comes: that of a model which stays until an operator unloads it.
const NEVER: &str = "9999-12-31T23:59:59Z";

/// The name without Ollama's default tag, unless a model has it.
pub(super) fn known_name(state: &ApiState, name: String) -> String {
    match name.strip_suffix(DEFAULT_TAG) {
        Some(short) if state.service.model(&name).is_err() => short.to_owned(),
        _ => name,
    }
}

/// Tokens of a model's context, where it is loaded.
pub(super) fn context_of(state: &ApiState, name: &str) -> Option<usize> {
    let model = state
        .service
        .model(&known_name(state, name.to_owned()))
        .ok()?;
    model.loaded.as_ref()?.model.context_length()
}

/// `GET /api/version`
pub(super) async fn version() -> Response {
    let body = json!({"version": env!("CARGO_PKG_VERSION")});
    json_response(StatusCode::OK, &body)
}

/// `GET /api/tags`: all models.
pub(super) async fn tags(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    listed(&state, &context, TAGS, &headers, |model| Some(row(model))).await
}

/// `GET /api/ps`: models that are loaded.
pub(super) async fn ps(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let loaded = |model: &ServedModel| {
        let loaded = model.loaded.as_ref()?;
        let mut row = row(model);
        row["expires_at"] = json!(expires(&state, &model.listing.name));
        row["size_vram"] = json!(0);
        row["context_length"] = json!(loaded.model.context_length());
        Some(row)
    };
    listed(&state, &context, PS, &headers, loaded).await
}

/// Time at which a model is unloaded if no further request comes, as it is written.
fn expires(state: &ApiState, model: &str) -> String {
    let left = state.service.time_left(model);
    let end = left.and_then(|left| OffsetDateTime::now_utc().checked_add(left.try_into().ok()?));
    // Only years beyond 9999 cannot be written.
    let end = end.and_then(|end| end.format(&Rfc3339).ok());
    end.unwrap_or_else(|| NEVER.to_owned())
}

async fn listed(
    state: &ApiState,
    context: &Context,
    route: &'static str,
    headers: &HeaderMap,
    row: impl Fn(&ServedModel) -> Option<Value>,
) -> Result<Response, Problem> {
    let call = call_of(context, route, "GET", headers);
    let admission = state.service.authorize(&call, None).await;
    let admission = admission.map_err(problem_of)?;
    let models = state.service.permitted(&call).await;
    let rows: Vec<Value> = models.iter().filter_map(|model| row(model)).collect();
    let mut response = json_response(StatusCode::OK, &json!({"models": rows}));
    append_headers(response.headers_mut(), &admission.allowance().headers);
    Ok(response)
}

/// Row of a model in lists. Sizes and digests of files are not known to all runtimes: they are 0 and
/// empty.
fn row(model: &ServedModel) -> Value {
    json!({
        "name": model.listing.name,
        "model": model.listing.name,
        "modified_at": modified(model),
        "size": 0,
        "digest": "",
        "details": details(model.loaded.as_ref()),
    })
}

fn modified(model: &ServedModel) -> String {
    let seconds = i64::try_from(model.listing.created).unwrap_or_default();
    let time = OffsetDateTime::from_unix_timestamp(seconds);
    // Only years beyond 9999 cannot be written.
    time.ok()
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_default()
}

fn details(loaded: Option<&LoadedModel>) -> Value {
    let family = loaded.map_or("", |loaded| loaded.model.architecture.as_str());
    let families: Vec<&str> = Some(family)
        .filter(|family| !family.is_empty())
        .into_iter()
        .collect();
    json!({
        "parent_model": "",
        "format": "",
        "family": family,
        "families": families,
        "parameter_size": "",
        "quantization_level": "",
    })
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
#[allow(dead_code, reason = "there is no more to tell of a model")]
struct ShowFields {
    model: Option<String>,
    /// The older name of `model`.
    name: Option<String>,
    verbose: Option<bool>,
}

/// The fields of `POST /api/show`, for the contract.
pub(super) fn fields() -> RouteFields {
    RouteFields::new(Unsupported::Refuse).with::<ShowFields>()
}

/// `POST /api/show`
pub(super) async fn show(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let ReceivedRequest {
        parts,
        object,
        reserved: _reserved,
        ..
    } = receive(&state, &context, SHOW, request).await?;
    let mut reader = FieldReader::new(object, Unsupported::Refuse);
    let fields: ShowFields = reader.read()?;
    reader.finish(|_| false)?;
    let name = fields.model.or(fields.name);
    let name = name.ok_or_else(|| missing(&FieldPath::from("model")))?;
    let name = known_name(&state, name);
    context.record.asked(&name, false);
    let call = call_of(&context, SHOW, "POST", &parts.headers);
    let admission = state.service.authorize(&call, Some(&name)).await;
    let admission = admission.map_err(problem_of)?;
    let model = state.service.model_for(&call, &name).await;
    let model = model.map_err(problem_of)?;
    record_admitted(&context, &model.listing.name, &admission);
    let mut response = json_response(StatusCode::OK, &shown(&model));
    append_headers(response.headers_mut(), &admission.allowance().headers);
    Ok(response)
}

fn shown(model: &ServedModel) -> Value {
    let loaded = model.loaded.as_ref();
    let family = loaded.map_or("", |loaded| loaded.model.architecture.as_str());
    let mut info = Map::new();
    if !family.is_empty() {
        info.insert("general.architecture".to_owned(), json!(family));
    }
    if let Some(context) = loaded.and_then(|loaded| loaded.model.context_length()) {
        let key = match family {
            "" => "context_length".to_owned(),
            family => format!("{family}.context_length"),
        };
        info.insert(key, json!(context));
    }
    let template = loaded.and_then(|loaded| match &loaded.model.generator {
        Some(Generator::Tokens(tokens)) => tokens.tokenizer.chat_template(),
        Some(Generator::Rendered(rendered)) => rendered.tokenizer.chat_template(),
        _ => None,
    });
    json!({
        "modelfile": format!("FROM {}\n", model.listing.name),
        "parameters": "",
        "template": template.unwrap_or_default(),
        "license": "",
        "details": details(loaded),
        "model_info": info,
        "capabilities": loaded.map(capabilities).unwrap_or_default(),
        "modified_at": modified(model),
    })
}

/// Ollama's names of what a model can do.
fn capabilities(loaded: &LoadedModel) -> Vec<&'static str> {
    let mut names = Vec::new();
    for capability in loaded.model.capabilities() {
        match capability {
            Capability::Embed => names.push("embedding"),
            // There is none for it.
            Capability::Rerank => {}
            Capability::Generate => {
                names.push("completion");
                if loaded.plugins.parses_calls() {
                    names.push("tools");
                }
            }
        }
    }
    names
}
