//! Requests while the server starts: health checks are answered, and everything else is told to come later.

use std::fmt;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::{Method, Request, StatusCode};
use serde_json::Value;
use tower::ServiceExt as _;

use crate::dialect::{Dialect, dialect_of};
use crate::guard;
use crate::health::health;
use crate::problem::{Problem, ProblemShape, json_response, write_problem};
use crate::router::{HEALTH, READY, add_ids, check_connection, wrong_method};

/// Body of `GET /ready` while the server starts.
type Progress = Box<dyn Fn() -> Value + Send + Sync>;

/// Router of a server that starts: the real one takes over once it is there.
pub struct Startup {
    serving: OnceLock<Router>,
    progress: Progress,
    dialects: Vec<Dialect>,
    elsewhere: ProblemShape,
}

impl fmt::Debug for Startup {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Startup")
    }
}

impl Startup {
    /// `progress` is the body of `GET /ready`; problems have the shape of their dialect, or of `elsewhere`.
    pub fn new(
        progress: impl Fn() -> Value + Send + Sync + 'static,
        dialects: Vec<Dialect>,
        elsewhere: ProblemShape,
    ) -> Arc<Self> {
        Arc::new(Self {
            serving: OnceLock::new(),
            progress: Box::new(progress),
            dialects,
            elsewhere,
        })
    }

    /// Routes for the listener.
    pub fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .fallback(dispatch)
            .with_state(Arc::clone(self))
    }

    /// The start is complete: `router` answers from now on. Only the first one counts.
    pub fn complete(&self, router: Router) {
        let _ = self.serving.set(router);
    }

    /// Answer while models are loaded. Problems have the shape of the dialect that the request belongs to, and every
    /// response tells the request's id, as later.
    fn answer(&self, request: &Request<Body>) -> Response {
        let (shape, conventions) = dialect_of(self.dialects.iter(), self.elsewhere, request);
        let id = guard::request_id(request.headers());
        let traced = guard::given_id(request.headers(), guard::REQUEST_TRACE);
        let mut response = self.outcome(request).unwrap_or_else(|mut problem| {
            let header = conventions
                .id_header
                .map(|name| (name.to_owned(), id.clone()));
            problem.headers.extend(header);
            problem.status = conventions.status.map_or(problem.status, |of| of(&problem));
            write_problem(problem.into_response(), shape)
        });
        add_ids(&mut response, &id, conventions.id_header, traced);
        response
    }

    fn outcome(&self, request: &Request<Body>) -> Result<Response, Problem> {
        let path = request.uri().path();
        let is_health = [HEALTH, READY].contains(&path);
        check_connection(request, is_health)?;
        if is_health && ![Method::GET, Method::HEAD].contains(request.method()) {
            return Err(wrong_method(path, request.method()).with_header("allow", "GET,HEAD"));
        }
        match path {
            HEALTH => Ok(health(&[])),
            READY => Ok(json_response(
                StatusCode::SERVICE_UNAVAILABLE,
                &(self.progress)(),
            )),
            _ => {
                let message = "the server is starting and loads its models; retry later";
                Err(
                    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "server_starting", message)
                        .with_header("retry-after", "1"),
                )
            }
        }
    }
}

async fn dispatch(State(startup): State<Arc<Startup>>, request: Request<Body>) -> Response {
    if let Some(router) = startup.serving.get() {
        return match router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(impossible) => match impossible {},
        };
    }
    startup.answer(&request)
}
