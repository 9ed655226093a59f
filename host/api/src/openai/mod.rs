//! The OpenAI dialect: its wire shapes and nothing else knows them.

mod answer;
mod chat;
mod chunk;
mod completions;
mod constraint;
mod echo;
mod embeddings;
mod envelope;
mod inputs;
mod messages;
mod models;
mod parse;
mod props;
mod reply;
mod sampling;
mod stored;
#[cfg(test)]
mod tests;
mod tokens;
mod tools;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use http::{Request as HttpRequest, StatusCode, header};
use mortise_http::{Api, Context, Conventions, Problem, json_response};
use mortise_service::Event;
use serde_json::Value;

use self::answer::ServerSentEvents;
use self::chat::ChatCall;
use self::completions::{CompletionCall, CompletionChunks, CompletionWhole, Opening};
use self::envelope::Identity;
use self::reply::{ChatChunks, ChatWhole};
use self::stored::Kept;
use crate::answering::Answering;
use crate::hints;
use crate::idempotency;
use crate::ids::Ids;
use crate::ignored::add_headers;
use crate::receive::{Received, default_model, receive};
use crate::socket::{self, Dialect};
use crate::start::start;
use crate::state::ApiState;
use crate::stored::account;
use crate::stream::stream_response;

pub use crate::openai_error::error_body;

const CHAT: &str = "/v1/chat/completions";
const COMPLETION: &str = "/v1/chat/completions/{id}";
const COMPLETION_MESSAGES: &str = "/v1/chat/completions/{id}/messages";
const COMPLETIONS: &str = "/v1/completions";
const EMBEDDINGS: &str = "/v1/embeddings";
const TOKENIZE: &str = "/tokenize";
const TOKENIZE_V1: &str = "/v1/tokenize";
const DETOKENIZE: &str = "/detokenize";
const RENDER: &str = "/v1/chat/completions/render";
const PARSE: &str = "/parse";
const PROPS: &str = "/props";
const SLOTS: &str = "/slots";
const MODELS: &str = "/v1/models";
const MODEL: &str = "/v1/models/{id}";

/// Routes as labels name them; the last are those without the version.
const ROUTES: &[&str] = &[
    CHAT,
    COMPLETION,
    COMPLETION_MESSAGES,
    COMPLETIONS,
    EMBEDDINGS,
    MODELS,
    MODEL,
    TOKENIZE,
    TOKENIZE_V1,
    DETOKENIZE,
    RENDER,
    PARSE,
    PROPS,
    SLOTS,
    "/chat/completions",
    "/completions",
    "/embeddings",
    "/models",
    "/models/{id}",
];

/// Number of routes without the version.
const UNVERSIONED: usize = 5;

/// The dialect's routes; with `unversioned`, the main ones are there without `/v1` too.
pub fn api(state: Arc<ApiState>, unversioned: bool) -> Api {
    let one = get(stored::retrieve)
        .post(stored::update)
        .delete(stored::delete);
    let router = Router::new()
        .route(CHAT, post(chat_completions).get(chat_or_list))
        .route(COMPLETION, one)
        .route(COMPLETION_MESSAGES, get(stored::messages))
        .route(COMPLETIONS, post(completions))
        .route(EMBEDDINGS, post(embeddings::embeddings))
        .route(TOKENIZE, post(tokens::tokenize))
        .route(TOKENIZE_V1, post(tokens::tokenize_v1))
        .route(DETOKENIZE, post(tokens::detokenize))
        .route(RENDER, post(tokens::render))
        .route(PARSE, post(parse::parse))
        .route(PROPS, get(props::props))
        .route(SLOTS, get(props::slots))
        .route(MODELS, get(models::list))
        .route("/v1/models/{*id}", get(models::retrieve));
    let (router, routes) = match unversioned {
        true => (router.merge(without_version()), ROUTES),
        false => (router, ROUTES.split_at(ROUTES.len() - UNVERSIONED).0),
    };
    Api {
        router: router
            .route_layer(from_fn_with_state(Arc::clone(&state), idempotency::layer))
            .with_state(state),
        prefix: "/v1",
        routes,
        shape: error_body,
        conventions: Conventions::default(),
    }
}

/// Routes for clients whose base URL lacks the version.
fn without_version() -> Router<Arc<ApiState>> {
    Router::new()
        .route("/chat/completions", post(chat_completions))
        .route("/completions", post(completions))
        .route("/embeddings", post(embeddings::embeddings))
        .route("/models", get(models::list))
        .route("/models/{*id}", get(models::retrieve))
}

/// Chat completions over a WebSocket: chunks as over server-sent events.
const SOCKET: Dialect = Dialect {
    body: Ok,
    handle: |state, context, request| Box::pin(complete_chat(state, context, request)),
    problem: error_body,
    done: Some("[DONE]"),
};

/// `GET /v1/chat/completions`: a WebSocket, or the list of stored completions.
async fn chat_or_list(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    if !request.headers().contains_key(header::UPGRADE) {
        return stored::list(State(state), Extension(context), request).await;
    }
    socket::upgrade(state, context, request, SOCKET).await
}

/// `POST /v1/chat/completions`
async fn chat_completions(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    complete_chat(state, context, request).await
}

