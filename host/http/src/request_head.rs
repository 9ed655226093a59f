//! Strict reading of the head of an HTTP/1 request (RFC 9112), before hyper sees it.
//!
//! hyper accepts more than the letter allows: bare line feeds, equal double lengths, a length beside a
//! transfer coding. Where two servers in a row disagree about where a request ends, the rest of one request
//! becomes another one (request smuggling). A head that two readers could take differently is refused here.

use std::borrow::Cow;
use std::net::Ipv6Addr;

use http::{HeaderName, HeaderValue, Method, StatusCode, Uri};

/// Length from which the type for addresses takes none.
const MAX_PATH_BYTES: usize = 65_534;

/// Length of the body that follows a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Content length in bytes; 0 without a body.
    Length(u64),
    /// Chunks, up to the one of length 0 and its trailers.
    Chunked,
    /// No body: frames of a WebSocket follow, if the answer says so.
    Socket,
}

/// Bounds on heads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadBounds {
    /// Bytes of the whole head.
    pub(crate) bytes: usize,
    /// Header lines.
    pub(crate) headers: usize,
}

/// Answer to a head that is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeadRefusal {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: Cow<'static, str>,
}

impl HeadRefusal {
    fn malformed(message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            code: "malformed_request",
            message: message.into(),
        }
    }

    /// Refusal of a head that did not arrive in time.
    pub(crate) fn slow() -> Self {
        Self {
            status: StatusCode::REQUEST_TIMEOUT,
            code: "request_timeout",
            message: "the head of the request did not arrive within the time for it; see \
                      `server.header_timeout_ms`"
                .into(),
        }
    }

    fn long_address() -> Self {
        Self {
            status: StatusCode::URI_TOO_LONG,
            code: "uri_too_long",
            message: "the address of the request is too long".into(),
        }
    }

    fn too_large(held: &[u8]) -> Self {
        if !held.contains(&b'\n') {
            return Self::long_address();
        }
        Self {
            status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            code: "headers_too_large",
            message: "the headers of the request are more or longer than twice of what the server \
                      allows; see `server.max_headers` and `server.max_header_bytes`"
                .into(),
        }
    }
}

/// A complete head at the start of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RequestHead {
    /// Length of the head in bytes, with the empty line.
    pub(crate) length: usize,
    pub(crate) framing: Framing,
}

/// Look for a head at the start of `held`, of which the first `scanned` bytes were looked at before without
/// finding its end. `None` while it is incomplete.
pub(crate) fn read(
    held: &[u8],
    scanned: usize,
    bounds: HeadBounds,
) -> Result<Option<RequestHead>, HeadRefusal> {
    let mut end = None;
    // A line break may lie across two reads.
    for at in scanned.saturating_sub(3)..held.len() {
        let before = at.checked_sub(1).and_then(|at| held.get(at));
        match held.get(at) {
            Some(b'\n') if before != Some(&b'\r') => {
                return Err(HeadRefusal::malformed(
                    "a line of the head ends with a line feed alone; lines end with CR LF",
                ));
            }
            Some(b'\n')
                if held
                    .get(..=at)
                    .is_some_and(|head| head.ends_with(b"\r\n\r\n")) =>
            {
                end = Some(at + 1);
                break;
            }
            Some(b'\n') | None => {}
            Some(_) if before == Some(&b'\r') => {
                return Err(HeadRefusal::malformed(
                    "the head has a carriage return that ends no line",
                ));
            }
            Some(_) => {}
        }
    }
    let length = end.unwrap_or(held.len());
    let head = held.get(..length).unwrap_or_default();
    if length > bounds.bytes {
        return Err(HeadRefusal::too_large(head));
    }
    if end.is_none() {
        return Ok(None);
    }
    let framing = check(head, bounds)?;
    Ok(Some(RequestHead { length, framing }))
}

/// Check a whole head, and find how long its body is.
fn check(head: &[u8], bounds: HeadBounds) -> Result<Framing, HeadRefusal> {
    let mut headers = vec![httparse::EMPTY_HEADER; bounds.headers];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        Ok(_) => return Err(HeadRefusal::malformed("the head of the request is broken")),
        Err(httparse::Error::TooManyHeaders) => return Err(HeadRefusal::too_large(head)),
        Err(error) => {
            return Err(HeadRefusal::malformed(format!(
                "the request is no HTTP/1.1, or its head is broken: {error}"
            )));
        }
    }
    let method = request.method.unwrap_or_default();
    if Method::from_bytes(method.as_bytes()).is_err() {
        return Err(HeadRefusal::malformed("the method of the request is none"));
    }
    let path = request.path.unwrap_or_default();
    if path.len() >= MAX_PATH_BYTES {
        return Err(HeadRefusal::long_address());
    }
    if Uri::try_from(path).is_err() {
        return Err(HeadRefusal::malformed("the address of the request is none"));
    }
    let http_11 = request.version == Some(1);
    let socket = http_11 && method == "GET" && asks_for_socket(request.headers);
    match check_headers(request.headers, http_11)? {
        Framing::Length(0) if socket => Ok(Framing::Socket),
        framing => Ok(framing),
    }
}

