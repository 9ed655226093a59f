//! The OpenAI Responses dialect: responses, whole, streamed and in the background, and conversations.

mod assembly;
mod background;
mod checks;
mod compact;
mod contract;
mod conversations;
mod count;
mod create;
mod drive;
mod echo;
mod file_search;
mod history;
mod items;
mod keep;
mod messages;
mod recent;
mod request;
mod retrieve;
mod sse;
#[cfg(test)]
mod tests;
mod tools;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use futures::stream::{self, StreamExt as _};
use http::request::Parts;
use http::{Extensions, Request as HttpRequest, StatusCode};
use mortise_http::contract::Routes;
use mortise_http::{
    Api, Context, Conventions, Dialect, Owner, Problem, Reservation, append_headers, json_response,
};
use serde_json::{Map, Value, json};

use self::create::{CheckedRequest, StartedResponse, begin};
use self::drive::Driver;
use self::recent::RecentResponse;
use self::sse::EventTexts;
use crate::ids::Ids;
use crate::openai_error::error_body;
use crate::receive::{ReceivedRequest, receive};
use crate::socket::{self, SocketDialect};
use crate::state::ApiState;
use crate::stored::account;
use crate::unsupported::Unsupported;
use crate::{hints, idempotency};

pub use self::background::{cancel_asked, resume};

const RESPONSES: &str = "/v1/responses";
const RESPONSE: &str = "/v1/responses/{id}";
const CANCEL: &str = "/v1/responses/{id}/cancel";
const COMPACT: &str = "/v1/responses/compact";
const INPUT_TOKENS: &str = "/v1/responses/input_tokens";
const RENDER: &str = "/v1/responses/render";
const INPUT_ITEMS: &str = "/v1/responses/{id}/input_items";
const CONVERSATIONS: &str = "/v1/conversations";
const CONVERSATION: &str = "/v1/conversations/{id}";
const CONVERSATION_ITEMS: &str = "/v1/conversations/{id}/items";
const CONVERSATION_ITEM: &str = "/v1/conversations/{id}/items/{item}";

/// The dialect's routes.
pub fn api(state: Arc<ApiState>) -> Api {
    let (router, operations) = routes(state.unsupported).into_parts();
    Api {
        router: router
            .route_layer(from_fn_with_state(Arc::clone(&state), idempotency::layer))
            .with_state(state),
        dialect: Dialect {
            prefix: "/v1",
            shape: error_body,
            conventions: Conventions::NONE,
        },
        routes: &[
            RESPONSES,
            COMPACT,
            INPUT_TOKENS,
            RENDER,
            RESPONSE,
            CONVERSATIONS,
            CONVERSATION,
        ],
        contract: contract::contract(operations),
    }
}

fn routes(mode: Unsupported) -> Routes<Arc<ApiState>> {
    Routes::default()
        .on(contract::create(mode), create)
        .on(contract::connect(), connect)
        .on(contract::compact(mode), compact::compact)
        .on(contract::input_tokens(mode), count::input_tokens)
        .on(contract::render(mode), count::render)
        .on(contract::retrieve(), retrieve::retrieve)
        .on(contract::delete(), retrieve::delete)
        .on(contract::cancel(), retrieve::cancel)
        .on(contract::input_items(), retrieve::input_items)
        .on(contract::create_conversation(), conversations::create)
        .on(contract::get_conversation(), conversations::retrieve)
        .on(contract::update_conversation(), conversations::update)
        .on(contract::delete_conversation(), conversations::delete)
        .on(contract::list_items(), conversations::list_items)
        .on(contract::add_items(), conversations::add_items)
        .on(contract::get_item(), conversations::retrieve_item)
        .on(contract::delete_item(), conversations::delete_item)
}

/// Responses over a WebSocket: frames of type `response.create`, and events.
const SOCKET: SocketDialect = SocketDialect {
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
    let bodies = Arc::clone(&state.http.bodies);
    let own = |owner: &Owner| {
        let mut own = Extensions::new();
        own.insert(RecentResponse::new(bodies, owner.clone()));
        own
    };
    socket::upgrade(state, context, request, SOCKET, own).await
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
    let ReceivedRequest {
        parts,
        object,
        reserved,
        account: known,
    } = receive(&state, &context, RESPONSES, request).await?;
    checks::check_hints(&object)?;
    if let Some(user) = hints::user(&object) {
        context.record.user(user);
    }
    let mut ids = Ids::of(&parts);
    let kept = object.get("background").and_then(Value::as_bool) == Some(true);
    let kept = kept.then(|| object.clone());
    let call = request::parse(object, state.unsupported, &mut ids)?;
    let owner = account(&state, &context, RESPONSES, &parts, known).await?;
    let (stream, ignored) = (call.fields.stream, call.ignored.clone());
    let asked = CheckedRequest {
        call,
        owner,
        ids,
        again: None,
    };
    let mut begun = begun(&state, &context, &parts, reserved, asked).await?;
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

/// Begin to answer. A connection forgets the response that a refused request continues.
async fn begun(
    state: &Arc<ApiState>,
    context: &Context,
    parts: &Parts,
    reserved: Reservation,
    asked: CheckedRequest,
) -> Result<StartedResponse, Problem> {
    let previous = asked.call.previous.clone();
    let begun = begin(state, context, parts, reserved, asked).await;
    if let (Err(_), Some(recent), Some(previous)) =
        (&begun, parts.extensions.get::<RecentResponse>(), previous)
    {
        recent.forget(&previous);
    }
    begun
}

/// Events of a response, as they come.
fn events(driver: Driver) -> EventTexts {
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
