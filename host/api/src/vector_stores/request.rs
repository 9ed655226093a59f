//! Bodies of requests, read the same way by all routes.

use std::sync::Arc;

use axum::body::Body;
use http::Request as HttpRequest;
use http::request::Parts;
use mortise_http::{Context, Problem, Reservation};
use mortise_retrieval::{FilterError, attributes_of};
use serde_json::{Map, Value, json};

use crate::call::call_of;
use crate::collections::Collections;
use crate::problem::problem_of;
use crate::receive::{ReceivedRequest, receive};
use crate::stored::{AccountCaller, caller};

/// A request of a caller with its body.
pub(super) struct VectorStoreRequest {
    pub(super) caller: AccountCaller,
    pub(super) parts: Parts,
    pub(super) object: Map<String, Value>,
    /// Memory of the body, given back when it is dropped.
    pub(super) _reserved: Reservation,
}

/// Ask who calls, and read the body.
pub(super) async fn asked(
    collections: &Arc<Collections>,
    context: &Context,
    route: &'static str,
    request: HttpRequest<Body>,
) -> Result<VectorStoreRequest, Problem> {
    let state = &collections.api;
    let ReceivedRequest {
        parts,
        object,
        reserved,
        ..
    } = receive(state, context, route, request).await?;
    Ok(VectorStoreRequest {
        caller: caller(state, context, route, "POST", &parts).await?,
        parts,
        object,
        _reserved: reserved,
    })
}

/// Ask whether the caller may use the model that makes the vectors of its documents.
pub(super) async fn may_embed(
    collections: &Arc<Collections>,
    (context, route): (&Context, &'static str),
    asked: &VectorStoreRequest,
    model: &str,
) -> Result<(), Problem> {
    let call = call_of(context, route, "POST", &asked.parts.headers);
    let admission = collections.api.service.authorize(&call, Some(model)).await;
    admission.map(drop).map_err(problem_of)
}

/// A part of a body that is wrong.
pub(super) fn wrong(error: FilterError) -> Problem {
    Problem::invalid(error.path.clone(), error.to_string())
}

/// Attributes as the body has them, checked.
pub(super) fn attributes(given: Option<Map<String, Value>>) -> Result<Value, Problem> {
    let given = given.unwrap_or_default();
    attributes_of(&given, "attributes").map_err(wrong)?;
    Ok(json!(given))
}
