//! The routes of all dialects under one roof: request ids, guards, draining, panics, access records, and
//! problems in the shape of the dialect that the path belongs to.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use futures::FutureExt as _;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Version, header};
use mortise_trace::Span;
use serde_json::json;
use tokio::sync::watch;
use tracing::Instrument as _;

use crate::access::{AccessGuard, AccessObserver, AccessRecord, GuardedBody, guarded};
use crate::body::BodyLimits;
use crate::body_budget::BodyBudget;
use crate::connections::ConnectionTable;
use crate::contract::{
    ApiInfo, ContractPages, DOCUMENT, DialectContract, LOOK, OfStatus, Operation, PAGE, Routes,
    document,
};
use crate::dialect::{Dialect, dialect_of};
use crate::guard::{self, Guard};
use crate::health::{self, Checks};
use crate::listen::{HealthOnly, Unclaimed};
use crate::load_page;
use crate::metrics_format::MetricsFormat;
use crate::problem::{Problem, ProblemShape, json_response, stopping, write_problem};
use crate::request_head::HeadRefusal;
use crate::tls::TlsServer;

/// The text of a page that is made anew whenever it is read.
type Page = Box<dyn Fn() -> String + Send + Sync>;

/// State that all routes share.
pub struct HttpState {
    /// Checks of a request before it is routed: sizes of headers, host name, and origin (CORS).
    pub guard: Guard,
    /// Limits of each body.
    pub body: BodyLimits,
    /// Memory for all bodies.
    pub bodies: Arc<BodyBudget>,
    /// The connections of the main listener.
    pub connections: Arc<ConnectionTable>,
    /// The TLS of the main listener, if it has some.
    pub tls: Option<Arc<TlsServer>>,
    /// Longest time that a request waits for its answer to begin.
    pub max_queue_wait: Option<Duration>,
    /// Pause after which a silent stream sends a comment.
    pub heartbeat: Duration,
    /// Time after which a WebSocket takes no further request.
    pub websocket_time: Duration,
    /// Becomes true when the server takes no new work.
    pub draining: watch::Receiver<bool>,
    /// Becomes true when work that is still going on must end.
    pub cut: watch::Receiver<bool>,
    /// Counts and logs requests.
    pub observer: Arc<dyn AccessObserver>,
    /// The main listener shows the numbers of all callers together, such as `/metrics`.
    pub shows_metrics: bool,
    /// The body of `GET /metrics`.
    pub metrics: Page,
    /// States of the server's parts.
    pub checks: Checks,
}

impl fmt::Debug for HttpState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("HttpState")
    }
}

/// The routes of one dialect.
#[derive(Debug, Clone)]
pub struct Api {
    /// Routes of the dialect.
    pub router: Router,
    /// Paths of the dialect, and the shape of its problems.
    pub dialect: Dialect,
    /// The routes as labels name them, a parameter as `{name}` at the end.
    pub routes: &'static [&'static str],
    /// Contract of its routes.
    pub contract: DialectContract,
}

/// Writer of problems on paths of no dialect.
#[derive(Debug, Clone, Copy)]
pub struct Elsewhere {
    /// The shape of their bodies.
    pub shape: ProblemShape,
    /// The name of the shape's type in the contract.
    pub problem: &'static str,
}

impl Api {
    /// The label of a path, if it is of one of the routes.
    fn route_of(&self, path: &str) -> Option<&'static str> {
        let of_path = |route: &str| match route.split_once('{') {
            Some((before, _)) => path.starts_with(before),
            None => path == route,
        };
        self.routes.iter().copied().find(|route| of_path(route))
    }
}

/// State of the outermost middleware.
#[derive(Clone)]
struct Outermost {
    state: Arc<HttpState>,
    apis: Arc<[Api]>,
    /// The shape of problems on paths of no dialect.
    elsewhere: ProblemShape,
}

impl Outermost {
    /// Label of a path: one of a fixed set, for any path. The flag says whether the route is a dialect's.
    fn route_of(&self, path: &str) -> (&'static str, bool) {
        if let Some(route) = self.apis.iter().find_map(|api| api.route_of(path)) {
            return (route, true);
        }
        (
            OWN.into_iter()
                .find(|route| *route == path)
                .unwrap_or("other"),
            false,
        )
    }
}

