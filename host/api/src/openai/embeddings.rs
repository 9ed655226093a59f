//! `POST /v1/embeddings`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Request as HttpRequest, StatusCode};
use mortise_http::{Context, Problem, json_response};
use mortise_service::{EmbeddingInput, EmbeddingRequest, PromptUse};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::inputs::{Input, Inputs};
use super::sampling::positive;
use super::{EMBEDDINGS, read};
use crate::embed::embed;
use crate::fields::{FieldReader, RouteFields, words};
use crate::ignored::add_headers;
use crate::receive::ReceivedRequest;
use crate::state::ApiState;
use crate::unsupported::Unsupported;

/// Fields of this route. `user` is an opaque label, as in chat.
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
#[allow(dead_code, reason = "`user` is read and has no effect")]
struct EmbeddingFields {
    model: String,
    input: Inputs,
    encoding_format: Option<Encoding>,
    dimensions: Option<u32>,
    user: Option<Value>,
    /// An extension that other servers have, too.
    input_type: Option<InputType>,
    /// An extension, as text-embeddings-inference has it.
    prompt_name: Option<String>,
    /// An extension, as vLLM has it: -1 cuts what is longer than the context.
    truncate_prompt_tokens: Option<i64>,
    /// An extension, as chats have it.
    allow_remote: Option<bool>,
}

words! {
    /// Use of the texts, by which the model's instruction is chosen.
    InputType {
        Query = "query",
        SearchQuery = "search_query",
        Document = "document",
        SearchDocument = "search_document",
        Passage = "passage",
    }
}

words! {
    /// Encoding of vectors: numbers, or little-endian single precision in base64, which the official
    /// clients ask for.
    Encoding {
        Float = "float",
        Base64 = "base64",
    }
}

/// A request, translated.
#[derive(Debug)]
struct EmbeddingCall {
    request: EmbeddingRequest,
    encoding: Encoding,
    ignored: Vec<String>,
}

/// `POST /v1/embeddings`
pub(crate) async fn embeddings(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let ReceivedRequest {
        parts,
        object,
        reserved,
        ..
    } = read(&state, &context, EMBEDDINGS, request).await?;
    let EmbeddingCall {
        request,
        encoding,
        ignored,
    } = parse(object, state.unsupported)?;
    let made = embed(&state, &context, EMBEDDINGS, &parts, request).await?;
    drop(reserved);
    let data: Vec<Value> = made
        .vectors
        .iter()
        .enumerate()
        .map(|(index, vector)| {
            json!({"object": "embedding", "index": index, "embedding": written(vector, encoding)})
        })
        .collect();
    let body = json!({
        "object": "list",
        "data": data,
        "model": made.model,
        "usage": {
            "prompt_tokens": made.usage.prompt_tokens,
            "total_tokens": made.usage.prompt_tokens,
        },
    });
    let mut response = json_response(StatusCode::OK, &body);
    add_headers(&mut response, &made.admission.allowance().headers, &ignored);
    Ok(response)
}

fn written(vector: &[f32], encoding: Encoding) -> Value {
    match encoding {
        Encoding::Float => json!(vector),
        Encoding::Base64 => {
            let bytes: Vec<u8> = vector
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect();
            json!(STANDARD.encode(bytes))
        }
    }
}

/// The fields of a request, for the contract.
pub(super) fn fields(mode: Unsupported) -> RouteFields {
    RouteFields::new(mode).with::<EmbeddingFields>()
}

fn parse(object: Map<String, Value>, mode: Unsupported) -> Result<EmbeddingCall, Problem> {
    let mut reader = FieldReader::new(object, mode);
    let fields: EmbeddingFields = reader.read()?;
    let inputs = fields.input.0.into_iter().map(|input| match input {
        Input::Text(text) => EmbeddingInput::Text(text),
        Input::Tokens(ids) => EmbeddingInput::Tokens(ids),
    });
    let request = EmbeddingRequest {
        model: fields.model,
        inputs: inputs.collect(),
        dimensions: positive(fields.dimensions, "dimensions", &mut reader)?,
        truncate: truncate(fields.truncate_prompt_tokens)?,
        prompt: prompt(fields.input_type, fields.prompt_name)?,
        allow_remote: fields.allow_remote.unwrap_or(false),
    };
    Ok(EmbeddingCall {
        request,
        encoding: fields.encoding_format.unwrap_or(Encoding::Float),
        ignored: reader.finish(|_| false)?,
    })
}

/// Whether a caller asks for texts that are too long to be cut.
fn truncate(tokens: Option<i64>) -> Result<bool, Problem> {
    match tokens {
        None => Ok(false),
        Some(-1) => Ok(true),
        Some(other) => {
            let message = format!(
                "`truncate_prompt_tokens` is {other}; texts can be cut at the end of the context only, which is -1"
            );
            Err(Problem::invalid("truncate_prompt_tokens", message))
        }
    }
}

/// The instruction that a caller asks for.
fn prompt(input: Option<InputType>, name: Option<String>) -> Result<PromptUse, Problem> {
    match (input, name) {
        (None, None) => Ok(PromptUse::Usual),
        (None, Some(name)) => Ok(PromptUse::Named(name)),
        (Some(InputType::Query | InputType::SearchQuery), None) => Ok(PromptUse::Query),
        (Some(_), None) => Ok(PromptUse::Document),
        (Some(_), Some(_)) => {
            let message =
                "`prompt_name` and `input_type` both choose an instruction; give one of them";
            Err(Problem::invalid("prompt_name", message))
        }
    }
}
