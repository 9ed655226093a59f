//! One error type for every failure that a client sees, and the one place that turns the service's
//! kinds into statuses. The body is OpenAI's: `{"error":{message,type,param,code}}`.

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use mortise_plugin::Fault;
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
            ServiceError::Plugin(error) => plugin_error(&error.fault, message),
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

/// A plugin's refusal is the caller's to mend; its trap, its slowness and its defects are not.
fn plugin_error(fault: &Fault, message: String) -> ApiError {
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
    let error = ApiError::new(status, code, message);
    match fault {
        Fault::Suspended { retry_after_ms } => {
            let seconds = retry_after_ms.div_ceil(1000).max(1);
            error.with_header("retry-after", seconds.to_string())
        }
        Fault::Overloaded { .. } => error.with_header("retry-after", "1"),
        _ => error,
    }
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
