//! The error object of Ollama's API: `{"error":"…"}`.

use mortise_http::Problem;
use serde_json::{Value, json};

/// A problem as the body of a response, or as the last line of a stream.
pub fn error_body(problem: &Problem) -> Value {
    json!({"error": problem.text()})
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
