//! A request without its body, as the service sees it.

use std::sync::Arc;

use http::HeaderMap;
use mortise_http::Context;
use mortise_service::{Admission, ApiCall, Granted, Principal, RequestId, account_of};

/// Facts of a request that the server itself makes, as [`mortise_http::Own`] carries them.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnCall {
    /// Work that was admitted before.
    pub(crate) granted: Option<Granted>,
    /// Steps of priority that are left to others.
    pub(crate) waived_priority: i32,
}

/// Tell the access record of a request who asks.
pub(crate) fn record_principal(context: &Context, principal: &Principal) {
    let (subject, tenant) = (&principal.subject, principal.tenant.as_deref());
    context.record.principal(subject, tenant, &principal.labels);
    context.record.counts_for(account_of(principal));
}

/// Tell the access record of a request which model it is about, and who asks.
pub(crate) fn record_admitted(context: &Context, model: &str, admission: &Admission) {
    context.record.answers(model);
    record_principal(context, &admission.allowance().principal);
}

/// The request behind `context` as a call of a route.
pub(crate) fn call_of(
    context: &Context,
    route: &'static str,
    method: &'static str,
    headers: &HeaderMap,
) -> ApiCall {
    let headers = headers.iter().filter_map(|(name, value)| {
        Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
    });
    let own = context.own.as_ref();
    let own = own.and_then(|own| own.0.downcast_ref::<OwnCall>());
    ApiCall {
        request_id: RequestId::new(Arc::clone(&context.id)),
        route,
        method,
        peer: context.peer.ip().to_string(),
        headers: headers.collect(),
        arrived: context.record.arrived(),
        granted: own.and_then(|own| own.granted.clone()),
        waived_priority: own.map_or(0, |own| own.waived_priority),
    }
}
