//! `POST /api/v1/llm/embed`: the vector of a text.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use http::{Request as HttpRequest, StatusCode};
use mortise_http::{Context, Problem, append_headers, json_response};
use mortise_service::{Capability, EmbeddingInput, EmbeddingRequest, PromptUse};
use serde::Deserialize;
use serde_json::json;

use super::answer::milliseconds;
use super::inference::sole;
use super::{EMBED, Llm};
use crate::embed::embed as make;
use crate::fields::{FieldPath, FieldReader, RouteFields, missing};
use crate::receive::{ReceivedRequest, receive};
use crate::unsupported::Unsupported;

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct EmbedFields {
    text: String,
    model: Option<String>,
    normalize: Option<bool>,
}

/// The fields of a body, for the contract.
pub(super) fn fields() -> RouteFields {
    RouteFields::new(Unsupported::Refuse).with::<EmbedFields>()
}

/// `POST /api/v1/llm/embed`
pub(super) async fn embed(
    State(llm): State<Arc<Llm>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let began = Instant::now();
    let ReceivedRequest {
        parts,
        object,
        reserved,
        ..
    } = receive(&llm.api, &context, EMBED, request).await?;
    let mut reader = FieldReader::new(object, Unsupported::Refuse);
    let fields: EmbedFields = reader.read()?;
    if fields.normalize == Some(false) {
        let why = "the vectors of models here have a length of 1";
        reader.unsupported(&FieldPath::from("normalize"), why)?;
    }
    reader.finish(|_| false)?;
    let model = fields.model.or_else(|| sole(&llm.api, Capability::Embed));
    let request = EmbeddingRequest {
        model: model.ok_or_else(|| missing(&FieldPath::from("model")))?,
        inputs: vec![EmbeddingInput::Text(fields.text)],
        dimensions: None,
        truncate: false,
        prompt: PromptUse::Usual,
        allow_remote: false,
    };
    let made = make(&llm.api, &context, EMBED, &parts, request).await?;
    drop(reserved);
    let vector = made.vectors.first();
    let body = json!({
        "embedding": vector,
        "dimension": vector.map_or(0, Vec::len),
        "model_used": made.model,
        "inference_time_ms": milliseconds(began),
    });
    let mut response = json_response(StatusCode::OK, &body);
    append_headers(response.headers_mut(), &made.admission.allowance().headers);
    Ok(response)
}
