//! `POST /v1/embeddings`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Request as HttpRequest, StatusCode};
use mortise_http::{AnswerRecord, Context, Problem as ApiError, json_response};
use mortise_service::{EmbeddingInput, EmbeddingRequest};
use serde_json::{Map, Value, json};

use super::fields::{Fields, take_positive, wrong_type};
use super::{EMBEDDINGS, add_headers, read};
use crate::call::call_of;
use crate::problem::problem_of;
use crate::state::ApiState;
use crate::unsupported::Unsupported;

/// Every field this route knows, for the nearest-name hint.
const KNOWN: [&str; 5] = ["model", "input", "encoding_format", "dimensions", "user"];

/// How vectors are written.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Encoding {
    /// Numbers.
    Float,
    /// Little-endian single precision in base64, which the official clients ask for.
    Base64,
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
    State(front): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, ApiError> {
    let (parts, object) = read(&front, request).await?;
    let EmbeddingCall {
        request,
        encoding,
        ignored,
    } = parse(object, front.unsupported)?;
    context.notes.asked(&request.model, false);
    let call = call_of(&context, EMBEDDINGS, "POST", &parts.headers);
    let made = front
        .service
        .embed(&call, request)
        .await
        .map_err(problem_of)?;
    context.notes.answers(&made.model);
    context
        .notes
        .principal(&made.admission.allowance().principal.subject);
    context.notes.answered(AnswerRecord {
        prompt_tokens: made.usage.prompt_tokens,
        finish: "stop",
        ..AnswerRecord::default()
    });
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

fn parse(body: Map<String, Value>, mode: Unsupported) -> Result<EmbeddingCall, ApiError> {
    let mut fields = Fields::new(body, mode);
    let model = fields.required_string("model")?;
    let inputs = take_inputs(&mut fields)?;
    let encoding = match fields.choice("encoding_format", &["float", "base64"])? {
        Some("base64") => Encoding::Base64,
        _ => Encoding::Float,
    };
    let dimensions = take_positive(&mut fields, "dimensions")?;
    // An opaque label, as in chat.
    fields.take("user");
    Ok(EmbeddingCall {
        request: EmbeddingRequest {
            model,
            inputs,
            dimensions,
        },
        encoding,
        ignored: fields.finish(&KNOWN)?,
    })
}

/// A text, texts, tokens, or lists of tokens.
fn take_inputs(fields: &mut Fields) -> Result<Vec<EmbeddingInput>, ApiError> {
    const EXPECTED: &str = "a text, a list of texts, a list of token ids, or a list of such lists";
    let wrong = |value: &Value| wrong_type("input", EXPECTED, value);
    let input = fields
        .take("input")
        .ok_or_else(|| fields.missing("input"))?;
    match &input {
        Value::String(text) => Ok(vec![EmbeddingInput::Text(text.clone())]),
        Value::Array(list) if list.first().is_some_and(Value::is_number) => tokens(list)
            .map(|tokens| vec![tokens])
            .ok_or_else(|| wrong(&input)),
        Value::Array(list) => list
            .iter()
            .map(|entry| match entry {
                Value::String(text) => Ok(EmbeddingInput::Text(text.clone())),
                Value::Array(list) => tokens(list).ok_or_else(|| wrong(entry)),
                other => Err(wrong(other)),
            })
            .collect(),
        other => Err(wrong(other)),
    }
}

fn tokens(list: &[Value]) -> Option<EmbeddingInput> {
    let ids = list
        .iter()
        .map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()));
    ids.collect::<Option<Vec<u32>>>()
        .map(EmbeddingInput::Tokens)
}
