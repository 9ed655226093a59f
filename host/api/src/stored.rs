//! What handlers of all dialects share about stored records: whose they are, and failures of the store.

use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;
use mortise_http::{Context, Problem, append_headers};
use mortise_service::Admission;
use mortise_store::StoreError;

use crate::call::call_of;
use crate::problem::problem_of;
use crate::state::ApiState;

/// A caller who may read and change what is stored for its account.
pub(crate) struct Caller {
    pub(crate) owner: Arc<str>,
    admission: Admission,
}

impl Caller {
    /// Headers of the policies.
    pub(crate) fn add_headers(&self, response: &mut axum::response::Response) {
        append_headers(response.headers_mut(), &self.admission.allowance().headers);
    }
}

/// Ask the policies about a request that generates nothing.
pub(crate) async fn caller(
    state: &ApiState,
    context: &Context,
    route: &'static str,
    method: &'static str,
    parts: &Parts,
) -> Result<Caller, Problem> {
    let call = call_of(context, route, method, &parts.headers);
    let admission = state.service.authorize(&call, None).await;
    let admission = admission.map_err(problem_of)?;
    let subject = &admission.allowance().principal.subject;
    context.record.principal(subject);
    Ok(Caller {
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

/// A failure of the store as clients are told it. What is wrong with the disk stands in the log.
pub(crate) fn store_problem(error: StoreError) -> Problem {
    let message = error.to_string();
    match error {
        StoreError::NotFound => Problem::new(StatusCode::NOT_FOUND, "not_found", message),
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

/// Nothing of this id is stored for the caller.
pub(crate) fn absent(what: &str, id: &str, param: &str) -> Problem {
    let id: String = id.chars().take(128).collect();
    Problem::new(
        StatusCode::NOT_FOUND,
        "not_found",
        format!("there is no {what} with the id `{id}`"),
    )
    .at(param)
}