fn asks_for_socket(headers: &[httparse::Header<'_>]) -> bool {
    headers.iter().any(|header| {
        header.name.eq_ignore_ascii_case("upgrade")
            && header.value.eq_ignore_ascii_case(b"websocket")
    })
}

fn check_headers(headers: &[httparse::Header<'_>], http_11: bool) -> Result<Framing, HeadRefusal> {
    let (mut hosts, mut length, mut coding) = (0, None, None);
    for header in headers {
        let sound = HeaderName::from_bytes(header.name.as_bytes()).is_ok()
            && HeaderValue::from_bytes(header.value).is_ok();
        if !sound {
            return Err(HeadRefusal::malformed(
                "a header has a character that must not be there",
            ));
        }
        if header.name.eq_ignore_ascii_case("host") {
            hosts += 1;
            if !is_host(header.value) {
                return Err(HeadRefusal::malformed(NO_HOST));
            }
        } else if header.name.eq_ignore_ascii_case("content-length") {
            if length.replace(header.value).is_some() {
                return Err(HeadRefusal::malformed(
                    "the header `Content-Length` is there twice",
                ));
            }
        } else if header.name.eq_ignore_ascii_case("transfer-encoding")
            && coding.replace(header.value).is_some()
        {
            return Err(HeadRefusal::malformed(
                "the header `Transfer-Encoding` is there twice",
            ));
        }
    }
    if hosts > 1 || (http_11 && hosts == 0) {
        return Err(HeadRefusal::malformed(format!(
            "the header `Host` must be there once; it is there {hosts} times"
        )));
    }
    match (length, coding) {
        (None, None) => Ok(Framing::Length(0)),
        (Some(_), Some(_)) => Err(HeadRefusal::malformed(
            "the request has both `Content-Length` and `Transfer-Encoding`; send one of them",
        )),
        (None, Some(coding)) if http_11 && coding.eq_ignore_ascii_case(b"chunked") => {
            Ok(Framing::Chunked)
        }
        (None, Some(_)) => Err(HeadRefusal::malformed(
            "the header `Transfer-Encoding` must be `chunked` and nothing else, in HTTP/1.1",
        )),
        (Some(length), None) => length_of(length).map(Framing::Length).ok_or_else(|| {
            HeadRefusal::malformed("the header `Content-Length` is not a number of bytes")
        }),
    }
}

/// Message for a `Host` that names no server.
pub(crate) const NO_HOST: &str = "the header `Host` is not the name of a server with a port or without; IPv6 addresses \
     stand in brackets";

/// Whether a value is one of `Host` (RFC 9112, section 3.2): a name or an address, and a port or none. It is empty where
/// the address of the request names no server. A comma stands in no name: it joins the values of two headers.
pub(crate) fn is_host(value: &[u8]) -> bool {
    let Ok(value) = std::str::from_utf8(value) else {
        return false;
    };
    let (is_sound, port) = match value.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, behind)) => (address.parse::<Ipv6Addr>().is_ok(), behind),
            None => return false,
        },
        None => {
            let (name, port) = value.split_at(value.find(':').unwrap_or(value.len()));
            let is_named = !name.is_empty() || port.is_empty();
            (is_named && is_name(name.as_bytes()), port)
        }
    };
    let is_port = match port.strip_prefix(':') {
        Some("") => true,
        Some(port) => port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok(),
        None => port.is_empty(),
    };
    is_sound && is_port
}

/// Whether this is the name of a server by RFC 3986 (section 3.2.2), commas excepted.
fn is_name(name: &[u8]) -> bool {
    let mut rest = name;
    while let Some((first, behind)) = rest.split_first() {
        rest = match first {
            b'%' => match behind.split_at_checked(2) {
                Some((digits, behind)) if digits.iter().all(u8::is_ascii_hexdigit) => behind,
                _ => return false,
            },
            byte if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+;=".contains(byte) => behind,
            _ => return false,
        };
    }
    true
}

