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

use self::answer::{Generated, whole};
use crate::receive::{Received, receive};
use crate::start::start;
use crate::state::ApiState;
use crate::stream::stream_response;

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
        ..
    } = receive(&state, &context, GENERATE, request).await?;
    let fields = generate::parse(object)?;
    let stream = fields.stream;
    let started = start(&state, &context, GENERATE, &parts, reserved, vec![fields]).await?;
    let generated = Generated::new(&started.model, began);
    let mut response = if stream {
        stream_response(started.answering, generated, state.http.heartbeat)
    } else {
        json_response(StatusCode::OK, &whole(started.answering, generated).await?)
    };
    append_headers(response.headers_mut(), &started.headers);
    Ok(response)
}