async fn complete_chat(
    state: Arc<ApiState>,
    context: Context,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let Received {
        parts,
        object,
        reserved,
        account: known,
    } = read(&state, &context, CHAT, request).await?;
    let asked = stored::asked(&object);
    let ChatCall {
        fields,
        shape,
        ignored,
    } = chat::parse(object, state.unsupported)?;
    let keep = match asked {
        None => None,
        Some(asked) => {
            let owner = account(&state, &context, CHAT, &parts, known).await?;
            Some(stored::Keep::promised(&state, owner, asked).await?)
        }
    };
    let (n, stream) = (fields.n.unwrap_or(1), fields.stream);
    let started = start(&state, &context, CHAT, &parts, reserved, vec![fields]).await?;
    let identity = Identity {
        id: Ids::of(&parts).make("chatcmpl-"),
        ..identity("", &started.model)
    };
    let answers = started.answering;
    let prompt = shape.token_ids.then(|| answers.prompts().concat());
    let whole = ChatWhole::new(identity.clone(), shape, n, prompt.clone());
    let mut response = if stream {
        let writer = Kept {
            writer: ServerSentEvents(ChatChunks::new(identity, shape, n, prompt)),
            whole: keep.is_some().then_some(whole),
            keep,
            completion: None,
        };
        stream_response(answers, writer, state.http.heartbeat)
    } else {
        let completion = whole_chat(answers, whole).await?;
        if let Some(keep) = keep {
            keep.write(&completion).await?;
        }
        json_response(StatusCode::OK, &completion)
    };
    add_headers(&mut response, &started.headers, &ignored);
    Ok(response)
}

/// `POST /v1/completions`
async fn completions(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let Received {
        parts,
        object,
        reserved,
        ..
    } = read(&state, &context, COMPLETIONS, request).await?;
    let call = completions::parse(object, state.unsupported)?;
    if !call.generates {
        let echoed = echo::echoed(&state, &context, &parts, call).await;
        drop(reserved);
        return echoed;
    }
    let CompletionCall {
        requests,
        shape,
        echo,
        ignored,
        ..
    } = call;
    let (n, stream, prompts) = match requests.first() {
        Some(first) => (first.n.unwrap_or(1), first.stream, requests.len()),
        None => return Err(Problem::invalid("prompt", "`prompt` must not be empty")),
    };
    let started = start(&state, &context, COMPLETIONS, &parts, reserved, requests).await?;
    let identity = identity("cmpl-", &started.model);
    let answers = started.answering;
    let ids = answers.prompts();
    let openings: Vec<Opening> = echo
        .unwrap_or_else(|| vec![String::new(); prompts])
        .into_iter()
        .zip(ids)
        .map(|(text, ids)| Opening::new(text, shape.token_ids.then_some(ids)))
        .flat_map(|opening| vec![opening; n as usize])
        .collect();
    let mut response = if stream {
        let writer = ServerSentEvents(CompletionChunks::new(identity, shape, openings));
        stream_response(answers, writer, state.http.heartbeat)
    } else {
        let whole = CompletionWhole::new(identity, shape, openings);
        json_response(StatusCode::OK, &whole_completion(answers, whole).await?)
    };
    add_headers(&mut response, &started.headers, &ignored);
    Ok(response)
}

/// The body of a request, with hints within their bounds.
async fn read(
    state: &ApiState,
    context: &Context,
    route: &'static str,
    request: HttpRequest<Body>,
) -> Result<Received, Problem> {
    let mut received = receive(state, context, route, request).await?;
    default_model(state, &mut received.object);
    hints::check(&received.object)?;
    Ok(received)
}

fn identity(prefix: &str, model: &str) -> Identity {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Identity {
        id: format!("{prefix}{}", uuid::Uuid::new_v4().simple()),
        created: now.map_or(0, |elapsed| elapsed.as_secs()),
        model: model.to_owned(),
    }
}

async fn whole_chat(mut answers: Answering, mut whole: ChatWhole) -> Result<Value, Problem> {
    loop {
        match answers.next().await {
            Event::Delta {
                choice,
                delta,
                logprobs,
                tokens,
            } => whole.delta(choice, delta, logprobs, &tokens),
            Event::ServerToolCall { choice, call } => whole.server_tool_call(choice, call),
            Event::Finished {
                choice,
                reason,
                tokens,
                ..
            } => whole.finished(choice, reason, &tokens),
            Event::Completed { usage } => return Ok(whole.body(usage)),
            Event::Failed(error) => return Err(answers.failed(error)),
        }
    }
}

async fn whole_completion(
    mut answers: Answering,
    mut whole: CompletionWhole,
) -> Result<Value, Problem> {
    loop {
        match answers.next().await {
            Event::Delta {
                choice,
                delta,
                logprobs,
                tokens,
            } => whole.delta(choice, &delta, &logprobs, &tokens),
            // The route enables no tools of the server.
            Event::ServerToolCall { .. } => {}
            Event::Finished {
                choice,
                reason,
                tokens,
                ..
            } => whole.finished(choice, reason, &tokens),
            Event::Completed { usage } => return Ok(whole.body(usage)),
            Event::Failed(error) => return Err(answers.failed(error)),
        }
    }
}
