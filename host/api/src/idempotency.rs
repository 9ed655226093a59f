//! `Idempotency-Key`: a request that is sent again gets the very answer that it got before, and is not done twice.
//!
//! The answer is recorded while it is made, and goes on when its caller has gone; whoever sends the same key and
//! body meanwhile reads along. What succeeded is kept for a time. What failed is not, so that it can be retried.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use mortise_http::{Context, Owner, Problem, panicked, read_json};
use mortise_store::{Change, Key, Record, RecordKind, StoreError};
use mortise_trace::Span;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::sleep;

use crate::call::call_of;
use crate::executions::{
    AnswerHead, Execution, ExecutionState, RegisteredExecution, RequestFingerprint,
};
use crate::ids::{Seed, now};
use crate::limits::MAX_IDEMPOTENCY_KEY;
use crate::problem::problem_of;
use crate::retention::after;
use crate::state::ApiState;
use crate::stored::{caller, store_problem};

const KEY: &str = "idempotency-key";
const REPLAYED: &str = "idempotency-replayed";

/// First pause between two looks for an answer that another host makes.
const ELSEWHERE_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause between two looks for an answer that another host makes.
const ELSEWHERE_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Attempts to give up a claim, and the pauses between them.
const RELEASES: u32 = 60;
const RELEASE_PAUSE: Duration = Duration::from_secs(1);

/// Content types of answers that are read while they are made.
const STREAMED: [&[u8]; 2] = [b"text/event-stream", b"application/x-ndjson"];

/// Headers that are kept with an answer.
const KEPT: [&str; 5] = [
    "content-type",
    "cache-control",
    "x-accel-buffering",
    "x-mortise-advice",
    "x-mortise-ignored",
];

/// Answer a request once for its idempotency key, if it has one.
pub(crate) async fn layer(
    State(state): State<Arc<ApiState>>,
    request: Request<Body>,
    next: Next,
) -> Response {
    let keyed = request.method() == Method::POST && request.headers().contains_key(KEY);
    if !keyed || state.retention.idempotency.is_zero() {
        return next.run(request).await;
    }
    once(&state, request, next)
        .await
        .unwrap_or_else(Problem::into_response)
}

async fn once(
    state: &Arc<ApiState>,
    request: Request<Body>,
    next: Next,
) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    let key = key_of(&parts.headers)?;
    let Some(context) = parts.extensions.get::<Context>().cloned() else {
        return Err(panicked());
    };
    let call = call_of(&context, context.route, "POST", &parts.headers);
    let identity = state.service.identify(&call).await.map_err(problem_of)?;
    let owner = match identity.account {
        Some(account) => account,
        None => {
            caller(state, &context, context.route, "POST", &parts)
                .await?
                .owner
        }
    };
    let whose = Owner::new(context.peer.ip(), identity.tenant.as_deref());
    let mut reserved = state.http.bodies.open(whose.clone());
    let body = read_json(&parts.headers, body, &state.http.body, &mut reserved).await?;
    let fingerprint = fingerprint(&parts, &body);
    let name = (Arc::clone(&owner), key.clone());
    let registered = match entered(state, &name, fingerprint, &whose).await? {
        Entered::First(registered) => registered,
        Entered::Running(execution) => return replay(execution, true).await,
    };
    let kept = Key::new(&owner, RecordKind::Idempotency, key);
    if let Some(record) = claimed(state, &kept, fingerprint).await? {
        return of_record(&record, fingerprint);
    }
    parts.extensions.insert(Seed(seed(&kept, fingerprint)));
    drop(reserved);
    let request = Request::from_parts(parts, Body::from(body));
    let execution = Arc::clone(&registered.execution);
    tokio::spawn(Span::current().run(execute(
        Arc::clone(state),
        registered,
        kept,
        context,
        request,
        next,
    )));
    replay(execution, false).await
}

/// Result of entering a request with a key in the table of executions.
enum Entered {
    /// The request is the first of its key, and no other answers it.
    First(RegisteredExecution),
    /// A request of the same key is being answered, and the answer has begun.
    Running(Arc<Execution>),
}

async fn entered(
    state: &ApiState,
    name: &(Arc<str>, String),
    fingerprint: RequestFingerprint,
    whose: &Owner,
) -> Result<Entered, Problem> {
    loop {
        let memory = state.recordings.open(whose.clone());
        let execution = match state.executions.enter(name.clone(), fingerprint, memory) {
            ExecutionState::First(registered) => return Ok(Entered::First(registered)),
            ExecutionState::Running(execution) => execution,
            ExecutionState::Full => {
                return Err(Problem::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "too_many_idempotent_requests",
                    "too many requests with idempotency keys are being answered; retry shortly",
                )
                .with_header("retry-after", "1"));
            }
        };
        if execution.fingerprint != fingerprint {
            return Err(conflict());
        }
        // Who entered first may have found the answer in the store, and made none: then it is there for this one too.
        if execution.head().await.is_some() {
            return Ok(Entered::Running(execution));
        }
    }
}

