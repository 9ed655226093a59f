//! One line for each request when it has ended, and one when it begins, if so configured. Neither prompts nor answers nor keys stand in it.

use std::time::Duration;

use std::net::IpAddr;

use mortise_http::{EndedRequest, RequestStart};

/// Write the line of a request.
pub(crate) fn write(access: &EndedRequest<'_>) {
    let answer = access.answer.unwrap_or_default();
    tracing::info!(
        target: "mortise::access",
        id = access.id,
        method = access.method,
        route = access.route,
        status = access.status,
        peer = access.peer,
        model = access.model,
        stream = access.stream,
        max_tokens = access.max_tokens,
        principal = access.principal,
        tenant = access.tenant,
        labels = access.labels,
        user = access.user,
        prompt_tokens = answer.prompt_tokens,
        cached_tokens = answer.cached_tokens,
        completion_tokens = answer.completion_tokens,
        queue_ms = answer.queued.map(milliseconds),
        ttft_ms = answer.first_token.map(milliseconds),
        total_ms = milliseconds(access.elapsed),
        finish = access.finish,
        cost_micros = answer.cost_micros,
        error = access.error,
        trace_id = access.trace_id,
        "request"
    );
}

/// Write the line of a request that begins.
pub(crate) fn write_begun(id: &str, route: &'static str, peer: IpAddr, begun: &RequestStart) {
    tracing::info!(
        target: "mortise::access",
        id,
        route,
        %peer,
        model = begun.model,
        stream = begun.stream,
        max_tokens = begun.max_tokens,
        user = begun.user,
        "request begins"
    );
}

fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}
