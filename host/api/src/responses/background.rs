//! Responses that are made in the background: they go on without their caller, and are taken up again when the
//! server was ended before they were complete.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use http::{Request, StatusCode};
use mortise_http::{AccessRecord, Context, Own, Owner, Problem, Reservation};
use mortise_service::{Granted, Principal};
use mortise_store::{Change, Key, Record, RecordKind, StoreError};
use mortise_trace::Span;
use serde_json::{Map, Value, json};

use super::create::{CheckedRequest, StartedResponse, begin, nothing};
use super::drive::Driver;
use super::request::parse;
use crate::call::OwnCall;
use crate::cancellations;
use crate::ids::Ids;
use crate::limits::MAX_BACKGROUND;
use crate::live::RegisteredAnswer;
use crate::state::ApiState;
use crate::stored::store_problem;

/// Write a response that has begun, and make it in a task of its own. Returns it as it is now.
pub(super) async fn detach(
    state: &Arc<ApiState>,
    mut begun: StartedResponse,
    request: &Map<String, Value>,
    principal: Principal,
    peer: IpAddr,
) -> Result<(Value, Arc<crate::live::LiveAnswer>), Problem> {
    let response = begun.driver.assembly.response();
    let Some(keep) = &mut begun.driver.keep else {
        return Err(Problem::invalid(
            "background",
            "`background` needs `store` to be true",
        ));
    };
    let (owner, id) = (Arc::clone(&keep.key.owner), keep.key.id.clone());
    if let Some(live) = state.live.find(&owner, &id) {
        // It was taken up after a restart, and its caller asks again with the same idempotency key.
        return Ok((response, live));
    }
    let memory = recording(state, peer, &principal);
    let registered = state.live.register(&owner, &id, memory);
    let registered = registered.ok_or_else(too_many)?;
    keep.live = Some(Arc::clone(&registered.live));
    let request = json!({
        "request": request,
        "subject": principal.subject,
        "tenant": principal.tenant,
    });
    let changes = keep.begun(&response, request.to_string().into_bytes());
    state.store.commit(changes).await.map_err(store_problem)?;
    let live = Arc::clone(&registered.live);
    // It goes on behind the answer to its request, in the trace of that.
    let made = make(Arc::clone(state), begun.driver, registered);
    tokio::spawn(Span::current().run(made));
    Ok((response, live))
}

/// Memory for the events of an answer.
fn recording(state: &ApiState, peer: IpAddr, principal: &Principal) -> Reservation {
    let owner = Owner::new(peer, principal.tenant.as_deref());
    state.recordings.open(owner)
}

fn too_many() -> Problem {
    Problem::new(
        StatusCode::TOO_MANY_REQUESTS,
        "too_many_background_responses",
        format!(
            "{MAX_BACKGROUND} responses of yours are being made in the background; retry later"
        ),
    )
    .with_header("retry-after", "5")
}

/// Make a response to its end, and write it.
async fn make(state: Arc<ApiState>, mut driver: Driver, registered: RegisteredAnswer) {
    let live = &registered.live;
    loop {
        let events = tokio::select! {
            biased;
            () = live.cancelled() => {
                driver.assembly.cancelled();
                break;
            }
            events = driver.next() => events,
        };
        let Some(events) = events else {
            break;
        };
        let events: Vec<String> = events.iter().map(Value::to_string).collect();
        live.add(&events);
    }
    if driver.stopped {
        return;
    }
    let Some(keep) = driver.keep.clone() else {
        return;
    };
    let written = driver.commit(&keep).await;
    // One that was removed, or that another host has taken over, is written by nobody here.
    if let Ok(Err(error)) = written
        && !matches!(error, StoreError::NotFound | StoreError::Conflict)
    {
        tracing::error!(%error, id = keep.key.id, "a response could not be written");
        // What was begun may not stay as if it went on: the next start takes it up.
        let _ = state.store.promise(&keep.key.owner).await;
    }
}

