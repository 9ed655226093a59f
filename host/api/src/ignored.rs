//! Headers of a response that the policies add, and the one that names fields that were left out of
//! account.

use axum::response::Response;
use http::StatusCode;
use mortise_http::{append_headers, json_response};
use mortise_service::EncodedPrompt;
use serde_json::Value;

/// Names the fields that were left out of account.
const IGNORED_HEADER: &str = "x-mortise-ignored";
/// Bytes of the header `x-mortise-ignored`.
const MAX_IGNORED_BYTES: usize = 1024;

/// Add what the policies say, and the names of ignored fields.
pub(crate) fn add_headers(
    response: &mut Response,
    headers: &[(String, String)],
    ignored: &[String],
) {
    append_headers(response.headers_mut(), headers);
    add_header(response, ignored);
}

/// Response about a prompt that was encoded and is not answered.
pub(crate) fn prompt_response(
    body: &Value,
    prompt: &EncodedPrompt,
    ignored: &[String],
) -> Response {
    let mut response = json_response(StatusCode::OK, body);
    add_headers(
        &mut response,
        &prompt.admission.allowance().headers,
        ignored,
    );
    response
}

/// Name the ignored fields, if there are any.
pub(crate) fn add_header(response: &mut Response, ignored: &[String]) {
    if ignored.is_empty() {
        return;
    }
    // Names are the caller's own: only what is harmless in a header comes back.
    let harmless = |c: char| match c.is_ascii_graphic() || c == ' ' {
        true => c,
        false => '?',
    };
    let mut names: String = ignored.join(", ").chars().map(harmless).collect();
    names.truncate(MAX_IGNORED_BYTES);
    append_headers(
        response.headers_mut(),
        &[(IGNORED_HEADER.to_owned(), names)],
    );
}
