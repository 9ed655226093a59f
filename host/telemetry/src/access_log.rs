//! One line for each request, when it has ended. Neither prompts nor answers nor keys stand in it.

use std::time::Duration;

use mortise_http::Access;

/// Write the line of a request.
pub(crate) fn write(access: &Access<'_>) {
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
        principal = access.principal,
        prompt_tokens = answer.prompt_tokens,
        cached_tokens = answer.cached_tokens,
        completion_tokens = answer.completion_tokens,
        queue_ms = answer.queued.map(milliseconds),
        ttft_ms = answer.first_token.map(milliseconds),
        total_ms = milliseconds(access.elapsed),
        finish = access.finish,
        error = access.error,
        "request"
    );
}

fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}
