//! hyper refuses heads that it cannot read by itself: before any handler is asked, and without a body.
//! Here such a refusal becomes an error like all others.

use http::{HeaderMap, StatusCode};

use crate::guard::request_id;
use crate::problem::{Problem, ProblemShape};

/// Stands in the head of an answer without a body.
const NO_BODY: &str = "\r\ncontent-length: 0\r\n";

/// What to write in the place of `written`, if that is a refusal of hyper's. Nothing else begins like one: our
/// own errors have bodies, and what callers and models say is never written with a line break of its own.
pub(crate) fn in_place_of(written: &[u8], shape: ProblemShape) -> Option<Vec<u8>> {
    let refusals = [
        (
            StatusCode::BAD_REQUEST,
            "malformed_request",
            "the request is no HTTP/1.1, or its head is broken",
        ),
        (
            StatusCode::URI_TOO_LONG,
            "uri_too_long",
            "the address of the request is too long",
        ),
        (
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "headers_too_large",
            "the headers of the request are more or longer than twice of what the server allows; \
             see `server.max_headers` and `server.max_header_bytes`",
        ),
    ];
    let after_version = written.strip_prefix(b"HTTP/1.1 ")?;
    let (status, code, message) = refusals
        .into_iter()
        .find(|(status, ..)| after_version.starts_with(status.as_str().as_bytes()))?;
    let head = std::str::from_utf8(written).ok()?;
    if !head.contains(NO_BODY) || !head.ends_with("\r\n\r\n") {
        return None;
    }
    let body = shape(&Problem::new(status, code, message)).to_string();
    let length = body.len();
    let id = request_id(&HeaderMap::new());
    let described = format!(
        "\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nx-request-id: {id}\r\n"
    );
    Some((head.replacen(NO_BODY, &described, 1) + &body).into_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn shape(problem: &Problem) -> Value {
        json!({"error": {"code": problem.code}})
    }

    #[test]
    fn bare_refusals_get_a_body_and_nothing_else_does() {
        let bare = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\
                    content-length: 0\r\ndate: today\r\n\r\n";
        let written = in_place_of(bare.as_bytes(), shape).expect("a refusal");
        let written = String::from_utf8(written).expect("UTF-8");
        let (head, body) = written.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 431 ") && head.ends_with("\r\ndate: today"));
        assert!(head.contains(&format!("\r\ncontent-length: {}\r\n", body.len())));
        let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(body["error"]["code"], "headers_too_large");
        for other in [
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 20\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\nHTTP/1.1 200 OK",
            "data: HTTP/1.1 431 \r\ncontent-length: 0\r\n\r\n",
            "",
        ] {
            assert_eq!(in_place_of(other.as_bytes(), shape), None, "{other}");
        }
    }
}
