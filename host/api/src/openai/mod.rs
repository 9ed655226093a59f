//! The OpenAI dialect: its wire shapes and nothing else knows them.

mod answer;
mod chat;
mod chunk;
mod columns;
mod completions;
mod constraint;
mod contract;
mod echo;
mod embeddings;
mod envelope;
mod inputs;
mod messages;
mod models;
mod parse;
mod prompt_scores;
mod props;
mod reasoning;
mod reply;
mod sampling;
mod scoped;
mod stored;
mod sums;
mod swap_notices;
#[cfg(test)]
mod tests;
mod thoughts;
mod tokens;
mod tools;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use http::request::Parts;
use http::{Extensions, Request as HttpRequest, StatusCode, header};
use mortise_http::contract::Routes;
use mortise_http::{
    Api, Context, Conventions, Dialect, Problem, Reservation, json_response, reserve_more,
};
use mortise_service::{Event, RequestFields};
use serde_json::Value;

use self::answer::ServerSentEvents;
use self::chat::ChatCall;
use self::completions::{CompletionCall, CompletionChunks, CompletionWhole, Opening};
use self::envelope::{AnswerIdentity, AnswerShape};
use self::reply::{ChatBody, ChatChunks, ChatWhole};
use self::stored::CompletionRecorder;
use self::swap_notices::Waiting;
use self::thoughts::Thoughts;
use crate::answering::Answering;
use crate::hints;
use crate::idempotency;
use crate::ids::Ids;
use crate::ignored::add_headers;
use crate::receive::{ReceivedRequest, default_model, receive};
use crate::socket::{self, SocketDialect};
use crate::start::start;
use crate::state::ApiState;
use crate::stored::account;
use crate::stream::stream_response;
use crate::unsupported::Unsupported;

pub use crate::openai_error::{ERROR, error_body};

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
const SUMS: &str = "/v1/metrics";
const MODEL_HEALTH: &str = "/{model}/health";
const MODEL_PROPS: &str = "/{model}/props";
const MODEL_SLOTS: &str = "/{model}/slots";
const MODELS: &str = "/v1/models";
const MODEL: &str = "/v1/models/{id}";
const CHAT_UNVERSIONED: &str = "/chat/completions";
const COMPLETIONS_UNVERSIONED: &str = "/completions";
const EMBEDDINGS_UNVERSIONED: &str = "/embeddings";
const MODELS_UNVERSIONED: &str = "/models";

/// Routes as labels name them; the last ones are without the version. Routes that begin with a model's name have no
/// label: it would stand for every path.
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
    SUMS,
    CHAT_UNVERSIONED,
    COMPLETIONS_UNVERSIONED,
    EMBEDDINGS_UNVERSIONED,
    MODELS_UNVERSIONED,
    "/models/{id}",
];

/// Number of routes without the version.
const UNVERSIONED: usize = 5;

/// The dialect's routes; with `unversioned`, the main ones are there without `/v1` too.
pub fn api(state: Arc<ApiState>, unversioned: bool) -> Api {
    let (labels, all) = match unversioned {
        true => (
            ROUTES,
            without_version(routes(state.unsupported), state.unsupported),
        ),
        false => (
            ROUTES.split_at(ROUTES.len() - UNVERSIONED).0,
            routes(state.unsupported),
        ),
    };
    let (router, operations) = all.into_parts();
    Api {
        router: router
            .route_layer(from_fn_with_state(Arc::clone(&state), idempotency::layer))
            .with_state(state),
        dialect: Dialect {
            prefix: "/v1",
            shape: error_body,
            conventions: Conventions::NONE,
        },
        routes: labels,
        contract: contract::contract(operations),
    }
}

fn routes(mode: Unsupported) -> Routes<Arc<ApiState>> {
    use contract::{create_chat, create_completion, create_embedding};
    Routes::default()
        .on(create_chat(mode), chat_completions)
        .on(contract::list_chats(), chat_or_list)
        .on(contract::get_chat(), stored::retrieve)
        .on(contract::update_chat(), stored::update)
        .on(contract::delete_chat(), stored::delete)
        .on(contract::list_messages(), stored::messages)
        .on(create_completion(mode), completions)
        .on(create_embedding(mode), embeddings::embeddings)
        .on(contract::tokenize(mode), tokens::tokenize)
        .on(contract::tokenize_v1(mode), tokens::tokenize_v1)
        .on(contract::detokenize(mode), tokens::detokenize)
        .on(contract::render(mode), tokens::render)
        .on(contract::parse_text(mode), parse::parse)
        .on(contract::list_models(), models::list)
        .on(contract::get_model(), models::retrieve)
        .on(contract::props(), props::props)
        .on(contract::slots(), props::slots)
        .on(contract::sums(), sums::sums)
        .on(contract::delete_model(), models::delete)
        .on(contract::model_health(), scoped::health)
        .on(contract::model_props(), scoped::props)
        .on(contract::model_slots(), scoped::slots)
}

