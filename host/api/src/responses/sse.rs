//! Events as server-sent events, each with its type as its name.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt as _};
use http::{HeaderName, HeaderValue};
use mortise_http::{AccessRecord, panicked};
use serde_json::json;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// Events as JSON texts that begin with their type.
pub(super) type EventTexts = BoxStream<'static, Vec<String>>;

const HEADERS: [(&str, &str); 3] = [
    ("content-type", "text/event-stream; charset=utf-8"),
    ("cache-control", "no-cache"),
    // Proxies that buffer know this name.
    ("x-accel-buffering", "no"),
];

/// Response that streams the events.
pub(super) fn response(
    events: EventTexts,
    heartbeat: Duration,
    record: Arc<AccessRecord>,
) -> Response {
    let mut ticks = interval_at(Instant::now() + heartbeat, heartbeat);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let frames = stream::unfold(Some((events, ticks)), next);
    let frames = AssertUnwindSafe(frames).catch_unwind().map(move |frame| {
        Ok::<_, Infallible>(frame.unwrap_or_else(|_| {
            let problem = panicked();
            record.error(&problem.code);
            let error = json!({
                "type": "error", "code": problem.code, "message": problem.text(), "param": null,
            });
            framed(&[error.to_string()]).into()
        }))
    });
    let mut response = Response::new(Body::from_stream(frames));
    for (name, value) in HEADERS {
        let (name, value) = (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
        response.headers_mut().insert(name, value);
    }
    response
}

type State = Option<(EventTexts, Interval)>;

async fn next(state: State) -> Option<(Bytes, State)> {
    let (mut events, mut ticks) = state?;
    tokio::select! {
        biased;
        new = events.next() => match new {
            Some(new) => {
                ticks.reset();
                Some((framed(&new).into(), Some((events, ticks))))
            }
            None => Some((Bytes::from_static(b"data: [DONE]\n\n"), None)),
        },
        _ = ticks.tick() => {
            Some((Bytes::from_static(b": keep-alive\n\n"), Some((events, ticks))))
        }
    }
}

fn framed(events: &[String]) -> String {
    let mut out = String::with_capacity(events.iter().map(|event| event.len() + 64).sum());
    for event in events {
        // `{"type":"response.created",…`
        let kind = event.split('"').nth(3).unwrap_or_default();
        out.push_str("event: ");
        out.push_str(kind);
        out.push_str("\ndata: ");
        out.push_str(event);
        out.push_str("\n\n");
    }
    out
}
