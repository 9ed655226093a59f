//! The error object of Anthropic's API: `{"type":"error","error":{type,message},"request_id"}`.

use http::StatusCode;
use mortise_http::Problem;
use serde_json::{Value, json};

/// Header with the request's id.
pub(super) const ID_HEADER: &str = "request-id";

/// Status of Anthropic's for a server that takes no more work at present. It has no name in HTTP.
const OVERLOADED: u16 = 529;

/// Code of the refusal of a thread. Anthropic's clients read it in the details of the error, and go on without one.
const THREAD_UNSUPPORTED: &str = "thread_unsupported_request";

/// A problem as the body of a response, or as an event of a stream.
pub fn error_body(problem: &Problem) -> Value {
    let mut body = json!({
        "type": "error",
        "error": {"type": kind_of(problem), "message": message(problem)},
    });
    if problem.code == THREAD_UNSUPPORTED {
        body["error"]["details"] =
            json!({"error_code": THREAD_UNSUPPORTED, "unsupported": ["thread"]});
    }
    let mut headers = problem.headers.iter();
    if let Some((_, id)) = headers.find(|(name, _)| name == ID_HEADER) {
        body["request_id"] = json!(id);
    }
    body
}

/// The status in which Anthropic's clients know a problem.
pub(super) fn status(problem: &Problem) -> StatusCode {
    let full = matches!(problem.code.as_str(), "queue_full");
    match problem.status {
        StatusCode::SERVICE_UNAVAILABLE => overloaded(),
        StatusCode::TOO_MANY_REQUESTS if full => overloaded(),
        StatusCode::UNPROCESSABLE_ENTITY => StatusCode::BAD_REQUEST,
        status => status,
    }
}

fn overloaded() -> StatusCode {
    StatusCode::from_u16(OVERLOADED).unwrap_or(StatusCode::SERVICE_UNAVAILABLE)
}

fn kind_of(problem: &Problem) -> &'static str {
    match status(problem).as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 | 408 => "timeout_error",
        OVERLOADED => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

/// Clients that shorten their conversation look for these words.
fn message(problem: &Problem) -> String {
    match problem.code.as_str() {
        "context_length_exceeded" => format!("prompt is too long: {}", problem.text()),
        _ => problem.text().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_have_anthropics_types_and_statuses() {
        for (status_code, code, expected, kind) in [
            (400, "invalid_value", 400, "invalid_request_error"),
            (401, "invalid_api_key", 401, "authentication_error"),
            (403, "model_not_allowed", 403, "permission_error"),
            (404, "model_not_found", 404, "not_found_error"),
            (413, "body_too_large", 413, "request_too_large"),
            (429, "rate_limit_exceeded", 429, "rate_limit_error"),
            (429, "queue_full", 529, "overloaded_error"),
            (500, "engine_error", 500, "api_error"),
            (503, "server_stopping", 529, "overloaded_error"),
            (504, "timeout", 504, "timeout_error"),
        ] {
            let own = StatusCode::from_u16(status_code).expect("a status");
            let problem = Problem::new(own, code, "what was wrong").with_header(ID_HEADER, "req-7");
            assert_eq!(status(&problem).as_u16(), expected, "{code}");
            let expected = json!({
                "type": "error",
                "error": {"type": kind, "message": "what was wrong"},
                "request_id": "req-7",
            });
            assert_eq!(error_body(&problem), expected);
        }
    }
}