/// Add routes without `/v1`, for clients whose base URL lacks the version.
fn without_version(routes: Routes<Arc<ApiState>>, mode: Unsupported) -> Routes<Arc<ApiState>> {
    use contract::{create_chat, create_completion, create_embedding};
    routes
        .on(
            create_chat(mode).at(CHAT_UNVERSIONED, "createChatCompletionUnversioned"),
            chat_completions,
        )
        .on(
            create_completion(mode).at(COMPLETIONS_UNVERSIONED, "createCompletionUnversioned"),
            completions,
        )
        .on(
            create_embedding(mode).at(EMBEDDINGS_UNVERSIONED, "createEmbeddingUnversioned"),
            embeddings::embeddings,
        )
        .on(
            contract::list_models().at(MODELS_UNVERSIONED, "listModelsUnversioned"),
            models::list,
        )
        .on(
            contract::get_model().at("/models/{*id}", "getModelUnversioned"),
            models::retrieve,
        )
}

/// Chat completions over a WebSocket: chunks as over server-sent events.
const SOCKET: SocketDialect = SocketDialect {
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
    socket::upgrade(state, context, request, SOCKET, |_| Extensions::new()).await
}

/// `POST /v1/chat/completions`
async fn chat_completions(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    // In a box of its own: the layers of the router move what they are given several times.
    Box::pin(complete_chat(state, context, request)).await
}

async fn complete_chat(
    state: Arc<ApiState>,
    context: Context,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let ReceivedRequest {
        parts,
        object,
        mut reserved,
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
            let bytes = asked.bytes();
            reserve_more(&mut reserved, bytes)?;
            let memory = reserved.split(bytes);
            Some(stored::CompletionKey::promised(&state, owner, asked, memory).await?)
        }
    };
    let identity = AnswerIdentity {
        id: Ids::of(&parts).make("chatcmpl-"),
        ..identity("", &fields.model)
    };
    let wait = (fields.stream).then(|| waiting(&state, &context, &fields, &identity, shape));
    let asked = AskedChat {
        parts,
        reserved,
        fields,
        shape,
        ignored,
        identity,
        keep,
    };
    match wait.flatten() {
        None => answer_chat(state, context, asked).await,
        Some(waiting) => {
            let pending = Box::pin(answer_chat(state, context, asked));
            swap_notices::respond(pending, waiting).await
        }
    }
}

/// A chat completion that is asked for.
struct AskedChat {
    parts: Parts,
    reserved: Reservation,
    fields: RequestFields,
    shape: AnswerShape,
    ignored: Vec<String>,
    identity: AnswerIdentity,
    keep: Option<stored::CompletionKey>,
}

/// Notice of the wait for a model that must be loaded first, if callers are told.
fn waiting(
    state: &ApiState,
    context: &Context,
    fields: &RequestFields,
    identity: &AnswerIdentity,
    shape: AnswerShape,
) -> Option<Waiting> {
    let events = state.service.swap_notices()?;
    let model = state.service.model(&fields.model).ok()?;
    // Where reasoning is not apart, notices would be taken for the answer.
    if model.loaded.is_some() || shape.thoughts != Thoughts::Apart {
        return None;
    }
    let model = model.listing.name.clone();
    let identity = AnswerIdentity {
        model: model.clone(),
        ..identity.clone()
    };
    Some(Waiting {
        model,
        events,
        chunks: ChatChunks::new(identity, shape, fields.n.unwrap_or(1), None),
        record: Arc::clone(&context.record),
        heartbeat: state.http.heartbeat,
    })
}

async fn answer_chat(
    state: Arc<ApiState>,
    context: Context,
    asked: AskedChat,
) -> Result<Response, Problem> {
    let AskedChat {
        parts,
        reserved,
        fields,
        shape,
        ignored,
        identity,
        keep,
    } = asked;
    let (n, stream) = (fields.n.unwrap_or(1), fields.stream);
    let started = start(&state, &context, CHAT, &parts, reserved, vec![fields]).await?;
    let identity = AnswerIdentity {
        model: started.model.clone(),
        ..identity
    };
    let answers = started.answering;
    let prompt = shape.token_ids.then(|| answers.prompts().concat());
    let whole = ChatWhole::new(identity.clone(), shape, n, prompt.clone());
    let mut response = if stream {
        let writer = CompletionRecorder {
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
    let ReceivedRequest {
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
        let whole = CompletionWhole::new(identity, shape, n, openings);
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
) -> Result<ReceivedRequest, Problem> {
    let mut received = receive(state, context, route, request).await?;
    default_model(state, &mut received.object);
    hints::check(&received.object)?;
    if let Some(user) = hints::user(&received.object) {
        context.record.user(user);
    }
    Ok(received)
}

fn identity(prefix: &str, model: &str) -> AnswerIdentity {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    AnswerIdentity {
        id: format!("{prefix}{}", uuid::Uuid::new_v4().simple()),
        created: now.map_or(0, |elapsed| elapsed.as_secs()),
        model: model.to_owned(),
    }
}

async fn whole_chat(mut answers: Answering, mut whole: ChatWhole) -> Result<ChatBody, Problem> {
    loop {
        match answers.next().await {
            Event::Prompt { tokens, .. } => whole.prompt(&tokens),
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
            Event::Prompt { choice, tokens } => whole.prompt(choice, &tokens),
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
