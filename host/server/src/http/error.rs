//! One error type for every failure that a client sees, and the one place that turns the service's
//! kinds into statuses. The body is OpenAI's: `{"error":{message,type,param,code}}`.

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use mortise_plugin::{Fault, PluginError};
use mortise_service::ServiceError;
use serde_json::json;

/// Longest error message that is sent; a plugin or a caller's own text may be part of it.
const MAX_MESSAGE_BYTES: usize = 2048;

/// A failure as the client sees it.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    /// `error.type`
    pub(crate) kind: String,
    /// `error.code`
    pub(crate) code: String,
    /// `error.param`: the field, with its path.
    pub(crate) param: Option<String>,
    // Boxed to keep results that may hold an error small.
    pub(crate) message: Box<str>,
    pub(crate) headers: Vec<(String, String)>,
}

/// The code of an error response, for the log and the metrics.
#[derive(Debug, Clone)]
pub(crate) struct ErrorCode(pub(crate) String);

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            kind: kind_of(status).to_owned(),
            code: code.to_owned(),
            param: None,
            message: message.into().into_boxed_str(),
            headers: Vec::new(),
        }
    }

    /// A field of the request is wrong.
    pub(crate) fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_value", message).at(param)
    }

    /// A field of the request is right and cannot be honoured.
    pub(crate) fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "unsupported_parameter", message).at(param)
    }

    pub(crate) fn at(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    pub(crate) fn with_header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// The error object, as it stands in a body or in an event of a stream.
    pub(crate) fn body(&self) -> serde_json::Value {
        json!({ "error": {
            "message": clipped(&self.message),
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }})
    }
}

impl From<ServiceError> for ApiError {
    fn from(error: ServiceError) -> Self {
        let message = error.to_string();
        match error {
            ServiceError::Invalid { param, code, .. } => {
                let mut api = Self::new(StatusCode::BAD_REQUEST, code, message);
                api.param = param;
                api
            }
            ServiceError::ModelNotFound { .. } => {
                Self::new(StatusCode::NOT_FOUND, "model_not_found", message).at("model")
            }
            ServiceError::Denied(denial) => {
                let status = StatusCode::from_u16(denial.status)
                    .ok()
                    .filter(StatusCode::is_client_error)
                    .unwrap_or(StatusCode::FORBIDDEN);
                let mut api = Self::new(status, &denial.code, message);
                api.kind = denial.kind;
                api.headers = denial.headers;
                if let Some(ms) = denial.retry_after_ms {
                    api = api.with_header("retry-after", ms.div_ceil(1000).max(1).to_string());
                }
                api
            }
            ServiceError::ContextLength { param, .. } => {
                Self::new(StatusCode::BAD_REQUEST, "context_length_exceeded", message).at(param)
            }
            ServiceError::QueueFull { retry_after, .. } => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message)
                    .with_header("retry-after", retry_after.to_string())
            }
            ServiceError::TenantQueueFull { retry_after, .. } => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "tenant_queue_full", message)
                    .with_header("retry-after", retry_after.to_string())
            }
            ServiceError::Plugin(error) => plugin_error(&error),
            ServiceError::Engine(_) => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "engine_error", message)
            }
            ServiceError::Stopping => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_stopping", message)
                    .with_header("retry-after", "5")
            }
        }
    }
}

/// A plugin's refusal is the caller's to mend, and reads as the plugin wrote it. Of a trap, of slowness and
/// of defects, which are not, the caller learns the kind: what more there is to say may quote a panic, and
/// stands in the log and on the admin side.
fn plugin_error(error: &PluginError) -> ApiError {
    let fault = &error.fault;
    let (status, code) = match fault {
        Fault::Invalid(_) => (StatusCode::BAD_REQUEST, "invalid_value"),
        Fault::TooComplex(_) => (StatusCode::BAD_REQUEST, "too_complex"),
        Fault::Unsupported(_) => (StatusCode::BAD_REQUEST, "unsupported_value"),
        Fault::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "plugin_internal"),
        Fault::Deadline { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "plugin_deadline"),
        Fault::Budget { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "plugin_budget"),
        Fault::Memory { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "plugin_memory"),
        Fault::Stack => (StatusCode::INTERNAL_SERVER_ERROR, "plugin_stack"),
        Fault::Output { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "plugin_output"),
        Fault::Trap(_) => (StatusCode::INTERNAL_SERVER_ERROR, "plugin_trap"),
        Fault::InvalidResult(_) => (StatusCode::INTERNAL_SERVER_ERROR, "plugin_invalid_result"),
        Fault::Overloaded { .. } => (StatusCode::SERVICE_UNAVAILABLE, "plugin_overloaded"),
        Fault::Suspended { .. } => (StatusCode::SERVICE_UNAVAILABLE, "plugin_suspended"),
    };
    let Some((happened, retry)) = outline(fault) else {
        return ApiError::new(status, code, error.to_string());
    };
    let advice = match retry {
        Retry::Later(_) => "retry later",
        Retry::Once => "the request may be retried",
        Retry::InVain => "the same request is likely to fail again",
    };
    let message = format!(
        "the {} plugin {happened}; {advice}; the server's log says more under the request id {}",
        error.kind, error.request_id
    );
    let api = ApiError::new(status, code, message);
    match retry {
        Retry::Later(seconds) => api.with_header("retry-after", seconds.to_string()),
        Retry::Once => api,
        // OpenAI's clients retry what is answered with 500, unless they are told this.
        Retry::InVain => api.with_header("x-should-retry", "false"),
    }
}

