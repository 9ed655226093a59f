//! The error object of the dialect: `{"error":{code,message,details}}`.

use http::StatusCode;
use mortise_http::Problem;
use serde_json::{Value, json};

/// A problem as the body of a response, or as the last event of a stream.
pub(super) fn error_body(problem: &Problem) -> Value {
    let code = code_of(problem);
    let mut error = json!({"code": code, "message": problem.text()});
    let mut details = json!({});
    if let Some(choices) = &problem.choices {
        details["available_models"] = json!(choices.0);
    }
    if let Some(param) = &problem.param {
        details["param"] = json!(param);
    }
    if details != json!({}) {
        error["details"] = details;
    }
    if problem.status == StatusCode::TOO_MANY_REQUESTS {
        let mut headers = problem.headers.iter();
        let after = headers.find(|(name, _)| name.eq_ignore_ascii_case("retry-after"));
        let seconds = after.and_then(|(_, seconds)| seconds.parse::<u64>().ok());
        if let Some(seconds) = seconds {
            error["retry_after_seconds"] = json!(seconds);
        }
    }
    json!({"error": error})
}

/// The code of a problem: one of the API's own where it has one for that, and the server's in capitals elsewhere.
fn code_of(problem: &Problem) -> String {
    let known = match &*problem.code {
        "model_not_found" | "unknown_model" => "MODEL_NOT_FOUND",
        "lora_not_found" => "LORA_NOT_FOUND",
        "model_failed" | "model_load_failed" | "model_load_timeout" => "MODEL_LOAD_FAILED",
        "insufficient_memory" => "INSUFFICIENT_MEMORY",
        "queue_full" | "tenant_queue_full" => "QUEUE_FULL",
        "engine_error" | "upstream_error" => "INFERENCE_FAILED",
        _ => match problem.status.as_u16() {
            400 | 422 if problem.param.is_some() => "INVALID_PARAMETERS",
            400 | 413 | 415 | 422 => "INVALID_REQUEST",
            401 => "UNAUTHORIZED",
            429 => "RATE_LIMIT_EXCEEDED",
            500 => "INFERENCE_FAILED",
            _ => return problem.code.to_ascii_uppercase(),
        },
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feature_x5_codes_and_details_are_those_of_the_api() {
        let of = |status: u16, code: &str| {
            let status = StatusCode::from_u16(status).expect("a status");
            error_body(&Problem::new(status, code, "m"))
        };
        for (status, code, expected) in [
            (400, "invalid_value", "INVALID_REQUEST"),
            (413, "body_too_large", "INVALID_REQUEST"),
            (401, "invalid_api_key", "UNAUTHORIZED"),
            (404, "lora_not_found", "LORA_NOT_FOUND"),
            (409, "model_failed", "MODEL_LOAD_FAILED"),
            (429, "queue_full", "QUEUE_FULL"),
            (503, "insufficient_memory", "INSUFFICIENT_MEMORY"),
            (500, "plugin_trap", "INFERENCE_FAILED"),
            (409, "model_not_loaded", "MODEL_NOT_LOADED"),
        ] {
            let body = of(status, code);
            assert_eq!(body, json!({"error": {"code": expected, "message": "m"}}));
        }
        let missing = Problem::new(StatusCode::NOT_FOUND, "model_not_found", "no");
        let missing = missing.among(vec!["a".to_owned(), "b".to_owned()]);
        let expected = json!({"code": "MODEL_NOT_FOUND", "message": "no",
            "details": {"available_models": ["a", "b"]}});
        assert_eq!(error_body(&missing)["error"], expected);
        let wrong = error_body(&Problem::invalid("top_p", "no"));
        assert_eq!(wrong["error"]["code"], "INVALID_PARAMETERS");
        assert_eq!(wrong["error"]["details"]["param"], "top_p");
        let limited = Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", "slow");
        let limited = error_body(&limited.with_header("retry-after", "42"));
        let expected =
            json!({"code": "RATE_LIMIT_EXCEEDED", "message": "slow", "retry_after_seconds": 42});
        assert_eq!(limited["error"], expected);
    }
}
