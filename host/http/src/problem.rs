//! A failure of a request before a dialect has written it. Handlers and middleware answer with a
//! [`Problem`]; the router writes it in the shape of the dialect that the path belongs to.

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde_json::Value;

/// Longest error message that is sent; a plugin or a caller's own text may be part of it.
const MAX_MESSAGE_BYTES: usize = 2048;

/// The JSON body that a dialect makes of a problem.
pub type ProblemShape = fn(&Problem) -> Value;

/// A failure of a request, before it has the shape of a dialect.
#[derive(Debug, Clone)]
pub struct Problem {
    /// The status of the response.
    pub status: StatusCode,
    /// A class of errors that a policy named; without it each dialect derives one from the status.
    pub kind: Option<Box<str>>,
    /// A machine-readable code, such as `invalid_value`.
    pub code: String,
    /// The field that is wrong, with its path.
    pub param: Option<String>,
    /// Description of the failure and of its remedy. Boxed to keep results that may hold a problem small.
    pub message: Box<str>,
    /// Headers of the response, such as `retry-after`.
    pub headers: Vec<(String, String)>,
    /// Names that would have been right, where the field takes one of a few. Dialects whose errors have a place for the
    /// names show them.
    pub choices: Option<Box<Choices>>,
}

/// Names of which one would have been right.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choices(pub Vec<String>);

impl Problem {
    /// A failure with a status, a code and a message.
    pub fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            kind: None,
            code: code.to_owned(),
            param: None,
            message: message.into().into_boxed_str(),
            headers: Vec::new(),
            choices: None,
        }
    }

    /// A field of the request is wrong.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_value", message).at(param)
    }

    /// A field of the request is right and cannot be honoured.
    pub fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "unsupported_parameter", message).at(param)
    }

    /// Set the field that the problem is about.
    #[must_use]
    pub fn at(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Add a header of the response.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Set the names of which one would have been right.
    #[must_use]
    pub fn among(mut self, names: Vec<String>) -> Self {
        self.choices = Some(Box::new(Choices(names)));
        self
    }

    /// The message as it is sent: its first 2,048 bytes.
    pub fn text(&self) -> &str {
        let message = &self.message;
        &message[..message.floor_char_boundary(MAX_MESSAGE_BYTES)]
    }
}

impl IntoResponse for Problem {
    /// A response without a body, which [`write_problem`] adds on the way out.
    fn into_response(self) -> Response {
        let mut response = Response::new(axum::body::Body::empty());
        *response.status_mut() = self.status;
        response.extensions_mut().insert(self);
        response
    }
}

/// Problem of a server that takes no new work, or ends the work in progress.
pub fn stopping() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "server_stopping",
        "the server is stopping",
    )
    .with_header("retry-after", "5")
}

/// Write the problem that a response carries, if it carries one.
pub fn write_problem(response: Response, shape: ProblemShape) -> Response {
    let Some(problem) = response.extensions().get::<Problem>() else {
        return response;
    };
    let mut written = json_response(problem.status, &shape(problem));
    append_headers(written.headers_mut(), &problem.headers);
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    written.headers_mut().extend(parts.headers);
    *written.extensions_mut() = parts.extensions;
    written
}

/// A response with a JSON body.
pub fn json_response(status: StatusCode, body: &impl serde::Serialize) -> Response {
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
pub fn append_headers(target: &mut HeaderMap, headers: &[(String, String)]) {
    for (name, value) in headers {
        let parsed = (name.parse::<HeaderName>(), HeaderValue::from_str(value));
        if let (Ok(name), Ok(value)) = parsed {
            target.insert(name, value);
        }
    }
}
