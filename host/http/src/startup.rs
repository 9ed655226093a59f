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

use crate::health::health;
use crate::problem::{Problem, ProblemShape, json_response, write_problem};
use crate::router::{HEALTH, READY, check_connection};

/// Body of `GET /ready` while the server starts.
type Progress = Box<dyn Fn() -> Value + Send + Sync>;

/// Router of a server that starts: the real one takes over once it is there.
pub struct Startup {
    serving: OnceLock<Router>,
    progress: Progress,
    shape: ProblemShape,
}

impl fmt::Debug for Startup {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Startup")
    }
}

impl Startup {
    /// `progress` is the body of `GET /ready`; problems are written as `shape` has them.
    pub fn new(
        progress: impl Fn() -> Value + Send + Sync + 'static,
        shape: ProblemShape,
    ) -> Arc<Self> {
        Arc::new(Self {
            serving: OnceLock::new(),
            progress: Box::new(progress),
            shape,
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
}

async fn dispatch(State(startup): State<Arc<Startup>>, request: Request<Body>) -> Response {
    if let Some(router) = startup.serving.get() {
        return match router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(impossible) => match impossible {},
        };
    }
    let path = request.uri().path();
    if let Err(problem) = check_connection(&request, [HEALTH, READY].contains(&path)) {
        return write_problem(problem.into_response(), startup.shape);
    }
    match path {
        HEALTH => health(&[]),
        READY => json_response(StatusCode::SERVICE_UNAVAILABLE, &(startup.progress)()),
        _ => {
            let message = "the server is starting and loads its models; retry later";
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "server_starting", message)
                .with_header("retry-after", "1");
            write_problem(problem.into_response(), startup.shape)
        }
    }
}