/// Claim a key for this host, whose answer is promised room; the answer that is kept for the key if there is one. Where
/// several hosts share the store, one of them answers and the others wait for that.
async fn claimed(
    state: &ApiState,
    kept: &Key,
    fingerprint: RequestFingerprint,
) -> Result<Option<Record>, Problem> {
    let mut pause = ELSEWHERE_PAUSE;
    loop {
        let record = state.store.get(kept.clone()).await.map_err(store_problem)?;
        if let Some(record) = record {
            if !record.open {
                return Ok(Some(record));
            }
            if head_of(&record)["fingerprint"] != hex(fingerprint) {
                return Err(conflict());
            }
        }
        let promised = state.store.promise(&kept.owner).await;
        promised.map_err(store_problem)?;
        if !state.store.is_shared() {
            return Ok(None);
        }
        let expires = after(now(), state.retention.idempotency);
        let claim = claim_of(kept, fingerprint, expires);
        match state.store.commit(vec![Change::Create(claim)]).await {
            Ok(()) => return Ok(None),
            Err(StoreError::Conflict) => sleep(pause).await,
            Err(error) => return Err(store_problem(error)),
        }
        pause = (2 * pause).min(ELSEWHERE_PAUSE_MAX);
    }
}

/// The record by which a host claims a key until it expires.
fn claim_of(key: &Key, fingerprint: RequestFingerprint, expires: i64) -> Record {
    let line = json!({"fingerprint": hex(fingerprint)});
    Record {
        key: key.clone(),
        created: now(),
        expires: Some(expires),
        open: true,
        body: line.to_string().into_bytes(),
    }
}

/// Give up the claim of a key whose request can be retried, unless another host has taken it over.
async fn release(state: &ApiState, key: &Key, fingerprint: RequestFingerprint) {
    let claim = claim_of(key, fingerprint, 0);
    let release = Change::Replace {
        before: claim.body.clone(),
        record: claim,
    };
    for _ in 0..RELEASES {
        match state.store.commit(vec![release.clone()]).await {
            Ok(()) | Err(StoreError::Conflict) => return,
            Err(error) => tracing::warn!(%error, "an idempotency key could not be released"),
        }
        sleep(RELEASE_PAUSE).await;
    }
}

fn key_of(headers: &HeaderMap) -> Result<String, Problem> {
    let mut keys = headers.get_all(KEY).iter();
    let key = keys.next().map(HeaderValue::as_bytes).unwrap_or_default();
    let visible = (1..=MAX_IDEMPOTENCY_KEY).contains(&key.len())
        && key
            .iter()
            .all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    match String::from_utf8(key.to_vec()) {
        Ok(key) if visible && keys.next().is_none() => Ok(key),
        _ => Err(Problem::invalid(
            "Idempotency-Key",
            format!(
                "the header `Idempotency-Key` must be there once, with 1 to {MAX_IDEMPOTENCY_KEY} \
                 printable ASCII characters"
            ),
        )),
    }
}

fn fingerprint(parts: &http::request::Parts, body: &[u8]) -> RequestFingerprint {
    let mut hash = Sha256::new();
    let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
    hash.update(path.as_bytes());
    hash.update([0]);
    hash.update(body);
    hash.finalize().into()
}

fn seed(key: &Key, fingerprint: RequestFingerprint) -> Arc<[u8]> {
    let parts = [
        key.owner.as_bytes(),
        &[0],
        key.id.as_bytes(),
        &[0],
        &fingerprint,
    ];
    parts.concat().into()
}

fn conflict() -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        "idempotency_conflict",
        "the same `Idempotency-Key` was sent with another request; a key stands for one request",
    )
    .at("Idempotency-Key")
    .with_header("x-should-retry", "false")
}

/// Answer the request and keep the answer, whether or not a caller reads it.
async fn execute(
    state: Arc<ApiState>,
    registered: RegisteredExecution,
    key: Key,
    context: Context,
    request: Request<Body>,
    next: Next,
) {
    let execution = &registered.execution;
    let kept = recorded(&state, execution, key.clone(), &context, request, next).await;
    if !kept && state.store.is_shared() {
        release(&state, &key, execution.fingerprint).await;
    }
}

