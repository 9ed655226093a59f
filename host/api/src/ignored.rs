//! The header that names fields which were left out of account.

use axum::response::Response;
use mortise_http::append_headers;

const HEADER: &str = "x-mortise-ignored";
const MAX_HEADER_BYTES: usize = 1024;

/// Name the fields, if there are any.
pub(crate) fn add_header(response: &mut Response, ignored: &[String]) {
    if ignored.is_empty() {
        return;
    }
    // Names are the caller's own: only what is harmless in a header comes back.
    let harmless = |c: char| {
        if c.is_ascii_graphic() || c == ' ' {
            c
        } else {
            '?'
        }
    };
    let mut names: String = ignored.join(", ").chars().map(harmless).collect();
    names.truncate(MAX_HEADER_BYTES);
    append_headers(response.headers_mut(), &[(HEADER.to_owned(), names)]);
}
