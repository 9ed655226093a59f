//! The error object of OpenAI's API: `{"error":{message,type,param,code}}`.

use http::StatusCode;
use mortise_http::Problem;
use serde_json::{Value, json};

/// A problem as the body of a response, or as an event of a stream.
pub fn error_body(problem: &Problem) -> Value {
    json!({ "error": {
        "message": problem.text(),
        "type": problem.kind.as_deref().unwrap_or_else(|| kind_of(problem.status)),
        "param": problem.param,
        "code": problem.code,
    }})
}

fn kind_of(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    }
}

/// The type of problems in the contract.
pub const ERROR: &str = "OpenAiError";

/// Its shape.
pub(crate) const SHAPE: &str = "type OpenAiError = {
  error: { message: string; type: string; param: string | null; code: string };
};";
