//! Requests while the server starts: health checks are answered, and everything else is told to come later.

use std::fmt;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::{Request, StatusCode};
use serde_json::Value;
use tower::ServiceExt as _;

use crate::dialect::{Dialect, dialect_of};
use crate::health::health;
use crate::problem::{Problem, ProblemShape, json_response, write_problem};
use crate::router::{HEALTH, READY, check_connection};

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

    /// A problem in the shape of the dialect that the request belongs to.
    fn refuse(&self, mut problem: Problem, request: &Request<Body>) -> Response {
        let (shape, conventions) = dialect_of(self.dialects.iter(), self.elsewhere, request);
        if let Some(status) = conventions.status {
            problem.status = status(&problem);
        }
        write_problem(problem.into_response(), shape)
    }
}

async fn dispatch(State(startup): State<Arc<Startup>>, request: Request<Body>) -> Response {
    if let Some(router) = startup.serving.get() {
        return match router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(impossible) => match impossible {},
        };
    }
    let path = request.uri().path();
    let checked = check_connection(&request, [HEALTH, READY].contains(&path));
    match (checked, path) {
        (Err(problem), _) => startup.refuse(problem, &request),
        (Ok(()), HEALTH) => health(&[]),
        (Ok(()), READY) => json_response(StatusCode::SERVICE_UNAVAILABLE, &(startup.progress)()),
        (Ok(()), _) => {
            let message = "the server is starting and loads its models; retry later";
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "server_starting", message)
                .with_header("retry-after", "1");
            startup.refuse(problem, &request)
        }
    }
}
