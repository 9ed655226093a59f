//! `POST /v1/batches`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use http::{Request as HttpRequest, StatusCode, request::Parts};
use mortise_http::{Context, Owner, Problem, append_headers, json_response, no_body_memory};
use mortise_service::Granted;
use mortise_store::{Change, Key, Record, RecordKind};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::check::RefusedLine;
use super::endpoint::{Endpoint, Window};
use super::lines::Lines;
use super::live::credentials;
use super::record::{Batch, BatchRequest};
use super::{BATCHES, Batches, check, run};
use crate::call::{call_of, record_principal};
use crate::contents::file;
use crate::fields::{FieldReader, RouteFields};
use crate::files_expiry::Expiry;
use crate::hints;
use crate::ids::Ids;
use crate::ignored::add_header;
use crate::limits::MAX_BATCHES;
use crate::problem::problem_of;
use crate::receive::{ReceivedRequest, receive};
use crate::state::ApiState;
use crate::stored::{caller, store_problem, value_of};
use crate::unsupported::Unsupported;

/// Fields of this route.
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct BatchFields {
    input_file_id: String,
    endpoint: Endpoint,
    completion_window: Window,
    metadata: Option<Value>,
    output_expires_after: Option<Value>,
}

/// Fields, checked, and those that were left out of account.
struct Checked {
    fields: BatchFields,
    expiry: Option<Expiry>,
    ignored: Vec<String>,
}

/// The fields of a request, for the contract.
pub(super) fn fields(mode: Unsupported) -> RouteFields {
    RouteFields::new(mode).with::<BatchFields>()
}

fn parse(object: Map<String, Value>, mode: Unsupported) -> Result<Checked, Problem> {
    hints::check(&object)?;
    let mut reader = FieldReader::new(object, mode);
    let fields: BatchFields = reader.read()?;
    let expiry = fields.output_expires_after.as_ref();
    let expiry = expiry.map(|value| Expiry::of_object("output_expires_after", value));
    Ok(Checked {
        expiry: expiry.transpose()?.flatten(),
        ignored: reader.finish(|_| false)?,
        fields,
    })
}

/// `POST /v1/batches`
pub(super) async fn create(
    State(batches): State<Arc<Batches>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let state = &batches.api;
    let ReceivedRequest {
        parts,
        object,
        reserved,
        account: known,
    } = receive(state, &context, BATCHES, request).await?;
    let Checked {
        fields,
        expiry,
        ignored,
    } = parse(object, state.unsupported)?;
    let (owner, whose) = match known {
        Some(account) => (account, reserved.owner().clone()),
        // By its headers alone, the caller was not known.
        None => asked_for(state, &context, &parts).await?,
    };
    drop(reserved);
    let input = file(state, &owner, &fields.input_file_id, "input_file_id").await?;
    check_input(&input)?;
    let endpoint = fields.endpoint.word();
    let model = model(&batches, whose, &input.key, endpoint).await?;
    let call = call_of(&context, BATCHES, "POST", &parts.headers);
    let admission = state.service.authorize(&call, model.as_deref()).await;
    let admission = admission.map_err(problem_of)?;
    let grant = Granted::of(admission.allowance());
    record_principal(&context, &grant.principal);
    state.store.promise(&owner).await.map_err(store_problem)?;
    let key = Key::new(&owner, RecordKind::Batch, Ids::of(&parts).make("batch_"));
    let made = state.store.get(key.clone()).await.map_err(store_problem)?;
    let object = if let Some(made) = made {
        // The server was killed before the answer was kept for the request's idempotency key.
        Batch::of(&made)?.object
    } else {
        let known = (credentials(&parts.headers), context.peer.ip());
        let subject = grant.principal.subject.clone();
        let registered = batches
            .live
            .register(&key, subject, Some(known), MAX_BATCHES);
        let registered = registered.ok_or_else(too_many)?;
        let batch = Batch::new(BatchRequest {
            key,
            endpoint,
            window: fields.completion_window.word(),
            input: fields.input_file_id,
            model,
            metadata: fields.metadata.unwrap_or_else(|| json!({})),
            expiry,
            grant,
        });
        let change = Change::Put(batch.record(state.retention));
        state
            .store
            .commit(vec![change])
            .await
            .map_err(store_problem)?;
        let object = batch.object.clone();
        run::begin(&batches, batch, registered);
        object
    };
    let mut response = json_response(StatusCode::OK, &object);
    append_headers(response.headers_mut(), &admission.allowance().headers);
    add_header(&mut response, &ignored);
    Ok(response)
}

/// Account and share of memory of a caller whom the policies tell by the whole request only.
async fn asked_for(
    state: &ApiState,
    context: &Context,
    parts: &Parts,
) -> Result<(Arc<str>, Owner), Problem> {
    let caller = caller(state, context, BATCHES, "POST", parts).await?;
    let whose = Owner::new(context.peer.ip(), caller.tenant().as_deref());
    Ok((caller.owner, whose))
}

fn check_input(record: &Record) -> Result<(), Problem> {
    let purpose = &value_of(record)["purpose"];
    if purpose == "batch" {
        return Ok(());
    }
    let problem = format!("the file has the purpose {purpose}; upload it with the purpose `batch`");
    Err(Problem::invalid("input_file_id", problem))
}

/// The model of the first line, which must be that of all. What is wrong with a line, the check of all lines tells.
async fn model(
    batches: &Batches,
    whose: Owner,
    input: &Key,
    endpoint: &str,
) -> Result<Option<String>, Problem> {
    let state = &batches.api;
    let most = state.http.body.bytes;
    let mut lines = Lines::of(Arc::clone(&state.store), input.clone(), most);
    let first = lines.next().await.map_err(store_problem)?;
    let Some(text) = first.and_then(|line| line.text) else {
        return Ok(None);
    };
    let mut memory = state.http.bodies.open(whose);
    let line = match check::read(&text, endpoint, &mut memory) {
        Ok(line) => Some(line),
        Err(RefusedLine::Wrong(_)) => None,
        Err(RefusedLine::Busy) => return Err(no_body_memory()),
    };
    let model = line.and_then(|line| Some(line.body.get("model")?.as_str()?.to_owned()));
    Ok(model.or_else(|| {
        let models = state.service.models();
        let mut shown = models.iter().filter(|model| !model.listing.hidden);
        let (only, none) = (shown.next()?, shown.next());
        none.is_none().then(|| only.listing.name.clone())
    }))
}

fn too_many() -> Problem {
    Problem::new(
        StatusCode::TOO_MANY_REQUESTS,
        "too_many_batches",
        format!("{MAX_BATCHES} batches of yours have not ended; wait for some of them"),
    )
    .with_header("retry-after", "60")
}
