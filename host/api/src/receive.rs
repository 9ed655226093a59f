//! The body of a request, for handlers of all dialects: who asks is known before any of it is read.

use std::sync::Arc;

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Request as HttpRequest, header, request::Parts};
use mortise_http::{Context, Owner, Problem, Reservation, WaitLimits, object_within, read_json};
use mortise_service::{EncodedPrompt, Request};
use serde_json::{Map, Value};

use crate::call::{call_of, record_admitted};
use crate::problem::problem_of;
use crate::state::ApiState;

/// A request whose body is here.
pub(crate) struct ReceivedRequest {
    pub(crate) parts: Parts,
    pub(crate) object: Map<String, Value>,
    /// Memory of the body, given back when it is dropped.
    pub(crate) reserved: Reservation,
    /// Account of the caller, where the headers tell.
    pub(crate) account: Option<Arc<str>>,
}

/// Ask who calls, then read the body within the memory that its caller may have.
pub(crate) async fn receive(
    state: &ApiState,
    context: &Context,
    route: &'static str,
    request: HttpRequest<Body>,
) -> Result<ReceivedRequest, Problem> {
    let (mut parts, body) = request.into_parts();
    let call = call_of(context, route, "POST", &parts.headers);
    let identity = state.service.identify(&call).await.map_err(problem_of)?;
    let owner = Owner::new(context.peer.ip(), identity.tenant.as_deref());
    let mut reserved = state.http.bodies.open(owner);
    let body = read_json(&parts.headers, body, &state.http.body, &mut reserved).await?;
    let object = object_within(&body, &mut reserved)?;
    // Policies reserve tokens by it. Chunked bodies, those of HTTP/2 and messages of sockets have none of their own.
    parts
        .headers
        .insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    Ok(ReceivedRequest {
        parts,
        object,
        reserved,
        account: identity.account,
    })
}

/// Name the model that a body without `model` means: the only one that there is.
pub(crate) fn default_model(state: &ApiState, object: &mut Map<String, Value>) {
    if object.get("model").is_some_and(|model| !model.is_null()) {
        return;
    }
    let models = state.service.models();
    let mut shown = models.iter().filter(|model| !model.listing.hidden);
    if let (Some(only), None) = (shown.next(), shown.next()) {
        object.insert("model".to_owned(), Value::from(only.listing.name.as_str()));
    }
}

/// Render and encode a prompt that is not answered, within the caller's time.
pub(crate) async fn encode_prompt(
    state: &ApiState,
    context: &Context,
    route: &'static str,
    headers: &HeaderMap,
    request: &Request,
) -> Result<EncodedPrompt, Problem> {
    let limits = wait_limits(state, context, headers)?;
    let call = call_of(context, route, "POST", headers);
    let encoding = async {
        let encoded = state.service.encode_prompt(&call, request).await;
        encoded.map_err(problem_of)
    };
    let prompt = limits.bound(encoding).await?;
    record_admitted(context, &prompt.model, &prompt.admission);
    Ok(prompt)
}

/// Time limits for the answer to a request.
pub(crate) fn wait_limits(
    state: &ApiState,
    context: &Context,
    headers: &HeaderMap,
) -> Result<WaitLimits, Problem> {
    WaitLimits::of(headers, context.record.arrived(), state.http.max_queue_wait)
}