/// Take up the responses that were being made when the server ended, or another that shares the store.
pub async fn resume(state: Arc<ApiState>) {
    let open = match state.store.unfinished(RecordKind::Response).await {
        Ok(open) => open,
        Err(error) => {
            tracing::error!(%error, "responses that were not complete cannot be read");
            return;
        }
    };
    for record in open {
        let (owner, id) = (&record.key.owner, record.key.id.clone());
        if state.live.find(owner, &id).is_some() {
            continue;
        }
        // It may have come to its end since the list was read.
        let now = state.store.get(record.key.clone()).await;
        if !matches!(now, Ok(Some(now)) if now.open) {
            continue;
        }
        match again(&state, &record).await {
            Ok(()) => tracing::info!(id, "a response is made again after a restart"),
            Err(problem) => {
                tracing::warn!(
                    id,
                    error = problem.text(),
                    "a response could not be taken up"
                );
                give_up(&state, record, &problem).await;
            }
        }
    }
}

/// End the responses that other hosts were asked to cancel, and this one makes.
///
/// # Errors
/// When the requests cannot be read.
pub async fn cancel_asked(state: &ApiState) -> Result<(), StoreError> {
    let cancel = |key: &Key| {
        let live = state.live.find(&key.owner, &key.id);
        live.map(|live| live.cancel()).is_some()
    };
    cancellations::fulfil(state, RecordKind::Response, cancel).await
}

/// Begin a response anew from the request that was kept.
async fn again(state: &Arc<ApiState>, record: &Record) -> Result<(), Problem> {
    let unreadable = || {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "request_lost",
            "the request was not kept",
        )
    };
    let key = Key {
        kind: RecordKind::ResponseEvents,
        ..record.key.clone()
    };
    let kept = state.store.get(key).await.map_err(store_problem)?;
    let kept: Value = kept
        .and_then(|kept| serde_json::from_slice(&kept.body).ok())
        .ok_or_else(unreadable)?;
    let Value::Object(request) = kept["request"].clone() else {
        return Err(unreadable());
    };
    let response = serde_json::from_slice(&record.body).map_err(|_| unreadable())?;
    let principal = Principal {
        subject: kept["subject"].as_str().unwrap_or_default().to_owned(),
        tenant: kept["tenant"].as_str().map(str::to_owned),
        ..Principal::default()
    };
    let mut ids = Ids::default();
    let call = parse(request, state.unsupported, &mut ids)?;
    let context = context(&principal);
    let (parts, ()) = Request::new(()).into_parts();
    let asked = CheckedRequest {
        call,
        owner: Arc::clone(&record.key.owner),
        ids,
        again: Some(response),
    };
    let memory = nothing(state, &context);
    let mut begun = begin(state, &context, &parts, memory, asked).await?;
    let memory = recording(state, context.peer.ip(), &principal);
    let registered = state
        .live
        .register(&record.key.owner, &record.key.id, memory);
    let registered = registered.ok_or_else(too_many)?;
    if let Some(keep) = &mut begun.driver.keep {
        keep.live = Some(Arc::clone(&registered.live));
    }
    tokio::spawn(make(Arc::clone(state), begun.driver, registered));
    Ok(())
}

/// The context of work that was admitted before.
fn context(principal: &Principal) -> Context {
    Context {
        id: format!("resumed-{}", uuid::Uuid::new_v4().simple()).into(),
        peer: SocketAddr::from((IpAddr::V4(Ipv4Addr::LOCALHOST), 0)),
        route: super::RESPONSES,
        record: Arc::new(AccessRecord::new(Instant::now())),
        own: Some(Own(Arc::new(OwnCall {
            granted: Some(Granted {
                principal: principal.clone(),
                ..Granted::default()
            }),
            waived_priority: 0,
        }))),
    }
}

/// A response that cannot be made has failed.
async fn give_up(state: &ApiState, record: Record, problem: &Problem) {
    let mut response: Value = serde_json::from_slice(&record.body).unwrap_or_default();
    response["status"] = json!("failed");
    response["error"] = json!({"code": problem.code, "message": problem.text()});
    let record = Record {
        open: false,
        body: super::keep::body(&response),
        ..record
    };
    if let Err(error) = state.store.commit(vec![Change::Update(record)]).await {
        tracing::error!(%error, "a response that failed could not be written");
    }
}
