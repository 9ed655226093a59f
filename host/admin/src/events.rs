//! Events of a running server as server-sent events: states of models and progress of their loads.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures::stream::{self, Stream, StreamExt as _};
use mortise_library::PullStatus;
use mortise_models::lifecycle::ModelEvent;
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::Admin;

/// Pause after which a silent stream sends a comment.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Events from now on, after one event a model with its present state.
pub(crate) async fn stream(State(admin): State<Arc<Admin>>) -> Response {
    let events = admin.models.listen();
    let now: Vec<Value> = admin
        .models
        .statuses()
        .iter()
        .map(|model| {
            json!({
                "model": model.listing.name,
                "state": model.state.name(),
                "error": model.last_error,
            })
        })
        .collect();
    let first = now
        .into_iter()
        .map(|state| Ok(event("model.state", &state)));
    let pulls = admin.library.as_ref().map(|library| library.listen());
    let pulls = stream::iter(pulls).flat_map(of_pulls);
    let events = stream::select(later(events), pulls);
    let events = stream::iter(first).chain(events);
    let alive = KeepAlive::new().interval(HEARTBEAT);
    Sse::new(events).keep_alive(alive).into_response()
}

/// Stream of the events of models from now on.
fn later(events: Receiver<ModelEvent>) -> impl Stream<Item = Result<Event, Infallible>> {
    following(events, shown)
}

/// Stream of the events of pulls from now on.
fn of_pulls(events: Receiver<PullStatus>) -> impl Stream<Item = Result<Event, Infallible>> {
    following(events, |pull| event("model.pull", &json!(pull)))
}

/// Stream of events from now on. A reader that is too slow is told how many it missed.
fn following<T: Clone + Send + 'static>(
    events: Receiver<T>,
    shown: impl Fn(&T) -> Event + Copy,
) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(events, move |mut events| async move {
        let event = match events.recv().await {
            Ok(told) => shown(&told),
            Err(RecvError::Lagged(missed)) => event("missed", &json!({"events": missed})),
            Err(RecvError::Closed) => return None,
        };
        Some((Ok(event), events))
    })
}

fn shown(told: &ModelEvent) -> Event {
    let Some(progress) = &told.progress else {
        let state = json!({
            "model": told.model,
            "state": told.state.name(),
            "error": told.error,
            "at_ms": told.at_ms,
        });
        return event("model.state", &state);
    };
    let mut data = json!(progress);
    data["model"] = json!(told.model);
    data["state"] = json!(told.state.name());
    data["at_ms"] = json!(told.at_ms);
    event("model.progress", &data)
}

fn event(name: &str, data: &Value) -> Event {
    Event::default().event(name).data(data.to_string())
}
