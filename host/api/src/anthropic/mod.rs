//! The Anthropic dialect: messages, their tokens counted, and models in Anthropic's shape.

mod blocks;
mod contract;
mod error;
mod messages;
mod models;
mod reply;
mod request;
mod tools;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use http::{Request as HttpRequest, StatusCode};
use mortise_http::contract::Routes;
use mortise_http::{Api, Context, Conventions, Dialect, Problem, json_response};
use mortise_service::Request;
use serde_json::json;

use self::reply::{Envelope, MessageEvents};
use self::request::MessageCall;
use crate::idempotency;
use crate::ignored::add_headers;
use crate::problem::problem_of;
use crate::receive::{ReceivedRequest, encode_prompt, receive};
use crate::start::start;
use crate::state::ApiState;
use crate::stream::stream_response;

pub use self::error::error_body;
pub use self::models::beside;

const MESSAGES: &str = "/v1/messages";
const COUNT_TOKENS: &str = "/v1/messages/count_tokens";

/// The header by which callers of this dialect are known on routes that others have too.
const VERSION_HEADER: &str = "anthropic-version";

/// Paths and shape of problems.
pub const DIALECT: Dialect = Dialect {
    prefix: MESSAGES,
    shape: error_body,
    conventions: Conventions {
        marker: Some(VERSION_HEADER),
        id_header: Some(error::ID_HEADER),
        status: Some(error::status),
    },
};

/// The dialect's routes.
pub fn api(state: Arc<ApiState>) -> Api {
    let mode = state.unsupported;
    let routes = Routes::default()
        .on(contract::create_message(mode), messages)
        .on(contract::count_tokens(mode), count_tokens);
    let (router, operations) = routes.into_parts();
    Api {
        router: router
            .route_layer(from_fn_with_state(Arc::clone(&state), idempotency::layer))
            .with_state(state),
        dialect: DIALECT,
        routes: &[MESSAGES, COUNT_TOKENS],
        contract: contract::contract(operations),
    }
}

/// `POST /v1/messages`
async fn messages(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let ReceivedRequest {
        parts,
        object,
        reserved,
        ..
    } = receive(&state, &context, MESSAGES, request).await?;
    let MessageCall {
        fields,
        thinking,
        ignored,
    } = request::parse(object, state.unsupported)?;
    let (stream, max_tokens) = (fields.stream, fields.max_tokens);
    let started = start(&state, &context, MESSAGES, &parts, reserved, vec![fields]).await;
    let started = started.map_err(renamed)?;
    let envelope = Envelope {
        id: format!("msg_{}", uuid::Uuid::new_v4().simple()),
        model: started.model.clone(),
        thinking,
        prompt_tokens: started.answering.prompt_tokens(),
        max_tokens: max_tokens.unwrap_or(u32::MAX),
        context: context_of(&state, &started.model),
    };
    let mut response = if stream {
        let writer = MessageEvents::new(envelope);
        stream_response(started.answering, writer, state.http.heartbeat)
    } else {
        let message = reply::whole(started.answering, envelope).await;
        json_response(StatusCode::OK, &message.map_err(renamed)?)
    };
    add_headers(&mut response, &started.headers, &ignored);
    Ok(response)
}

/// `POST /v1/messages/count_tokens`
async fn count_tokens(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let ReceivedRequest {
        parts,
        object,
        reserved,
        ..
    } = receive(&state, &context, COUNT_TOKENS, request).await?;
    let call = request::parse_count(object, state.unsupported)?;
    context.record.asked(&call.fields.model, false);
    let request = Request::check(call.fields)
        .map_err(problem_of)
        .map_err(renamed)?;
    let headers = &parts.headers;
    let prompt = encode_prompt(&state, &context, COUNT_TOKENS, headers, &request).await?;
    drop(reserved);
    let body = json!({"input_tokens": prompt.ids.len()});
    let mut response = json_response(StatusCode::OK, &body);
    add_headers(
        &mut response,
        &prompt.admission.allowance().headers,
        &call.ignored,
    );
    Ok(response)
}

/// Tokens of a model's context, where they are known.
fn context_of(state: &ApiState, model: &str) -> Option<usize> {
    let model = state.service.model(model).ok()?;
    model.loaded.as_ref()?.model.context_length()
}

/// A problem under the names that fields have in this dialect.
fn renamed(mut problem: Problem) -> Problem {
    let rest = problem
        .param
        .as_deref()
        .and_then(|param| param.strip_prefix("stop"));
    if let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with('[')) {
        let path = format!("stop_sequences{rest}");
        problem.message = format!("`{path}`: {}", problem.message).into_boxed_str();
        problem.param = Some(path);
    }
    problem
}