/// Digits only: other readers take signs and lists differently.
fn length_of(value: &[u8]) -> Option<u64> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let number: i64 = std::str::from_utf8(value)
        .ok()
        .filter(|_| digits)?
        .parse()
        .ok()?;
    u64::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: HeadBounds = HeadBounds {
        bytes: 1000,
        headers: 10,
    };

    fn whole(head: &str) -> Result<Option<RequestHead>, HeadRefusal> {
        read(head.as_bytes(), 0, BOUNDS)
    }

    #[test]
    fn sound_heads_tell_how_long_their_bodies_are() {
        for (head, framing) in [
            ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", Framing::Length(0)),
            ("GET / HTTP/1.0\r\n\r\n", Framing::Length(0)),
            (
                "POST /a?b HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n",
                Framing::Length(12),
            ),
            (
                "POST / HTTP/1.1\r\nHost:\r\nTransfer-Encoding: Chunked\r\n\r\n",
                Framing::Chunked,
            ),
        ] {
            let length = head.len();
            let found = whole(&format!("{head}rest")).expect(head);
            assert_eq!(found, Some(RequestHead { length, framing }), "{head}");
            for cut in 0..length {
                let part = &head.as_bytes()[..cut];
                assert_eq!(read(part, cut / 2, BOUNDS), Ok(None), "{head} at {cut}");
            }
        }
    }

    #[test]
    fn what_two_readers_could_take_differently_is_refused() {
        let with = |headers: &str| format!("POST / HTTP/1.1\r\nhost: a\r\n{headers}\r\n");
        let te = "transfer-encoding: chunked\r\n";
        for head in [
            with(&format!("content-length: 5\r\n{te}")),
            with(&format!("{te}content-length: 5\r\n")),
            with("content-length: 5\r\ncontent-length: 5\r\n"),
            with("content-length: 5, 5\r\n"),
            with("content-length: +5\r\n"),
            with("content-length: 0x5\r\n"),
            with("content-length: \r\n"),
            with("content-length: 18446744073709551616\r\n"),
            with("transfer-encoding: x, chunked\r\n"),
            with("transfer-encoding: chunked, chunked\r\n"),
            with("transfer-encoding: identity\r\n"),
            with("transfer-encoding: \u{b}chunked\r\n"),
            with(&format!("{te}{te}")),
            with("host: a\r\n"),
            with("a : b\r\n"),
            with("a: b\r\n c\r\n"),
            with("a: b\0\r\n"),
            with("a: b\rc: d\r\n"),
            with("a: b\nc: d\r\n"),
            "GET / HTTP/1.1\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\nhost: a\n\n".to_owned(),
            "POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n".to_owned(),
            "GET / HTTP/9.9\r\nhost: a\r\n\r\n".to_owned(),
            "GET /\u{7f} HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(),
            "<script> / HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(),
        ] {
            let refusal = whole(&head).expect_err(&head);
            assert_eq!(refusal.status, StatusCode::BAD_REQUEST, "{head}");
        }
    }

    #[test]
    fn hosts_name_one_server() {
        for good in [
            "",
            "a",
            "a:",
            "a.example:8080",
            "A_b-c.~1",
            "a%20b",
            "127.0.0.1:1",
            "[::1]",
            "[::1]:65535",
            "[::ffff:1.2.3.4]:",
        ] {
            assert!(is_host(good.as_bytes()), "{good:?}");
        }
        for bad in [
            "a b",
            "a,b",
            "a, b",
            "u@a",
            "u:p@a",
            ":80",
            "[",
            "[]",
            "[::1",
            "[::1]x",
            "[::1]:x",
            "[a]",
            "[127.0.0.1]",
            "]",
            "::1",
            "a:b",
            "a:1:2",
            "a:65536",
            "a:+1",
            "a:-1",
            "a/b",
            "http://a",
            "a?b",
            "a#b",
            "a\\b",
            "a%2",
            "a%zz",
            "a\"b",
            "<a>",
            "a\tb",
            "ä",
        ] {
            assert!(!is_host(bad.as_bytes()), "{bad:?}");
            let refused = whole(&format!("GET / HTTP/1.1\r\nhost: {bad}\r\n\r\n"));
            let refusal = refused.expect_err(bad);
            assert_eq!(refusal.status, StatusCode::BAD_REQUEST, "{bad:?}");
        }
    }

    #[test]
    fn heads_are_bounded() {
        let long = "x".repeat(2000);
        for (head, status) in [
            (format!("GET /{long}"), StatusCode::URI_TOO_LONG),
            (
                format!("GET / HTTP/1.1\r\nhost: a\r\nx: {long}"),
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            ),
            (
                format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "a: b\r\n".repeat(20)),
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            ),
        ] {
            assert_eq!(whole(&head).expect_err(&head).status, status);
        }
    }

    proptest::proptest! {
        /// However the bytes are cut, the outcome is the same.
        #[test]
        fn cuts_change_nothing(
            text in "(GET|POST) /[a-z]{0,3} HTTP/1.1\r\n(host: a\r\n){0,2}((te|a|content-length): [x0-9]{0,2}[\r\n]{1,3}){0,3}\r\n",
            cut in 0_usize..80,
        ) {
            let bytes = text.as_bytes();
            let at = cut.min(bytes.len());
            let once = read(bytes, 0, BOUNDS);
            let twice = match read(&bytes[..at], 0, BOUNDS) {
                Ok(None) => read(bytes, at, BOUNDS),
                other => other,
            };
            proptest::prop_assert_eq!(once, twice);
        }
    }
}
