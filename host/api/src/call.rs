//! A request without its body, as the service sees it.

use std::sync::Arc;

use http::HeaderMap;
use mortise_http::Context;
use mortise_service::{Call, Granted};

/// The request behind `context` as a call of a route.
pub(crate) fn call_of(
    context: &Context,
    route: &'static str,
    method: &'static str,
    headers: &HeaderMap,
) -> Call {
    let headers = headers.iter().filter_map(|(name, value)| {
        Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
    });
    Call {
        request_id: Arc::clone(&context.id),
        route,
        method,
        peer: context.peer.ip().to_string(),
        headers: headers.collect(),
        arrived: context.record.arrived(),
        granted: context
            .own
            .as_ref()
            .and_then(|own| own.0.downcast_ref::<Granted>().cloned()),
    }
}
