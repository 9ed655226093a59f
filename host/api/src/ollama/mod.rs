//! The Ollama dialect: chats, prompts, embeddings and models.

mod answer;
mod chat;
mod contract;
mod embed;
mod error;
mod generate;
mod keep_alive;
mod library;
mod models;
mod options;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use http::{Request as HttpRequest, StatusCode};
use mortise_http::contract::Routes;
use mortise_http::{Api, Context, Conventions, Dialect, Problem, append_headers, json_response};
use mortise_service::RequestFields;

use self::answer::{Generated, OllamaShape, whole};
use self::models::{context_of, known_name};
use crate::call::{call_of, record_admitted};
use crate::idempotency;
use crate::problem::problem_of;
use crate::receive::{ReceivedRequest, receive, wait_limits};
use crate::start::start;
use crate::state::ApiState;
use crate::stream::stream_response;

pub use self::error::error_body;

const GENERATE: &str = "/api/generate";
const CHAT: &str = "/api/chat";
const EMBED: &str = "/api/embed";
const EMBEDDINGS: &str = "/api/embeddings";
const TAGS: &str = "/api/tags";
const SHOW: &str = "/api/show";
const PS: &str = "/api/ps";
const VERSION: &str = "/api/version";
const PULL: &str = "/api/pull";
const DELETE: &str = "/api/delete";

/// Paths and shape of problems.
pub const DIALECT: Dialect = Dialect {
    prefix: "/api",
    shape: error_body,
    conventions: Conventions {
        status: Some(error::status),
        ..Conventions::NONE
    },
};

/// The dialect's routes.
pub fn api(state: Arc<ApiState>) -> Api {
    let routes = Routes::default()
        .on(contract::continue_text(), generate)
        .on(contract::answer_chat(), chat)
        .on(contract::embed(), embed::embed)
        .on(contract::embeddings(), embed::embeddings)
        .on(contract::tags(), models::tags)
        .on(contract::show(), models::show)
        .on(contract::ps(), models::ps)
        .on(contract::version(), models::version)
        .on(contract::pull(), library::pull)
        .on(contract::delete(), library::delete);
    let (router, operations) = routes.into_parts();
    Api {
        router: router
            .route_layer(from_fn_with_state(Arc::clone(&state), idempotency::layer))
            .with_state(state),
        dialect: DIALECT,
        routes: &[
            GENERATE, CHAT, EMBED, EMBEDDINGS, TAGS, SHOW, PS, VERSION, PULL, DELETE,
        ],
        contract: contract::contract(operations),
    }
}

/// `POST /api/generate`
async fn generate(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let began = Instant::now();
    let received = receive(&state, &context, GENERATE, request).await?;
    let of = |object| generate::parse(object, |name| context_of(&state, name));
    answer(
        &state,
        &context,
        (GENERATE, OllamaShape::Generate),
        began,
        received,
        of,
    )
    .await
}

/// `POST /api/chat`
async fn chat(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let began = Instant::now();
    let received = receive(&state, &context, CHAT, request).await?;
    let of = |object| chat::parse(object, |name| context_of(&state, name));
    answer(
        &state,
        &context,
        (CHAT, OllamaShape::Chat),
        began,
        received,
        of,
    )
    .await
}

type Fields = serde_json::Map<String, serde_json::Value>;

/// Answer a request of which `parse` makes fields, and tells whether it only loads the model.
async fn answer(
    state: &ApiState,
    context: &Context,
    (route, shape): (&'static str, OllamaShape),
    began: Instant,
    received: ReceivedRequest,
    parse: impl FnOnce(Fields) -> Result<(RequestFields, bool), Problem>,
) -> Result<Response, Problem> {
    let ReceivedRequest {
        parts,
        mut object,
        reserved,
        ..
    } = received;
    let kept = keep_alive::taken(state, &mut object)?;
    let (mut fields, only_loads) = parse(object)?;
    fields.model = known_name(state, fields.model);
    if only_loads {
        let limits = wait_limits(state, context, &parts.headers)?;
        let call = call_of(context, route, "POST", &parts.headers);
        context.record.asked(&fields.model, false);
        // A time of nothing lets the model go, as `ollama stop` does.
        let unloads = kept == Some(Duration::ZERO);
        let loading = async {
            let loaded = match unloads {
                true => state.service.named(&call, &fields.model).await,
                false => state.service.load(&call, &fields.model).await,
            };
            loaded.map_err(problem_of)
        };
        let (name, admission) = limits.bound(loading).await?;
        record_admitted(context, &name, &admission);
        keep_alive::keep(state, &name, kept);
        let reason = if unloads { "unload" } else { "load" };
        let body = Generated::new(shape, &name, began, false).nothing_generated(reason);
        let mut response = json_response(StatusCode::OK, &body);
        append_headers(response.headers_mut(), &admission.allowance().headers);
        return Ok(response);
    }
    let (stream, logprobs) = (fields.stream, fields.logprobs.is_some());
    let started = start(state, context, route, &parts, reserved, vec![fields]).await;
    let started = started.map_err(renamed)?;
    keep_alive::keep(state, &started.model, kept);
    let generated = Generated::new(shape, &started.model, began, logprobs);
    let mut response = if stream {
        stream_response(started.answering, generated, state.http.heartbeat)
    } else {
        let object = whole(started.answering, generated).await;
        json_response(StatusCode::OK, &object.map_err(renamed)?)
    };
    append_headers(response.headers_mut(), &started.headers);
    Ok(response)
}

/// Names of the service's fields, and of Ollama's.
const NAMES: [(&str, &str); 11] = [
    ("max_tokens", "options.num_predict"),
    ("temperature", "options.temperature"),
    ("top_k", "options.top_k"),
    ("top_p", "options.top_p"),
    ("min_p", "options.min_p"),
    ("seed", "options.seed"),
    ("stop", "options.stop"),
    ("repetition_penalty", "options.repeat_penalty"),
    ("presence_penalty", "options.presence_penalty"),
    ("frequency_penalty", "options.frequency_penalty"),
    ("response_format", "format"),
];

/// A problem under the names that fields have in this dialect.
fn renamed(mut problem: Problem) -> Problem {
    let Some(param) = problem.param.as_deref() else {
        return problem;
    };
    let of_name = |(own, _): &&(&str, &str)| {
        let rest = param.strip_prefix(*own);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('['))
    };
    if let Some((own, name)) = NAMES.iter().find(of_name) {
        let path = param.replacen(own, name, 1);
        problem.message = format!("`{path}`: {}", problem.message).into_boxed_str();
        problem.param = Some(path);
    }
    problem
}