/// Whether a request that met a breakdown should be sent again.
enum Retry {
    /// After so many seconds.
    Later(u64),
    /// At once, since an instance that broke down is replaced.
    Once,
    /// It took more than it may, and would again.
    InVain,
}

/// A breakdown in words that quote nothing; `None` for a refusal.
fn outline(fault: &Fault) -> Option<(&'static str, Retry)> {
    Some(match fault {
        Fault::Invalid(_) | Fault::TooComplex(_) | Fault::Unsupported(_) => return None,
        Fault::Internal(_) => ("reports a defect of its own", Retry::Once),
        Fault::Deadline { .. } => ("did not answer in time", Retry::Once),
        Fault::Trap(_) => ("broke down", Retry::Once),
        Fault::InvalidResult(_) => ("gave an answer that makes no sense", Retry::Once),
        Fault::Budget { .. } => ("used up its time for one request", Retry::InVain),
        Fault::Memory { .. } => ("asked for more memory than it may have", Retry::InVain),
        Fault::Stack => ("overflowed its stack", Retry::InVain),
        Fault::Output { .. } => ("answered with more bytes than it may", Retry::InVain),
        Fault::Overloaded { .. } => ("is busy with other requests", Retry::Later(1)),
        Fault::Suspended { retry_after_ms } => {
            let seconds = retry_after_ms.div_ceil(1000).max(1);
            (
                "failed too often and is not called for a while",
                Retry::Later(seconds),
            )
        }
    })
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = json_response(self.status, &self.body());
        append_headers(response.headers_mut(), &self.headers);
        response.extensions_mut().insert(ErrorCode(self.code));
        response
    }
}

/// A response with a JSON body.
pub(crate) fn json_response(status: StatusCode, body: &impl serde::Serialize) -> Response {
    // Only a map with keys that are not strings cannot be serialised, and no body has one.
    let bytes = serde_json::to_vec(body).unwrap_or_else(|_| b"{}".to_vec());
    let mut response = Response::new(axum::body::Body::from(Bytes::from(bytes)));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

/// Add headers that came from a policy. What is not a valid header is left out: a plugin must not
/// be able to break the response.
pub(crate) fn append_headers(target: &mut HeaderMap, headers: &[(String, String)]) {
    for (name, value) in headers {
        let parsed = (name.parse::<HeaderName>(), HeaderValue::from_str(value));
        if let (Ok(name), Ok(value)) = parsed {
            target.insert(name, value);
        }
    }
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

fn clipped(message: &str) -> &str {
    let mut end = message.len().min(MAX_MESSAGE_BYTES);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}

#[cfg(test)]
mod tests {
    use mortise_plugin::Kind;

    use super::*;

    fn told(fault: Fault) -> (ApiError, String) {
        let error = ApiError::from(ServiceError::Plugin(PluginError {
            plugin: "acme_secrets".to_owned(),
            version: "0123456789ab".to_owned(),
            kind: Kind::OutputParser,
            function: "output-parser.feed",
            request_id: "request-7".into(),
            fault,
        }));
        let text = error.body()["error"]["message"].to_string();
        (error, text)
    }

    #[test]
    fn breakdowns_quote_nothing_of_the_plugin() {
        let words = || "at src/vault.rs:7: the password is hunter2".to_owned();
        let faults = [
            (Fault::Internal(words()), None),
            (Fault::Trap(words()), None),
            (Fault::InvalidResult(words()), None),
            (Fault::Deadline { deadline_ms: 4321 }, None),
            (
                Fault::Budget { budget_ms: 4321 },
                Some("x-should-retry: false"),
            ),
            (
                Fault::Memory { limit_bytes: 4321 },
                Some("x-should-retry: false"),
            ),
            (Fault::Stack, Some("x-should-retry: false")),
            (
                Fault::Output { limit_bytes: 4321 },
                Some("x-should-retry: false"),
            ),
            (
                Fault::Overloaded { instances: 4321 },
                Some("retry-after: 1"),
            ),
            (
                Fault::Suspended {
                    retry_after_ms: 4321,
                },
                Some("retry-after: 5"),
            ),
        ];
        for (fault, header) in faults {
            let code = format!("plugin_{}", fault.label().replace('-', "_"));
            let (error, text) = told(fault);
            assert_eq!(error.code, code);
            assert!(error.status.is_server_error(), "{code}");
            for part in ["the output-parser plugin ", "request-7"] {
                assert!(text.contains(part), "{text}");
            }
            let advice = ["retry later", "may be retried", "fail again"];
            assert!(advice.iter().any(|part| text.contains(part)), "{text}");
            for part in ["hunter2", "vault", ".rs", "acme", "0123", "feed", "4321"] {
                assert!(!text.contains(part), "{code} tells {part}: {text}");
            }
            let headers = error.headers.iter();
            let headers: Vec<String> = headers.map(|(name, v)| format!("{name}: {v}")).collect();
            assert_eq!(headers, header.into_iter().collect::<Vec<_>>(), "{code}");
        }
    }

    #[test]
    fn refusals_read_as_the_plugin_wrote_them() {
        let words = || "send fewer tools".to_owned();
        for fault in [
            Fault::Invalid(words()),
            Fault::TooComplex(words()),
            Fault::Unsupported(words()),
        ] {
            let (error, text) = told(fault);
            assert_eq!(error.status, StatusCode::BAD_REQUEST);
            assert!(text.contains("send fewer tools"), "{text}");
        }
    }
}
