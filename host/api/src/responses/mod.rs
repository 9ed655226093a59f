//! The OpenAI Responses dialect: responses, whole, streamed and in the background, and conversations.

mod assembly;
mod background;
mod conversations;
mod count;
mod create;
mod drive;
mod history;
mod items;
mod keep;
mod messages;
mod request;
mod retrieve;
mod sse;
#[cfg(test)]
mod tests;
mod tools;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use futures::stream::{self, StreamExt as _};
use http::{Request as HttpRequest, StatusCode};
use mortise_http::{Api, Context, Conventions, Problem, append_headers, json_response};
use serde_json::{Map, Value, json};

use self::create::{Asked, begin};
use self::drive::Driver;
use self::sse::Events;
use crate::idempotency;
use crate::ids::Ids;
use crate::openai_error::error_body;
use crate::receive::{Received, receive};
use crate::socket::{self, Dialect};
use crate::state::ApiState;
use crate::stored::account;

pub use self::background::resume;

const RESPONSES: &str = "/v1/responses";
const INPUT_TOKENS: &str = "/v1/responses/input_tokens";
const RESPONSE: &str = "/v1/responses/{id}";
const CANCEL: &str = "/v1/responses/{id}/cancel";
const INPUT_ITEMS: &str = "/v1/responses/{id}/input_items";
const CONVERSATIONS: &str = "/v1/conversations";
const CONVERSATION: &str = "/v1/conversations/{id}";
const CONVERSATION_ITEMS: &str = "/v1/conversations/{id}/items";
const CONVERSATION_ITEM: &str = "/v1/conversations/{id}/items/{item}";

/// The dialect's routes.
pub fn api(state: Arc<ApiState>) -> Api {
    let one = get(retrieve::retrieve).delete(retrieve::delete);
    let conversation = get(conversations::retrieve)
        .post(conversations::update)
        .delete(conversations::delete);
    let items = get(conversations::list_items).post(conversations::add_items);
    let item = get(conversations::retrieve_item).delete(conversations::delete_item);
    Api {
        router: Router::new()
            .route(RESPONSES, post(create).get(connect))
            .route(INPUT_TOKENS, post(count::count))
            .route(RESPONSE, one)
            .route(CANCEL, post(retrieve::cancel))
            .route(INPUT_ITEMS, get(retrieve::input_items))
            .route(CONVERSATIONS, post(conversations::create))
            .route(CONVERSATION, conversation)
            .route(CONVERSATION_ITEMS, items)
            .route(CONVERSATION_ITEM, item)
            .route_layer(from_fn_with_state(Arc::clone(&state), idempotency::layer))
            .with_state(state),
        prefix: "/v1",
        routes: &[
            RESPONSES,
            INPUT_TOKENS,
            RESPONSE,
            CONVERSATIONS,
            CONVERSATION,
        ],
        shape: error_body,
        conventions: Conventions::default(),
    }
}

/// Responses over a WebSocket: frames of type `response.create`, and events.
const SOCKET: Dialect = Dialect {
    body: frame,
    handle: |state, context, request| Box::pin(respond(state, context, request)),
    problem: |problem| {
        let mut event = error_body(problem);
        event["type"] = json!("error");
        event["status"] = json!(problem.status.as_u16());
        event
    },
    done: None,
};

/// The body of a request, from a frame.
fn frame(mut object: Map<String, Value>) -> Result<Map<String, Value>, Problem> {
    match object.shift_remove("type") {
        Some(Value::String(kind)) if kind == "response.create" => Ok(object),
        _ => Err(Problem::invalid(
            "type",
            "`type` must be `response.create`, with the fields of a request beside it",
        )),
    }
}

/// `GET /v1/responses`: a WebSocket.
async fn connect(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    socket::upgrade(state, context, request, SOCKET).await
}

/// `POST /v1/responses`
async fn create(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    respond(state, context, request).await
}

async fn respond(
    state: Arc<ApiState>,
    context: Context,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let Received {
        parts,
        object,
        reserved,
        account: known,
    } = receive(&state, &context, RESPONSES, request).await?;
    request::check_hints(&object)?;
    let mut ids = Ids::of(&parts);
    let kept = object.get("background").and_then(Value::as_bool) == Some(true);
    let kept = kept.then(|| object.clone());
    let call = request::parse(object, state.unsupported, &mut ids)?;
    let owner = account(&state, &context, RESPONSES, &parts, known).await?;
    let (stream, ignored) = (call.fields.stream, call.ignored.clone());
    let asked = Asked {
        call,
        owner,
        ids,
        again: None,
    };
    let mut begun = begin(&state, &context, &parts, reserved, asked).await?;
    let headers = std::mem::take(&mut begun.headers);
    let record = Arc::clone(&context.record);
    let mut response = if let Some(kept) = kept {
        let principal = begun.driver.principal();
        let peer = context.peer.ip();
        let detached = background::detach(&state, begun, &kept, principal, peer);
        let (response, live) = detached.await?;
        match stream {
            true => sse::response(retrieve::live_events(live, 0), state.http.heartbeat, record),
            false => json_response(StatusCode::OK, &response),
        }
    } else if stream {
        begun.driver.streams();
        sse::response(events(begun.driver), state.http.heartbeat, record)
    } else {
        json_response(StatusCode::OK, &whole(begun.driver).await?)
    };
    append_headers(response.headers_mut(), &headers);
    crate::ignored::add_header(&mut response, &ignored);
    Ok(response)
}

/// Events of a response, as they come.
fn events(driver: Driver) -> Events {
    stream::unfold(driver, |mut driver| async move {
        let events = driver.next().await?;
        let events = events.iter().map(Value::to_string).collect();
        Some((events, driver))
    })
    .boxed()
}

/// The whole response.
async fn whole(mut driver: Driver) -> Result<Value, Problem> {
    while driver.next().await.is_some() {}
    match driver.problem.take() {
        Some(problem) => Err(problem),
        None => Ok(driver.assembly.response()),
    }
}