/// Do the request and record its answer. True if that was kept.
async fn recorded(
    state: &ApiState,
    execution: &Execution,
    key: Key,
    context: &Context,
    request: Request<Body>,
    next: Next,
) -> bool {
    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let response = answered.unwrap_or_else(|_| panicked().into_response());
    let (mut parts, body) = response.into_parts();
    let problem = parts.extensions.remove::<Problem>();
    let head = AnswerHead {
        status: parts.status,
        headers: parts.headers,
        problem,
    };
    execution.begin(head.clone());
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let Ok(chunk) = chunk else {
            return false;
        };
        if !execution.add(chunk) {
            tracing::warn!("an answer is longer than can be kept for its idempotency key");
            return false;
        }
    }
    if !head.status.is_success() || head.problem.is_some() || context.record.has_failed() {
        return false;
    }
    let record = record_of(state, key, execution, &head);
    let written = state.store.commit(vec![Change::Put(record)]).await;
    if let Err(error) = &written {
        tracing::error!(%error, "an answer could not be kept for its idempotency key");
    }
    written.is_ok()
}

fn record_of(state: &ApiState, key: Key, execution: &Execution, head: &AnswerHead) -> Record {
    let headers = KEPT.iter().filter_map(|name| {
        let value = head.headers.get(*name)?.to_str().ok()?;
        Some(json!([name, value]))
    });
    let line = json!({
        "fingerprint": hex(execution.fingerprint),
        "status": head.status.as_u16(),
        "headers": headers.collect::<Vec<_>>(),
    });
    let mut body = line.to_string().into_bytes();
    body.push(b'\n');
    body.extend_from_slice(&execution.body());
    let created = now();
    Record {
        key,
        created,
        expires: Some(after(created, state.retention.idempotency)),
        open: false,
        body,
    }
}

fn hex(fingerprint: RequestFingerprint) -> String {
    fingerprint
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The first line of a record, and what follows it.
fn split(record: &Record) -> (&[u8], &[u8]) {
    let end = record.body.iter().position(|byte| *byte == b'\n');
    record.body.split_at(end.unwrap_or(record.body.len()))
}

fn head_of(record: &Record) -> Value {
    serde_json::from_slice(split(record).0).unwrap_or_default()
}

/// Stored answer of a record.
fn of_record(record: &Record, fingerprint: RequestFingerprint) -> Result<Response, Problem> {
    let (head, body) = (head_of(record), split(record).1);
    if head["fingerprint"] != hex(fingerprint) {
        return Err(conflict());
    }
    let body = Bytes::copy_from_slice(body.get(1..).unwrap_or_default());
    let mut response = Response::new(Body::from(body));
    let status = head["status"]
        .as_u64()
        .and_then(|status| u16::try_from(status).ok());
    *response.status_mut() = status
        .and_then(|status| StatusCode::from_u16(status).ok())
        .unwrap_or(StatusCode::OK);
    for pair in head["headers"].as_array().into_iter().flatten() {
        let text = |at: usize| pair[at].as_str().unwrap_or_default();
        if let (Ok(name), Ok(value)) = (
            text(0).parse::<HeaderName>(),
            HeaderValue::from_str(text(1)),
        ) {
            response.headers_mut().insert(name, value);
        }
    }
    mark(&mut response);
    Ok(response)
}

fn mark(response: &mut Response) {
    let replayed = HeaderValue::from_static("true");
    response
        .headers_mut()
        .insert(HeaderName::from_static(REPLAYED), replayed);
}

/// Read the recording of an answer from its beginning.
async fn replay(execution: Arc<Execution>, again: bool) -> Result<Response, Problem> {
    let Some(head) = execution.head().await else {
        return Err(panicked());
    };
    if let Some(problem) = head.problem {
        return Err(problem);
    }
    let streams = head.headers.get(header::CONTENT_TYPE).is_some_and(|kind| {
        let kind = kind.as_bytes();
        STREAMED.iter().any(|streamed| kind.starts_with(streamed))
    });
    let body = match streams {
        true => Body::from_stream(stream::unfold(
            (execution, 0),
            |(execution, place)| async move {
                let chunk = execution.chunk(place).await?;
                Some((chunk, (execution, place + 1)))
            },
        )),
        false => whole(&execution).await?,
    };
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    if again {
        mark(&mut response);
    }
    Ok(response)
}

/// The whole body of an answer that is not streamed.
async fn whole(execution: &Execution) -> Result<Body, Problem> {
    let mut place = 0;
    while let Some(chunk) = execution.chunk(place).await {
        if let Err(error) = chunk {
            return Err(Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "answer_too_long",
                error.to_string(),
            ));
        }
        place += 1;
    }
    Ok(Body::from(execution.body()))
}
