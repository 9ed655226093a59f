//! Text and conversations as tokens, and tokens as text: `/tokenize`, `/detokenize` and
//! `/v1/chat/completions/render`, in vLLM's shapes.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use http::{Request as HttpRequest, StatusCode};
use mortise_http::{Context, Problem, json_response};
use mortise_service::{EncodedPrompt, Request};
use serde::Deserialize;
use serde_json::{Map, json};

use super::chat::{self, ChatCall};
use super::{DETOKENIZE, RENDER, TOKENIZE, TOKENIZE_V1, read};
use crate::call::{call_of, record_admitted};
use crate::fields::{FieldPath, FieldReader, RouteFields, TokenId, missing};
use crate::ignored::{add_headers, prompt_response};
use crate::problem::problem_of;
use crate::receive::{ReceivedRequest, encode_prompt, wait_limits};
use crate::state::ApiState;
use crate::template_use;
use crate::unsupported::Unsupported;

/// Fields beside those of a chat request.
const OWN_FIELDS: [&str; 2] = ["add_special_tokens", "return_token_strs"];

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct TextFields {
    model: String,
    prompt: Option<String>,
    /// Another name of `prompt`.
    text: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object")]
struct Options {
    add_special_tokens: Option<bool>,
    return_token_strs: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct Ids {
    model: String,
    tokens: Vec<TokenId>,
}

/// Options beside a text or a conversation, for the contract.
pub(super) fn options(mode: Unsupported) -> RouteFields {
    RouteFields::new(mode).with::<Options>()
}

/// The fields of a text, for the contract.
pub(super) fn text_fields(mode: Unsupported) -> RouteFields {
    options(mode).with::<TextFields>()
}

/// The fields of a list of tokens, for the contract.
pub(super) fn id_fields(mode: Unsupported) -> RouteFields {
    RouteFields::new(mode).with::<Ids>()
}

/// `POST /tokenize`
pub(super) async fn tokenize(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    encode(&state, &context, TOKENIZE, request).await
}

/// `POST /v1/tokenize`
pub(super) async fn tokenize_v1(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    encode(&state, &context, TOKENIZE_V1, request).await
}

async fn encode(
    state: &ApiState,
    context: &Context,
    route: &'static str,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let received = read(state, context, route, request).await?;
    let (prompt, options, ignored) = match received.object.contains_key("messages") {
        true => conversation(state, context, route, received).await?,
        false => text(state, context, route, received).await?,
    };
    let mut body = json!({
        "count": prompt.ids.len(),
        "max_model_len": prompt.context_length,
        "tokens": prompt.ids,
    });
    if options.return_token_strs.unwrap_or(false) {
        body["token_strs"] = json!(prompt.token_texts());
    }
    Ok(prompt_response(&body, &prompt, &ignored))
}

type Encoded = (EncodedPrompt, Options, Vec<String>);

/// A conversation, as the chat route would render and encode it.
async fn conversation(
    state: &ApiState,
    context: &Context,
    route: &'static str,
    mut received: ReceivedRequest,
) -> Result<Encoded, Problem> {
    let mut own = Map::new();
    for name in OWN_FIELDS {
        if let Some(value) = received.object.shift_remove(name) {
            own.insert(name.to_owned(), value);
        }
    }
    let mut reader = FieldReader::new(own, state.unsupported);
    let options: Options = reader.read()?;
    if options.add_special_tokens == Some(true) {
        let why = "the chat template writes the special tokens of a conversation";
        reader.unsupported(&FieldPath::from("add_special_tokens"), why)?;
    }
    let mut ignored = reader.finish(|_| false)?;
    let (prompt, more) = rendered(state, context, route, received).await?;
    ignored.extend(more);
    Ok((prompt, options, ignored))
}

async fn rendered(
    state: &ApiState,
    context: &Context,
    route: &'static str,
    received: ReceivedRequest,
) -> Result<(EncodedPrompt, Vec<String>), Problem> {
    let ReceivedRequest {
        parts,
        object,
        reserved,
        ..
    } = received;
    let ChatCall {
        fields, ignored, ..
    } = chat::parse(object, state.unsupported)?;
    context.record.asked(&fields.model, false);
    let request = Request::check(fields).map_err(problem_of)?;
    let prompt = encode_prompt(state, context, route, &parts.headers, &request).await?;
    drop(reserved);
    Ok((prompt, ignored))
}

/// A text as it stands.
async fn text(
    state: &ApiState,
    context: &Context,
    route: &'static str,
    received: ReceivedRequest,
) -> Result<Encoded, Problem> {
    let mut reader = FieldReader::new(received.object, state.unsupported);
    let options: Options = reader.read()?;
    let fields: TextFields = reader.read()?;
    let ignored = reader.finish(|_| false)?;
    let text = match (fields.prompt, fields.text) {
        (Some(_), Some(_)) => {
            let text = "`text` is another name of `prompt`; give one of them";
            return Err(Problem::invalid("text", text));
        }
        (prompt, text) => prompt
            .or(text)
            .ok_or_else(|| missing(&FieldPath::from("prompt")))?,
    };
    context.record.asked(&fields.model, false);
    let call = call_of(context, route, "POST", &received.parts.headers);
    let limits = wait_limits(state, context, &received.parts.headers)?;
    let around = options.add_special_tokens.unwrap_or(true);
    let encoding = async {
        let encoded = state
            .service
            .encode_text(&call, &fields.model, text, around)
            .await;
        encoded.map_err(problem_of)
    };
    let prompt = limits.bound(encoding).await?;
    record_admitted(context, &prompt.model, &prompt.admission);
    Ok((prompt, options, ignored))
}

/// `POST /detokenize`
pub(super) async fn detokenize(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let ReceivedRequest {
        parts,
        object,
        reserved: _reserved,
        ..
    } = read(&state, &context, DETOKENIZE, request).await?;
    let mut reader = FieldReader::new(object, state.unsupported);
    let fields: Ids = reader.read()?;
    let ignored = reader.finish(|_| false)?;
    context.record.asked(&fields.model, false);
    let call = call_of(&context, DETOKENIZE, "POST", &parts.headers);
    let limits = wait_limits(&state, &context, &parts.headers)?;
    let ids: Vec<u32> = fields.tokens.iter().map(|TokenId(id)| *id).collect();
    let decoding = async {
        let decoded = state.service.decode(&call, &fields.model, &ids).await;
        decoded.map_err(problem_of)
    };
    let decoded = limits.bound(decoding).await?;
    record_admitted(&context, &decoded.model, &decoded.admission);
    let mut response = json_response(StatusCode::OK, &json!({"prompt": decoded.text}));
    add_headers(
        &mut response,
        &decoded.admission.allowance().headers,
        &ignored,
    );
    Ok(response)
}

/// `POST /v1/chat/completions/render`: the prompt of a chat request, which is not answered.
pub(super) async fn render(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let received = read(&state, &context, RENDER, request).await?;
    let (prompt, ignored) = rendered(&state, &context, RENDER, received).await?;
    let body = json!({
        "model": prompt.model,
        "prompt": prompt.text,
        "prompt_token_ids": prompt.ids,
        "count": prompt.ids.len(),
        "max_model_len": prompt.context_length,
        "stop": prompt.stop,
        "template": prompt.template.as_ref().map(template_use::shown),
    });
    Ok(prompt_response(&body, &prompt, &ignored))
}
