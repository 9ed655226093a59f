//! HTTP without a dialect: routes, limits, errors, the request's id, and the life of the listener.

pub(crate) mod body;
pub(crate) mod error;
pub(crate) mod guard;
pub(crate) mod json;
pub(crate) mod listen;
mod refusal;
pub(crate) mod transport;

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use futures::FutureExt as _;
use http::{HeaderValue, Request, StatusCode, Version, header};
use mortise_service::{Call, Service, ServiceError};
use serde_json::json;
use tokio::sync::watch;
use tracing::Instrument as _;

use self::error::{ApiError, ErrorCode, json_response};
use self::guard::Guard;
use crate::access::{AccessGuard, GuardedBody, Notes, guarded};
use crate::metrics::Metrics;
use crate::openai;
use crate::openai::fields::Unsupported;

/// What every handler needs.
pub(crate) struct Front {
    pub(crate) service: Arc<Service>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) guard: Guard,
    pub(crate) max_body_bytes: usize,
    pub(crate) body_timeout: Duration,
    pub(crate) heartbeat: Duration,
    pub(crate) unsupported: Unsupported,
    /// The server takes no new work.
    pub(crate) draining: watch::Receiver<bool>,
    /// Work that is still going on must end.
    pub(crate) cut: watch::Receiver<bool>,
}

/// What is known of a request beside its body.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) id: Arc<str>,
    pub(crate) peer: SocketAddr,
    pub(crate) notes: Arc<Notes>,
}

impl Context {
    /// The request as the service sees it.
    pub(crate) fn call(
        &self,
        route: &'static str,
        method: &'static str,
        headers: &http::HeaderMap,
    ) -> Call {
        let headers = headers.iter().filter_map(|(name, value)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        });
        Call {
            request_id: Arc::clone(&self.id),
            route,
            method,
            peer: self.peer.ip().to_string(),
            headers: headers.collect(),
            arrived: self.notes.arrived(),
        }
    }
}

/// All routes.
pub(crate) fn router(front: Arc<Front>) -> Router {
    Router::new()
        .route(openai::CHAT, post(openai::chat_completions))
        .route(openai::COMPLETIONS, post(openai::completions))
        .route(openai::EMBEDDINGS, post(openai::embeddings::embeddings))
        .route(openai::MODELS, get(openai::models::list))
        .route("/v1/models/{*id}", get(openai::models::retrieve))
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics_page))
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        // Outermost: whatever happens inside, there is an answer, a line in the log and a metric.
        .layer(middleware::from_fn_with_state(Arc::clone(&front), observe))
        .with_state(front)
}

/// The pattern behind a path, for labels: a fixed set, whatever is asked for.
fn route_of(path: &str) -> &'static str {
    const FIXED: [&str; 7] = [
        openai::CHAT,
        openai::COMPLETIONS,
        openai::EMBEDDINGS,
        openai::MODELS,
        "/health",
        "/ready",
        "/metrics",
    ];
    match FIXED.iter().find(|route| **route == path) {
        Some(route) => route,
        None if path.starts_with("/v1/models/") => openai::MODEL,
        None => "other",
    }
}

async fn observe(
    State(front): State<Arc<Front>>,
    mut request: Request<Body>,
    next: Next,
) -> Response {
    let notes = Arc::new(Notes::new(Instant::now()));
    let context = Context {
        id: guard::request_id(request.headers()).into(),
        peer: peer_of(&request),
        notes: Arc::clone(&notes),
    };
    let route = route_of(request.uri().path());
    let mut access = AccessGuard::begin(
        Arc::clone(&context.id),
        request.method().as_str().chars().take(16).collect(),
        route,
        context.peer.ip().to_string(),
        notes,
        Arc::clone(&front.metrics),
    );
    let version = request.version();
    let id = Arc::clone(&context.id);
    let origin = front.guard.origin(request.headers());
    let preflight = guard::is_preflight(&request);
    request.extensions_mut().insert(context);

    let mut response = match admit(&front, &request, route) {
        Err(error) => error.into_response(),
        Ok(()) if preflight && origin.is_some() => StatusCode::NO_CONTENT.into_response(),
        Ok(()) => AssertUnwindSafe(next.run(request))
            .catch_unwind()
            .instrument(tracing::debug_span!("request", id = &*id, route))
            .await
            .unwrap_or_else(|_| panicked().into_response()),
    };
    if let Some(origin) = origin {
        guard::add_cors(response.headers_mut(), origin, preflight);
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("x-request-id", value);
    }
    if let Some(ErrorCode(code)) = response.extensions().get() {
        access.notes.error(code);
    }
    access.status = response.status().as_u16();
    finish(response, access, version)
}

/// Tie the guard to the body, so that the line is written when the last byte is out.
fn finish(response: Response, access: AccessGuard, version: Version) -> Response {
    let (mut parts, body) = response.into_parts();
    let content_type = parts.headers.get(header::CONTENT_TYPE);
    let streams = content_type.is_some_and(|value| value.as_bytes().starts_with(b"text/event-"));
    if streams && version == Version::HTTP_11 {
        let keep = HeaderValue::from_static("keep-alive");
        parts.headers.entry(header::CONNECTION).or_insert(keep);
    }
    Response::from_parts(parts, guarded(GuardedBody::new(body, access, streams)))
}

fn admit(front: &Front, request: &Request<Body>, route: &str) -> Result<(), ApiError> {
    front.guard.check(request)?;
    if *front.draining.borrow() && route.starts_with("/v1/") {
        return Err(ApiError::from(ServiceError::Stopping).with_header("connection", "close"));
    }
    Ok(())
}

fn peer_of(request: &Request<Body>) -> SocketAddr {
    let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
    request
        .extensions()
        .get::<SocketAddr>()
        .copied()
        .unwrap_or(unknown)
}

/// A defect of ours ended this request. What it was stands in the log, not in the answer.
pub(crate) fn panicked() -> ApiError {
    ApiError::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "internal_error",
        "the server failed while it answered this request; its log says more under the request id",
    )
}

/// The process lives.
async fn health() -> Response {
    json_response(StatusCode::OK, &json!({"status": "ok"}))
}

/// New work is welcome.
async fn ready(State(front): State<Arc<Front>>) -> Response {
    if *front.draining.borrow() {
        let body = json!({"status": "draining"});
        return json_response(StatusCode::SERVICE_UNAVAILABLE, &body);
    }
    json_response(StatusCode::OK, &json!({"status": "ready"}))
}

async fn metrics_page(State(front): State<Arc<Front>>) -> Response {
    let mut response = Response::new(Body::from(front.metrics.page()));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"),
    );
    response
}

async fn unknown_route(request: Request<Body>) -> ApiError {
    let path: String = request.uri().path().chars().take(200).collect();
    ApiError::new(
        StatusCode::NOT_FOUND,
        "unknown_route",
        format!("there is no route {} {path}", request.method()),
    )
}

async fn wrong_method(request: Request<Body>) -> ApiError {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        format!(
            "the route {} does not take the method {}; the header `Allow` says which it takes",
            route_of(request.uri().path()),
            request.method()
        ),
    )
}
