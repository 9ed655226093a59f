//! The error object of Ollama's API: `{"error":"…"}`.

use http::StatusCode;
use mortise_http::Problem;
use serde_json::{Value, json};

/// A problem as the body of a response, or as the last line of a stream.
pub fn error_body(problem: &Problem) -> Value {
    json!({"error": problem.text()})
}

/// The status of a problem: Ollama has no other for what is wrong with a request.
pub(super) fn status(problem: &Problem) -> StatusCode {
    match problem.status {
        StatusCode::UNPROCESSABLE_ENTITY => StatusCode::BAD_REQUEST,
        status => status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_its_message() {
        let problem = Problem::invalid("options.seed", "`options.seed` must be an integer");
        let expected = json!({"error": "`options.seed` must be an integer"});
        assert_eq!(error_body(&problem), expected);
    }
}
