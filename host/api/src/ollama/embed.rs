//! `POST /api/embed` and the older `POST /api/embeddings`.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use http::{Request as HttpRequest, StatusCode};
use mortise_http::{Context, Problem, append_headers, json_response};
use mortise_service::{EmbeddingInput, EmbeddingRequest, PromptUse};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::keep_alive;
use super::models::{context_of, known_name};
use super::options::{Options, check_keep_alive};
use super::{EMBED, EMBEDDINGS};
use crate::embed::embed as make;
use crate::fields::{FieldReader, RouteFields, TextOrTexts};
use crate::receive::{ReceivedRequest, receive};
use crate::state::ApiState;
use crate::unsupported::Unsupported;

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct Shared {
    model: String,
    options: Option<Options>,
    keep_alive: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct EmbedFields {
    input: TextOrTexts,
    truncate: Option<bool>,
    dimensions: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct EmbeddingsFields {
    prompt: String,
}

/// The fields of `POST /api/embed`, for the contract.
pub(super) fn fields() -> RouteFields {
    RouteFields::new(Unsupported::Refuse)
        .with::<Shared>()
        .with::<EmbedFields>()
}

/// The fields of `POST /api/embeddings`, for the contract.
pub(super) fn older_fields() -> RouteFields {
    RouteFields::new(Unsupported::Refuse)
        .with::<Shared>()
        .with::<EmbeddingsFields>()
}

/// `POST /api/embed`
pub(super) async fn embed(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let began = Instant::now();
    let ReceivedRequest {
        parts,
        mut object,
        reserved,
        ..
    } = receive(&state, &context, EMBED, request).await?;
    let kept = keep_alive::taken(&state, &mut object)?;
    let (model, mut reader) = shared(&state, object)?;
    let fields: EmbedFields = reader.read()?;
    reader.finish(|_| false)?;
    let inputs = fields.input.0.into_iter().map(EmbeddingInput::Text);
    let request = EmbeddingRequest {
        model,
        inputs: inputs.collect(),
        dimensions: fields.dimensions.filter(|dimensions| *dimensions > 0),
        // As at Ollama, unless the caller wants an error.
        truncate: fields.truncate.unwrap_or(true),
        prompt: PromptUse::Usual,
        allow_remote: false,
    };
    let made = make(&state, &context, EMBED, &parts, request).await?;
    drop(reserved);
    keep_alive::keep(&state, &made.model, kept);
    let elapsed = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let body = json!({
        "model": made.model,
        "embeddings": made.vectors,
        "total_duration": elapsed,
        "load_duration": 0,
        "prompt_eval_count": made.usage.prompt_tokens,
    });
    let mut response = json_response(StatusCode::OK, &body);
    append_headers(response.headers_mut(), &made.admission.allowance().headers);
    Ok(response)
}

/// `POST /api/embeddings`
pub(super) async fn embeddings(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let ReceivedRequest {
        parts,
        mut object,
        reserved,
        ..
    } = receive(&state, &context, EMBEDDINGS, request).await?;
    let kept = keep_alive::taken(&state, &mut object)?;
    let (model, mut reader) = shared(&state, object)?;
    let fields: EmbeddingsFields = reader.read()?;
    reader.finish(|_| false)?;
    let request = EmbeddingRequest {
        model,
        inputs: vec![EmbeddingInput::Text(fields.prompt)],
        dimensions: None,
        truncate: true,
        prompt: PromptUse::Usual,
        allow_remote: false,
    };
    let made = make(&state, &context, EMBEDDINGS, &parts, request).await?;
    drop(reserved);
    keep_alive::keep(&state, &made.model, kept);
    let body = json!({"embedding": made.vectors.first()});
    let mut response = json_response(StatusCode::OK, &body);
    append_headers(response.headers_mut(), &made.admission.allowance().headers);
    Ok(response)
}

/// The model, and a reader for what the routes do not share.
fn shared(state: &ApiState, object: Map<String, Value>) -> Result<(String, FieldReader), Problem> {
    let mut reader = FieldReader::new(object, Unsupported::Refuse);
    let shared: Shared = reader.read()?;
    if let Some(options) = shared.options {
        let context = context_of(state, &shared.model);
        options.check_embedding(&mut reader, context)?;
    }
    if let Some(keep_alive) = shared.keep_alive {
        check_keep_alive(&keep_alive, &mut reader)?;
    }
    Ok((known_name(state, shared.model), reader))
}