/// Content types of responses that are written while they are made.
const STREAMED_TYPES: [&[u8]; 2] = [b"text/event-stream", b"application/x-ndjson"];

pub(crate) const HEALTH: &str = "/health";
pub(crate) const READY: &str = "/ready";
const METRICS: &str = "/metrics";
const VERSION: &str = "/version";
/// Routes of no dialect.
const OWN: [&str; 7] = [HEALTH, READY, METRICS, VERSION, DOCUMENT, PAGE, LOOK];

/// The label of a request's route, for handlers of what no route takes.
#[derive(Clone, Copy)]
struct Label(&'static str);

/// Facts of a request beside its body.
#[derive(Debug, Clone)]
pub struct Context {
    /// The request's id.
    pub id: Arc<str>,
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// Label of the route, as policies know it.
    pub route: &'static str,
    /// Access record of the request.
    pub record: Arc<AccessRecord>,
    /// Facts of a request that the server sends to its own routes.
    pub own: Option<Own>,
}

/// Facts of a request that the server sends to its own routes ([`Context::own`]). A request from outside has none.
#[derive(Clone)]
pub struct Own(pub Arc<dyn Any + Send + Sync>);

impl fmt::Debug for Own {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Own")
    }
}

/// All routes, and the document of them all.
///
/// # Errors
/// When what the dialects declare makes no document.
pub fn router(
    state: Arc<HttpState>,
    apis: Vec<Api>,
    elsewhere: Elsewhere,
) -> Result<Router, String> {
    let pages = ContractPages::default();
    let (own, operations) = pages.on(own_routes()).into_parts();
    let mut router = own.with_state(Arc::clone(&state));
    let mut contracts: Vec<(DialectContract, OfStatus)> = Vec::new();
    for api in &apis {
        router = router.merge(api.router.clone());
        contracts.push((api.contract.clone(), api.dialect.conventions.status));
    }
    contracts.push((own_contract(elsewhere.problem, operations), None));
    pages.show(&document(ABOUT, &contracts)?);
    let outermost = Outermost {
        state,
        apis: apis.into(),
        elsewhere: elsewhere.shape,
    };
    let router = router
        .fallback(unknown_route)
        .method_not_allowed_fallback(no_such_method)
        // Outermost: whatever happens inside, there is an answer, a line in the log and a metric.
        .layer(middleware::from_fn_with_state(outermost, observe));
    Ok(router)
}

/// Words about the document.
const ABOUT: ApiInfo = ApiInfo {
    title: "mortise",
    description: "An LLM inference server in the dialects of OpenAI, Anthropic, Ollama and others.",
};

/// Shapes of what routes of no dialect answer.
const SHAPES: &str = include_str!("shapes.ts");

fn own_contract(problem: &'static str, operations: Vec<Operation>) -> DialectContract {
    DialectContract {
        tag: "Server",
        about: "Health, numbers and this contract.",
        shapes: &[SHAPES],
        problem,
        asks: false,
        operations,
    }
}

fn own_routes() -> Routes<Arc<HttpState>> {
    let of_health = Operation::get(HEALTH, "getHealth", "Whether the process lives.");
    let of_ready = Operation::get(READY, "getReady", "Whether new work is welcome.");
    let of_metrics = Operation::get(METRICS, "getMetrics", "Numbers as Prometheus reads them.");
    let of_version = Operation::get(VERSION, "getVersion", "The version of the server.");
    Routes::default()
        .on(
            of_health.answers(200, "Health").answers(503, "Health"),
            health,
        )
        .on(
            of_ready.answers(200, "Ready").answers(503, "NotReady"),
            ready,
        )
        .on(
            of_metrics
                .refuses(&[404])
                .writes("text/plain")
                .writes("application/openmetrics-text"),
            metrics_page,
        )
        .on(of_version.answers(200, "Version"), version)
}

