//! Responses that are stored: read, streamed again, cancelled, deleted; and their input items.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use futures::stream::{self, StreamExt as _};
use http::{Request as HttpRequest, StatusCode, header};
use mortise_http::{Context, Problem, json_response};
use mortise_store::{Change, Key, Record, RecordKind};
use serde_json::{Value, json};

use super::sse::{self, EventTexts};
use super::{CANCEL, INPUT_ITEMS, RESPONSE};
use crate::cancellations;
use crate::live::LiveAnswer;
use crate::paging::{QueryParameters, list_body};
use crate::state::ApiState;
use crate::stored::{after_absent, caller, found, parsed, store_problem};

type Handled = Result<Response, Problem>;

/// Pause between two looks at a response that another host makes.
const ELSEWHERE_PAUSE: Duration = Duration::from_millis(250);

async fn stored(state: &ApiState, owner: &Arc<str>, id: &str) -> Result<Record, Problem> {
    let key = Key::new(owner, RecordKind::Response, id);
    found(state, key, "response", "response_id").await
}

/// `GET /v1/responses/{id}`
pub(super) async fn retrieve(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&state, &context, RESPONSE, "GET", &parts).await?;
    let known = ["stream", "starting_after", "include", "include_obfuscation"];
    let query = QueryParameters::of(&parts.uri, &known)?;
    let live = state.live.find(&caller.owner, &id);
    let record = stored(&state, &caller.owner, &id).await?;
    // Clients send it with `stream=false`, too, where it selects nothing.
    let after = query.number("starting_after")?;
    let mut response = if query.flag("stream")? {
        let from = after.map_or(0, |after| after.saturating_add(1));
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let events = match live {
            Some(live) => live_events(live, from),
            None if record.open && state.store.is_shared() => {
                events_elsewhere(Arc::clone(&state), record.key, from)
            }
            None => kept_events(&state, &record.key, from).await?,
        };
        sse::response(events, state.http.heartbeat, Arc::clone(&context.record))
    } else if live.is_some() && record.open {
        let mut response: Value = serde_json::from_slice(&record.body).unwrap_or_default();
        response["status"] = json!("in_progress");
        json_response(StatusCode::OK, &response)
    } else {
        as_stored(record)
    };
    caller.add_headers(&mut response);
    Ok(response)
}

/// A record whose body is what was answered.
fn as_stored(record: Record) -> Response {
    let mut response = Response::new(Body::from(record.body));
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Events of a response that is being made, as they come.
pub(super) fn live_events(live: Arc<LiveAnswer>, from: usize) -> EventTexts {
    stream::unfold((live, from), |(live, from)| async move {
        let new = live.from(from).await?;
        let next = from + new.len();
        Some((new, (live, next)))
    })
    .boxed()
}

/// Events of a response that another host makes, all of them when it has ended.
fn events_elsewhere(state: Arc<ApiState>, key: Key, from: usize) -> EventTexts {
    let kept = async move {
        while let Ok(true) = cancellations::is_open(&state, &key).await {
            tokio::time::sleep(ELSEWHERE_PAUSE).await;
        }
        match kept_events(&state, &key, from).await {
            Ok(events) => events,
            // It was deleted, or the store is lost: the stream ends without its last event.
            Err(_) => stream::empty().boxed(),
        }
    };
    stream::once(kept).flatten().boxed()
}

/// Events of a response that was made in the background.
async fn kept_events(state: &ApiState, key: &Key, from: usize) -> Result<EventTexts, Problem> {
    let key = Key {
        kind: RecordKind::ResponseEvents,
        ..key.clone()
    };
    let record = state.store.get(key).await.map_err(store_problem)?;
    let Some(record) = record else {
        return Err(Problem::invalid(
            "stream",
            "this response cannot be streamed again: it was not made with `background`",
        ));
    };
    let lines = String::from_utf8(record.body).unwrap_or_default();
    let events: Vec<String> = lines.lines().skip(from).map(str::to_owned).collect();
    Ok(stream::iter([events]).boxed())
}

/// `DELETE /v1/responses/{id}`
pub(super) async fn delete(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&state, &context, RESPONSE, "DELETE", &parts).await?;
    let record = stored(&state, &caller.owner, &id).await?;
    if let Some(live) = state.live.find(&caller.owner, &id) {
        live.cancel();
    } else if record.open && state.store.is_shared() {
        cancellations::ask(&state, &record.key).await?;
    }
    let events = Key {
        kind: RecordKind::ResponseEvents,
        ..record.key.clone()
    };
    let changes = vec![Change::Delete(record.key), Change::Delete(events)];
    state.store.commit(changes).await.map_err(store_problem)?;
    let body = json!({"id": id, "object": "response", "deleted": true});
    Ok(caller.answer(&body))
}

/// `POST /v1/responses/{id}/cancel`
pub(super) async fn cancel(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&state, &context, CANCEL, "POST", &parts).await?;
    let live = state.live.find(&caller.owner, &id);
    if let Some(live) = live {
        live.cancel();
        live.ended().await;
    } else if state.store.is_shared() {
        let record = stored(&state, &caller.owner, &id).await?;
        if record.open {
            cancellations::ask_and_wait(&state, &record.key).await?;
        }
    }
    let record = stored(&state, &caller.owner, &id).await?;
    let made: Value = serde_json::from_slice(&record.body).unwrap_or_default();
    if made["background"] != true {
        let problem = "only a response that is made with `background` can be cancelled";
        return Err(Problem::invalid("response_id", problem));
    }
    let mut response = as_stored(record);
    caller.add_headers(&mut response);
    Ok(response)
}

/// `GET /v1/responses/{id}/input_items`
pub(super) async fn input_items(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    Path(id): Path<String>,
    request: HttpRequest<Body>,
) -> Handled {
    let (parts, _) = request.into_parts();
    let caller = caller(&state, &context, INPUT_ITEMS, "GET", &parts).await?;
    let query = QueryParameters::of(&parts.uri, &["after", "limit", "order", "include"])?;
    let page = query.page(false)?;
    let record = stored(&state, &caller.owner, &id).await?;
    let listing = state.store.items(record.key, page.clone()).await;
    let listing = listing.map_err(|error| after_absent("item", error, page.after.as_deref()))?;
    Ok(caller.answer(&list_body(parsed(&listing))))
}
