//! The Ollama dialect: `POST /api/generate`.

mod answer;
mod error;
mod generate;
mod object;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use axum::routing::post;
use http::{Request as HttpRequest, StatusCode};
use mortise_http::{Api, Context, Problem, append_headers, json_response};
use mortise_service::Request;

use self::answer::{Generated, stream_response, whole};
use crate::answering::Answering;
use crate::call::call_of;
use crate::problem::problem_of;
use crate::receive::{Received, receive, wait_limits};
use crate::state::ApiState;

pub use self::error::error_body;

const GENERATE: &str = "/api/generate";

/// The dialect's routes.
pub fn api(state: Arc<ApiState>) -> Api {
    Api {
        router: Router::new()
            .route(GENERATE, post(generate))
            .with_state(state),
        prefix: "/api",
        routes: &[GENERATE],
        shape: error_body,
    }
}

/// `POST /api/generate`
async fn generate(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let began = Instant::now();
    let Received {
        parts,
        object,
        reserved,
    } = receive(&state, &context, GENERATE, request).await?;
    let fields = generate::parse(object)?;
    let stream = fields.stream;
    context.notes.asked(&fields.model, stream);
    let request = Request::check(fields).map_err(problem_of)?;
    let call = call_of(&context, GENERATE, "POST", &parts.headers);
    let limits = wait_limits(&state, &context, &parts.headers)?;
    let starting = async {
        let answer = state.service.start_all(call, vec![request]).await;
        answer.map_err(problem_of)
    };
    let answer = limits.bound(starting).await?;
    drop(reserved);
    context.notes.answers(answer.model());
    if let Some(principal) = answer.principal() {
        context.notes.principal(&principal.subject);
    }
    let generated = Generated::new(answer.model(), began);
    let headers = answer.headers().to_vec();
    let abort = state.http.cut.clone();
    let answering = Answering::new(answer, Arc::clone(&context.notes), abort, limits);
    let mut response = if stream {
        stream_response(answering, generated, state.http.heartbeat)
    } else {
        json_response(StatusCode::OK, &whole(answering, generated).await?)
    };
    append_headers(response.headers_mut(), &headers);
    Ok(response)
}
