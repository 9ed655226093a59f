//! One exchange, and what may be wrong with it.

use std::time::Duration;

use ureq::http::{self, HeaderName, HeaderValue, Method, Uri};

use crate::origin::Origin;

/// Longest URL.
const MAX_URL_BYTES: usize = 8192;
/// Most headers of a request.
const MAX_HEADERS: usize = 64;
/// All headers of a request together, in bytes.
const MAX_HEADER_BYTES: usize = 16 << 10;

/// Methods that may be used, and whether they may carry content.
const METHODS: [(&str, bool); 6] = [
    ("GET", false),
    ("HEAD", false),
    ("DELETE", false),
    ("POST", true),
    ("PUT", true),
    ("PATCH", true),
];

/// Headers that frame the message, name the host or speak to proxies: the client writes them.
const OWN_HEADERS: [&str; 10] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "http2-settings",
];

/// Request of a plugin.
#[derive(Debug, Clone, Default)]
pub struct OutboundRequest {
    /// Method, such as `GET`.
    pub method: String,
    /// An absolute URL.
    pub url: String,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// The content; empty if there is none.
    pub body: Vec<u8>,
    /// The time that is left, if that is less than the grant's.
    pub timeout: Option<Duration>,
}

/// Response, whatever its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboundResponse {
    /// HTTP status.
    pub status: u16,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The content.
    pub body: Vec<u8>,
}

/// Reason for which there is no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The request is malformed.
    #[error("{0}")]
    Invalid(String),
    /// The grant does not allow the origin or the address of the request.
    #[error("{0}")]
    Denied(String),
    /// There was no connection, or what came over it was not HTTP.
    #[error("{0}")]
    Unreachable(String),
    /// The exchange took too long.
    #[error("no answer in time")]
    Timeout,
    /// The answer is too large.
    #[error("the answer has more than {limit} bytes")]
    TooLarge {
        /// The largest content.
        limit: u64,
    },
}

/// A valid request, and its destination.
pub(crate) struct Checked {
    pub(crate) request: http::Request<Vec<u8>>,
    pub(crate) origin: Origin,
}

impl OutboundRequest {
    /// Hold the request to the rules. Whether its origin is granted is another question.
    pub(crate) fn check(self) -> Result<Checked, RequestError> {
        let wrong = |text: String| Err(RequestError::Invalid(text));
        let known = METHODS.iter().find(|(name, _)| *name == self.method);
        let Some((name, carries)) = known else {
            let method = self.method.escape_debug();
            return wrong(format!("the method `{method}` is not one of {}", methods()));
        };
        if !carries && !self.body.is_empty() {
            return wrong(format!("a {name} request has no content"));
        }
        if self.url.len() > MAX_URL_BYTES {
            return wrong(format!("the URL has more than {MAX_URL_BYTES} bytes"));
        }
        let url = self.url.escape_debug();
        let parsed: Uri = match self.url.parse() {
            Ok(parsed) => parsed,
            Err(error) => return wrong(format!("`{url}` is no URL: {error}")),
        };
        let origin = match Origin::of(&parsed) {
            Ok(origin) => origin,
            Err(problem) => return wrong(format!("the URL `{url}` {problem}")),
        };
        let method: Method = match name.parse() {
            Ok(method) => method,
            Err(_) => return wrong(format!("the method `{name}` is none")),
        };
        let mut request = http::Request::new(self.body);
        *request.method_mut() = method;
        *request.uri_mut() = parsed;
        check_headers(self.headers, request.headers_mut())?;
        Ok(Checked { request, origin })
    }
}

fn methods() -> String {
    let names: Vec<&str> = METHODS.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

fn check_headers(
    given: Vec<(String, String)>,
    headers: &mut http::HeaderMap,
) -> Result<(), RequestError> {
    let wrong = |text: String| Err(RequestError::Invalid(text));
    if given.len() > MAX_HEADERS {
        return wrong(format!(
            "{} headers; at most {MAX_HEADERS} are allowed",
            given.len()
        ));
    }
    let bytes: usize = given
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if bytes > MAX_HEADER_BYTES {
        return wrong(format!(
            "the headers have more than {MAX_HEADER_BYTES} bytes"
        ));
    }
    for (name, value) in given {
        let shown = name.escape_debug().to_string();
        let Ok(name) = name.parse::<HeaderName>() else {
            return wrong(format!("`{shown}` is no name of a header"));
        };
        if OWN_HEADERS.contains(&name.as_str()) || name.as_str().starts_with("proxy-") {
            return wrong(format!("the header `{name}` is not the plugin's to set"));
        }
        let Ok(value) = HeaderValue::from_str(&value) else {
            return wrong(format!(
                "the value of the header `{name}` has control characters"
            ));
        };
        headers.append(name, value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut OutboundRequest)) -> String {
        let mut request = OutboundRequest {
            method: "GET".to_owned(),
            url: "https://api.example/x".to_owned(),
            ..OutboundRequest::default()
        };
        change(&mut request);
        match request.check() {
            Err(RequestError::Invalid(text)) => text,
            Err(other) => panic!("{other:?}"),
            Ok(checked) => panic!("{} is not refused", checked.request.uri()),
        }
    }

    fn url(text: &str) -> String {
        refusal(|request| request.url = text.to_owned())
    }

    #[test]
    fn i1_i3_urls_that_mean_something_else_to_others_are_refused() {
        for text in [
            "file:///etc/passwd",
            "gopher://api.example/",
            "unix:/var/run/docker.sock",
            "data:text/plain,x",
            "/relative",
            "//api.example/",
            "https:///x",
            "https://user@api.example/",
            "https://api.example@evil.example/",
            "https://api.example\\@evil.example/",
            "https://api.example\\.evil.example/",
            "https://api.example%00.evil.example/",
            "https://api.example%2eevil.example/",
            "https://api.example./",
            "https://api.example:port/",
            "https://api.example\r\nHost: evil.example/",
            "https://api.example/\r\nx: y",
            "https://[::1/",
            "https://[evil]/",
            "",
        ] {
            let refusal = url(text);
            assert!(refusal.contains("URL"), "{text:?}: {refusal}");
        }
        assert!(url(&format!("https://api.example/{}", "x".repeat(9000))).contains("8192"));
    }

    #[test]
    fn headers_that_frame_the_message_are_refused() {
        let header = |name: &str, value: &str| {
            let pair = (name.to_owned(), value.to_owned());
            refusal(|request| request.headers = vec![pair])
        };
        for name in [
            "Host",
            "content-length",
            "Transfer-Encoding",
            "CONNECTION",
            "upgrade",
        ] {
            assert!(header(name, "x").contains("not the plugin's"), "{name}");
        }
        assert!(header("proxy-authorization", "x").contains("not the plugin's"));
        assert!(header("x-a", "b\r\nhost: evil").contains("control characters"));
        assert!(header("x-a\r\nhost", "evil").contains("no name of a header"));
        assert!(header("", "x").contains("no name of a header"));
        let many = vec![("x-a".to_owned(), String::new()); 65];
        assert!(refusal(|request| request.headers = many).contains("at most 64"));
        let large = vec![("x-a".to_owned(), "x".repeat(20_000))];
        assert!(refusal(|request| request.headers = large).contains("more than 16384"));
    }

    #[test]
    fn methods_are_a_short_list() {
        for method in ["CONNECT", "TRACE", "get", "GET\r\n", ""] {
            let text = refusal(|request| request.method = method.to_owned());
            assert!(text.contains("is not one of GET"), "{text}");
        }
        assert!(refusal(|request| request.body = vec![1]).contains("no content"));
    }
}