async fn observe(
    State(outermost): State<Outermost>,
    mut request: Request<Body>,
    next: Next,
) -> Response {
    let record = Arc::new(AccessRecord::new(Instant::now()));
    let (route, is_work) = outermost.route_of(request.uri().path());
    let context = Context {
        id: guard::request_id(request.headers()).into(),
        peer: peer_of(&request),
        route,
        record: Arc::clone(&record),
        own: None,
    };
    let state = &outermost.state;
    let dialects = outermost.apis.iter().map(|api| &api.dialect);
    let (shape, conventions) = dialect_of(dialects, outermost.elsewhere, &request);
    let mut access = AccessGuard::begin(
        Arc::clone(&context.id),
        request.method().as_str().chars().take(16).collect(),
        route,
        context.peer.ip().to_string(),
        record,
        Arc::clone(&state.observer),
        span_of(&request, route, is_work, &context.id),
    );
    let span = access.span.clone();
    let version = request.version();
    let head = request.method() == Method::HEAD;
    let id = Arc::clone(&context.id);
    let traced = guard::given_id(request.headers(), guard::REQUEST_TRACE);
    let origin = state.guard.origin(request.headers());
    let preflight = guard::is_preflight(&request);
    request.extensions_mut().insert(context);
    request.extensions_mut().insert(Label(route));

    let mut response = match admit(state, &request, route, is_work) {
        Err(error) => error.into_response(),
        Ok(()) if preflight && origin.is_some() => StatusCode::NO_CONTENT.into_response(),
        Ok(()) => span
            .run(AssertUnwindSafe(next.run(request)).catch_unwind())
            .instrument(tracing::debug_span!("request", id = &*id, route))
            .await
            .unwrap_or_else(|_| panicked().into_response()),
    };
    if let Some(problem) = response.extensions_mut().get_mut::<Problem>() {
        let header = conventions
            .id_header
            .map(|name| (name.to_owned(), id.to_string()));
        problem.headers.extend(header);
        problem.status = conventions.status.map_or(problem.status, |of| of(problem));
    }
    response = write_problem(response, shape);
    if let Some(origin) = origin {
        guard::add_cors(response.headers_mut(), origin, preflight);
    }
    add_ids(&mut response, &id, conventions.id_header, traced);
    if let Some(problem) = response.extensions().get::<Problem>() {
        access.record.error(&problem.code);
    }
    access.status = response.status().as_u16();
    // The body of an answer to HEAD is never read.
    access.complete = head;
    finish(response, access, version)
}

/// Tell the id of a request, under the dialect's own name too, and the caller's name of its trace.
pub(crate) fn add_ids(
    response: &mut Response,
    id: &str,
    own_name: Option<&'static str>,
    traced: Option<String>,
) {
    let traced = traced
        .as_deref()
        .map(|traced| (guard::REQUEST_TRACE, traced));
    let own = own_name.map(|name| (name, id));
    for (name, id) in [Some(("x-request-id", id)), own, traced]
        .into_iter()
        .flatten()
    {
        if let Ok(value) = HeaderValue::from_str(id) {
            response.headers_mut().insert(name, value);
        }
    }
}

/// Span of a request to a dialect; none for health checks and metrics, which are requested all the time.
fn span_of(request: &Request<Body>, route: &'static str, is_work: bool, id: &str) -> Span {
    if !is_work {
        return Span::default();
    }
    let method = match *request.method() {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => "_OTHER",
    };
    let span = Span::of_request(format!("{method} {route}"), request.headers());
    if span.is_recorded() {
        span.set("http.request.method", method);
        span.set("http.route", route);
        span.set("mortise.request.id", id.to_owned());
    }
    span
}

/// Tie the guard to the body, so that the line is written when the last byte is out.
fn finish(response: Response, access: AccessGuard, version: Version) -> Response {
    let (mut parts, body) = response.into_parts();
    let content_type = parts.headers.get(header::CONTENT_TYPE);
    let streams = content_type.is_some_and(|value| {
        let value = value.as_bytes();
        STREAMED_TYPES.iter().any(|kind| value.starts_with(kind))
    });
    if streams && version == Version::HTTP_11 {
        let keep = HeaderValue::from_static("keep-alive");
        parts.headers.entry(header::CONNECTION).or_insert(keep);
    }
    let socket = parts.status == StatusCode::SWITCHING_PROTOCOLS;
    if !streams && !socket && !access.record.is_claimed() {
        parts.extensions.insert(Unclaimed);
    }
    let length = parts.headers.get(header::CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse().ok());
    let body = GuardedBody::new(body, access, length, streams);
    Response::from_parts(parts, guarded(body))
}

