//! Stored records, for handlers of all dialects: their owner, reading and changing them, failures of the store.

use std::sync::Arc;

use axum::response::Response;
use http::StatusCode;
use http::request::Parts;
use mortise_http::{Context, Problem, append_headers, json_response};
use mortise_service::{Admission, Principal};
use mortise_store::{Change, Item, Key, Record, RecordPage, StoreError};
use serde_json::{Value, json};

use crate::call::{call_of, record_principal};
use crate::problem::problem_of;
use crate::state::ApiState;

/// A caller who may read and change what is stored for its account.
pub(crate) struct AccountCaller {
    pub(crate) owner: Arc<str>,
    admission: Admission,
}

impl AccountCaller {
    /// Caller.
    pub(crate) fn subject(&self) -> &str {
        &self.admission.allowance().principal.subject
    }

    /// Identity of the caller.
    pub(crate) fn principal(&self) -> &Principal {
        &self.admission.allowance().principal
    }

    /// Tenant, if the policies name one.
    pub(crate) fn tenant(&self) -> Option<String> {
        self.admission.allowance().principal.tenant.clone()
    }

    /// Headers of the policies.
    pub(crate) fn add_headers(&self, response: &mut Response) {
        append_headers(response.headers_mut(), &self.admission.allowance().headers);
    }

    /// Answer with a body and the headers of the policies.
    pub(crate) fn answer(&self, body: &Value) -> Response {
        let mut response = json_response(StatusCode::OK, body);
        self.add_headers(&mut response);
        response
    }
}

/// The record of a key; a problem that names `param` if there is no such `what`.
pub(crate) async fn found(
    state: &ApiState,
    key: Key,
    what: &str,
    param: &str,
) -> Result<Record, Problem> {
    let id = key.id.clone();
    let record = state.store.get(key).await.map_err(store_problem)?;
    record.ok_or_else(|| absent(what, &id, param))
}

/// The object of a record.
pub(crate) fn value_of(record: &Record) -> Value {
    serde_json::from_slice(&record.body).unwrap_or_default()
}

/// The objects of a page of items.
pub(crate) fn parsed(listing: &RecordPage<Item>) -> RecordPage<Value> {
    let entries = listing.entries.iter();
    RecordPage {
        entries: entries
            .map(|item| serde_json::from_slice(&item.body).unwrap_or_default())
            .collect(),
        more: listing.more,
    }
}

/// Replace the `metadata` of a stored object. Returns the changed object.
pub(crate) async fn set_metadata(
    state: &ApiState,
    record: Record,
    metadata: Option<Value>,
) -> Result<Value, Problem> {
    let mut object = value_of(&record);
    let metadata = metadata.filter(|value| !value.is_null());
    object["metadata"] = metadata.unwrap_or_else(|| json!({}));
    let record = Record {
        body: object.to_string().into_bytes(),
        ..record
    };
    let changes = vec![Change::Update(record)];
    state.store.commit(changes).await.map_err(store_problem)?;
    Ok(object)
}

/// Failure of a page that begins behind `after`, which may be absent.
pub(crate) fn after_absent(what: &str, error: StoreError, after: Option<&str>) -> Problem {
    match (error, after) {
        (StoreError::NotFound, Some(id)) => {
            let mut problem = absent(what, id, "after");
            problem.status = StatusCode::BAD_REQUEST;
            problem
        }
        (error, _) => store_problem(error),
    }
}

/// Ask the policies about a request that generates nothing.
pub(crate) async fn caller(
    state: &ApiState,
    context: &Context,
    route: &'static str,
    method: &'static str,
    parts: &Parts,
) -> Result<AccountCaller, Problem> {
    let call = call_of(context, route, method, &parts.headers);
    let admission = state.service.authorize(&call, None).await;
    let admission = admission.map_err(problem_of)?;
    record_principal(context, &admission.allowance().principal);
    Ok(AccountCaller {
        owner: admission.account(),
        admission,
    })
}

/// The account of a request that generates something, whose policies are asked with its model.
pub(crate) async fn account(
    state: &ApiState,
    context: &Context,
    route: &'static str,
    parts: &Parts,
    known: Option<Arc<str>>,
) -> Result<Arc<str>, Problem> {
    match known {
        Some(account) => Ok(account),
        None => Ok(caller(state, context, route, "POST", parts).await?.owner),
    }
}

/// Problem that a failure of the store is answered with. Details of a failed disk stand in the log.
pub(crate) fn store_problem(error: StoreError) -> Problem {
    let message = error.to_string();
    match error {
        StoreError::NotFound => Problem::new(StatusCode::NOT_FOUND, "not_found", message),
        StoreError::Conflict => Problem::new(StatusCode::CONFLICT, "changed_meanwhile", message)
            .with_header("retry-after", "1"),
        StoreError::Quota { .. } => {
            Problem::new(StatusCode::FORBIDDEN, "store_quota_exceeded", message)
        }
        StoreError::TooLarge { .. } => {
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large_to_store", message)
        }
        StoreError::Full => Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "store_full",
            "the server's store is full; requests with `store` false are answered. Operators: see \
             `store.max_mib`",
        )
        .with_header("retry-after", "60"),
        StoreError::Busy => Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store_busy", message)
            .with_header("retry-after", "1"),
        StoreError::Unavailable(_) => Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "store_unavailable",
            "the server cannot write or read its state at present; requests with `store` false are \
             answered",
        )
        .with_header("retry-after", "10"),
    }
}

/// Problem 404: the caller has no stored record of this id.
pub(crate) fn absent(what: &str, id: &str, param: &str) -> Problem {
    let id: String = id.chars().take(128).collect();
    Problem::new(
        StatusCode::NOT_FOUND,
        "not_found",
        format!("there is no {what} with the id `{id}`"),
    )
    .at(param)
}
