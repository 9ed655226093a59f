//! `POST /api/pull` and `DELETE /api/delete`, where the server lets its callers.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http::{HeaderValue, Request as HttpRequest, StatusCode, header};
use mortise_http::{Context, Problem, json_response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{DELETE, PULL};
use crate::fields::{FieldPath, FieldReader, RouteFields, missing};
use crate::library::PullStep;
use crate::library_access::{open_for, read};
use crate::state::ApiState;
use crate::unsupported::Unsupported;

/// Address of the hub in names that Ollama's clients give.
const HUBS: [&str; 2] = ["hf.co/", "huggingface.co/"];

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct PullFields {
    model: Option<String>,
    /// The older name of `model`.
    name: Option<String>,
    stream: Option<bool>,
    insecure: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct DeleteFields {
    model: Option<String>,
    /// The older name of `model`.
    name: Option<String>,
}

/// The fields of `POST /api/pull`, for the contract.
pub(super) fn pull_fields() -> RouteFields {
    RouteFields::new(Unsupported::Refuse).with::<PullFields>()
}

/// The fields of `DELETE /api/delete`, for the contract.
pub(super) fn delete_fields() -> RouteFields {
    RouteFields::new(Unsupported::Refuse).with::<DeleteFields>()
}

/// `POST /api/pull`
pub(super) async fn pull(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let (parts, object) = read(&state, &context, PULL, request).await?;
    let mut reader = FieldReader::new(object, Unsupported::Refuse);
    let fields: PullFields = reader.read()?;
    if fields.insecure == Some(true) {
        let why = "the hub is asked as the server is configured to";
        reader.unsupported(&FieldPath::from("insecure"), why)?;
    }
    reader.finish(|_| false)?;
    let name = fields.model.or(fields.name);
    let name = name.ok_or_else(|| missing(&FieldPath::from("model")))?;
    let library = open_for(&state, &context, (PULL, "POST"), &parts.headers, &name).await?;
    let reference = HUBS.iter().find_map(|hub| name.strip_prefix(hub));
    let steps = library.pull(reference.unwrap_or(&name))?;
    match fields.stream {
        Some(false) => whole(steps).await,
        _ => Ok(lines(steps)),
    }
}

/// The last step alone.
async fn whole(mut steps: BoxStream<'static, PullStep>) -> Result<Response, Problem> {
    let mut last = PullStep::Waiting;
    while let Some(step) = steps.next().await {
        last = step;
    }
    match last {
        PullStep::Failed(reason) => Err(Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "pull_failed",
            reason,
        )),
        _ => Ok(json_response(StatusCode::OK, &json!({"status": "success"}))),
    }
}

/// All steps, one a line.
fn lines(steps: BoxStream<'static, PullStep>) -> Response {
    let lines = steps.map(|step| {
        let mut line = shown(&step).to_string();
        line.push('\n');
        Ok::<_, Infallible>(Bytes::from(line))
    });
    let mut response = Response::new(Body::from_stream(lines));
    let media = HeaderValue::from_static("application/x-ndjson");
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response
}

fn shown(step: &PullStep) -> Value {
    match step {
        PullStep::Waiting => json!({"status": "pulling manifest"}),
        PullStep::File { name, done, total } => json!({
            "status": format!("pulling {name}"),
            "digest": name,
            "total": total,
            "completed": done,
        }),
        PullStep::Completed => json!({"status": "success"}),
        PullStep::Failed(reason) => json!({"error": reason}),
    }
}

/// `DELETE /api/delete`
pub(super) async fn delete(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let (parts, object) = read(&state, &context, DELETE, request).await?;
    let mut reader = FieldReader::new(object, Unsupported::Refuse);
    let fields: DeleteFields = reader.read()?;
    reader.finish(|_| false)?;
    let name = fields.model.or(fields.name);
    let name = name.ok_or_else(|| missing(&FieldPath::from("model")))?;
    let route = (DELETE, "DELETE");
    let library = open_for(&state, &context, route, &parts.headers, &name).await?;
    library.remove(&name).await?;
    Ok(json_response(StatusCode::OK, &json!({})))
}