fn admit(
    state: &HttpState,
    request: &Request<Body>,
    route: &str,
    is_work: bool,
) -> Result<(), Problem> {
    check_connection(request, [HEALTH, READY, METRICS].contains(&route))?;
    state.guard.check(request)?;
    if *state.draining.borrow() && is_work {
        return Err(stopping().with_header("connection", "close"));
    }
    Ok(())
}

/// Refuse what the connection itself does not take: a request whose head was refused, and all but health
/// checks where there is no place for more.
///
/// # Errors
/// When the request is one of those.
pub fn check_connection(request: &Request<Body>, is_health: bool) -> Result<(), Problem> {
    let extensions = request.extensions();
    if let Some(refusal) = extensions.get::<HeadRefusal>() {
        let HeadRefusal {
            status,
            code,
            message,
        } = refusal.clone();
        return Err(Problem::new(status, code, message).with_header("connection", "close"));
    }
    if extensions.get::<HealthOnly>().is_some() && !is_health {
        return Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "connections_full",
            "the server has as many connections as it may; retry shortly. Operators: see \
             `server.max_connections`",
        )
        .with_header("retry-after", "1")
        .with_header("connection", "close"));
    }
    Ok(())
}

/// The other end of a request's connection.
pub fn peer_of(request: &Request<Body>) -> SocketAddr {
    let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
    request
        .extensions()
        .get::<SocketAddr>()
        .copied()
        .unwrap_or(unknown)
}

/// Problem of a request that a panic ended. The log has the panic's message, and the answer does not.
pub fn panicked() -> Problem {
    Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "internal_error",
        "the server failed while it answered this request; its log says more under the request id",
    )
}

/// The process lives.
async fn health(State(state): State<Arc<HttpState>>) -> Response {
    health::health(&(state.checks)())
}

/// New work is welcome.
async fn ready(State(state): State<Arc<HttpState>>) -> Response {
    if *state.draining.borrow() {
        let body = json!({"status": "draining"});
        return json_response(StatusCode::SERVICE_UNAVAILABLE, &body);
    }
    health::ready(&(state.checks)())
}

async fn metrics_page(State(state): State<Arc<HttpState>>, headers: HeaderMap) -> Response {
    if !state.shows_metrics {
        return metrics_elsewhere(METRICS).into_response();
    }
    state.metrics_page(&headers)
}

impl HttpState {
    /// Metrics page for Prometheus, on any listener, in the format that the request's headers ask for.
    pub fn metrics_page(&self, headers: &HeaderMap) -> Response {
        let mut page = (self.metrics)();
        let (tls, checks) = (self.tls.as_deref(), (self.checks)());
        load_page::append(&mut page, &self.connections, &self.bodies, tls, &checks);
        let format = MetricsFormat::wanted(headers);
        let mut response = Response::new(Body::from(format.page(&page)));
        let kind = HeaderValue::from_static(format.content_type());
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}

/// Numbers that this listener does not show.
pub fn metrics_elsewhere(path: &str) -> Problem {
    let message = format!("there is no route GET {path} on this address; see `metrics.listener`");
    Problem::new(StatusCode::NOT_FOUND, "unknown_route", message)
}

/// The version of the server.
async fn version() -> Response {
    json_response(
        StatusCode::OK,
        &json!({"version": env!("CARGO_PKG_VERSION")}),
    )
}

async fn unknown_route(request: Request<Body>) -> Problem {
    let path: String = request.uri().path().chars().take(200).collect();
    Problem::new(
        StatusCode::NOT_FOUND,
        "unknown_route",
        format!("there is no route {} {path}", request.method()),
    )
}

async fn no_such_method(
    Extension(Label(route)): Extension<Label>,
    request: Request<Body>,
) -> Problem {
    wrong_method(route, request.method())
}

/// Refusal of a method that a route does not take.
pub(crate) fn wrong_method(route: &str, method: &Method) -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        format!(
            "the route {route} does not take the method {method}; the header `Allow` says which it takes"
        ),
    )
}
