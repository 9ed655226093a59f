//! Checks before a request is routed: the name by which the server was called, the
//! length of the address, and the rules for web pages of other origins.
//!
//! CORS is not left to `tower-http`: its layer answers each `OPTIONS` request itself, before a check of
//! the host name and without a request id, and refuses `*` beside other origins at the start.

use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};

use crate::problem::Problem;
use crate::request_head::{NO_HOST, is_host};

/// Longest address, path and query together.
const MAX_URI_BYTES: usize = 8 * 1024;
/// Longest request id that is taken over.
const MAX_ID_BYTES: usize = 128;

/// Headers of one request, names and values together.
#[derive(Debug, Clone, Copy)]
pub struct HeaderLimits {
    /// Headers at most.
    pub count: usize,
    /// Bytes of names and values at most.
    pub bytes: usize,
}

impl HeaderLimits {
    /// Bounds at which the connection itself refuses a head: twice the limits. A request between the two is refused
    /// with a problem that states the limits.
    pub(crate) fn doubled(self) -> Self {
        Self {
            count: self.count.saturating_mul(2),
            bytes: self.bytes.saturating_mul(2),
        }
    }

    fn check(self, headers: &HeaderMap) -> Result<(), Problem> {
        let sizes = headers
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len());
        let (count, bytes) = (headers.len(), sizes.sum::<usize>());
        if count <= self.count && bytes <= self.bytes {
            return Ok(());
        }
        Err(Problem::new(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "headers_too_large",
            format!(
                "the request has {count} headers of {bytes} bytes; the limits are {} and {}",
                self.count, self.bytes
            ),
        ))
    }
}

/// Checks of a request beside policies: sizes of headers, host name, and origin (CORS).
#[derive(Debug, Clone)]
pub struct Guard {
    headers: HeaderLimits,
    /// Names by which the server may be called; none: any name.
    hosts: Option<Vec<String>>,
    /// Origins whose pages may read answers; `*` is any.
    origins: Vec<String>,
}

impl Guard {
    /// A server on a loopback address answers to loopback names only, unless `allowed_hosts` adds
    /// others: a page whose name was made to resolve to 127.0.0.1 gets nothing.
    pub fn new(
        headers: HeaderLimits,
        loopback: bool,
        allowed_hosts: &[String],
        origins: &[String],
    ) -> Self {
        let mut hosts: Vec<String> = allowed_hosts
            .iter()
            .map(|host| host.to_ascii_lowercase())
            .collect();
        let any = hosts.iter().any(|host| host == "*");
        let hosts = if any || (!loopback && hosts.is_empty()) {
            None
        } else {
            if loopback {
                hosts.extend(["localhost", "127.0.0.1", "[::1]"].map(str::to_owned));
            }
            Some(hosts)
        };
        Self {
            headers,
            hosts,
            origins: origins.to_vec(),
        }
    }

    pub(crate) fn check<B>(&self, request: &Request<B>) -> Result<(), Problem> {
        check_single(request)?;
        let length = request
            .uri()
            .path_and_query()
            .map_or(0, |path| path.as_str().len());
        if length > MAX_URI_BYTES {
            return Err(Problem::new(
                StatusCode::URI_TOO_LONG,
                "uri_too_long",
                format!("the address has {length} bytes; the limit is {MAX_URI_BYTES}"),
            ));
        }
        self.headers.check(request.headers())?;
        self.check_socket(request)?;
        let Some(hosts) = &self.hosts else {
            return Ok(());
        };
        let host = called_by(request.uri(), request.headers());
        match host {
            // Without a name there is nothing to be deceived by.
            None => Ok(()),
            Some(host) if hosts.contains(&host) => Ok(()),
            Some(_) => Err(Problem::new(
                StatusCode::FORBIDDEN,
                "host_not_allowed",
                "the server was called by a host name that is not its own; \
                 add the name to `server.allowed_hosts`",
            )),
        }
    }

    /// Browsers open WebSockets to any server and ask nobody, so a page of another origin must be one that may read
    /// answers.
    fn check_socket<B>(&self, request: &Request<B>) -> Result<(), Problem> {
        let headers = request.headers();
        let Some(origin) = headers.get(header::ORIGIN) else {
            return Ok(());
        };
        let own = |origin: &str| {
            let host = headers
                .get(header::HOST)
                .and_then(|host| host.to_str().ok());
            origin.split_once("://").map(|(_, name)| name) == host
        };
        let socket = headers.contains_key(header::UPGRADE);
        if !socket || self.origin(headers).is_some() || origin.to_str().is_ok_and(own) {
            return Ok(());
        }
        Err(Problem::new(
            StatusCode::FORBIDDEN,
            "origin_not_allowed",
            "pages of this origin may not open WebSockets here; add it to `server.cors_origins`",
        ))
    }

    /// The origin to allow, if the request came from a page that may read the answer.
    pub(crate) fn origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        if self.origins.iter().any(|known| known == "*") {
            return Some(HeaderValue::from_static("*"));
        }
        let text = origin.to_str().ok()?;
        let known = self.origins.iter().any(|known| known == text);
        known.then(|| origin.clone())
    }
}

/// Headers of which two would let two readers see different callers, or different requests.
const SINGLE: [&str; 10] = [
    "host",
    "authorization",
    "x-api-key",
    "api-key",
    "content-type",
    "content-encoding",
    "idempotency-key",
    "origin",
    "x-request-timeout",
    "x-stainless-timeout",
];

fn check_single<B>(request: &Request<B>) -> Result<(), Problem> {
    let headers = request.headers();
    let double = SINGLE
        .iter()
        .find(|name| headers.get_all(**name).iter().nth(1).is_some());
    let malformed =
        |message: String| Problem::new(StatusCode::BAD_REQUEST, "malformed_request", message);
    if let Some(name) = double {
        return Err(malformed(format!("the header `{name}` is there twice")));
    }
    // HTTP/2 may name the server in two places, and HTTP/1.1 in an absolute address.
    let authority = request.uri().authority();
    let host = headers.get(header::HOST);
    let names = [
        host.map(HeaderValue::as_bytes),
        authority.map(|name| name.as_str().as_bytes()),
    ];
    if names.into_iter().flatten().any(|name| !is_host(name)) {
        return Err(malformed(NO_HOST.to_owned()));
    }
    if let (Some(authority), Some(host)) = (authority, host)
        && !authority
            .as_str()
            .as_bytes()
            .eq_ignore_ascii_case(host.as_bytes())
    {
        return Err(malformed(
            "the header `Host` names another server than the address of the request".to_owned(),
        ));
    }
    Ok(())
}

/// True if the request is a CORS preflight.
pub(crate) fn is_preflight<B>(request: &Request<B>) -> bool {
    request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ORIGIN)
        && request
            .headers()
            .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Headers of answers that pages may read.
const EXPOSED: &str = "x-request-id, request-id, retry-after, idempotency-replayed, \
    x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset, \
    x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, \
    x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, \
    x-ratelimit-limit-requests-second, x-ratelimit-remaining-requests-second, \
    x-ratelimit-reset-requests-second, x-ratelimit-limit-requests-day, \
    x-ratelimit-remaining-requests-day, x-ratelimit-reset-requests-day, \
    x-ratelimit-limit-tokens-day, x-ratelimit-remaining-tokens-day, x-ratelimit-reset-tokens-day";

/// Tell the browser what the page may do.
pub(crate) fn add_cors(headers: &mut HeaderMap, origin: HeaderValue, preflight: bool) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    headers.insert(
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static(EXPOSED),
    );
    if preflight {
        for (name, value) in [
            (
                header::ACCESS_CONTROL_ALLOW_METHODS,
                "GET, HEAD, POST, DELETE",
            ),
            (
                header::ACCESS_CONTROL_ALLOW_HEADERS,
                "authorization, content-type, x-api-key, api-key, anthropic-version, anthropic-beta, \
                 anthropic-dangerous-direct-browser-access, idempotency-key, x-request-id, x-request-timeout, x-stainless-arch, x-stainless-lang, \
                 x-stainless-os, x-stainless-package-version, x-stainless-retry-count, \
                 x-stainless-runtime, x-stainless-runtime-version, x-stainless-timeout",
            ),
            (header::ACCESS_CONTROL_MAX_AGE, "600"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
}

/// The host without its port: of the address (HTTP/2) or of the header.
fn called_by(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let authority = match uri.authority() {
        Some(authority) => authority.as_str(),
        None => headers.get(header::HOST)?.to_str().unwrap_or("?"),
    };
    let host = match authority.strip_prefix('[') {
        Some(rest) => &authority[..rest.find(']').map_or(authority.len(), |end| end + 2)],
        None => authority.split(':').next().unwrap_or(authority),
    };
    Some(host.to_ascii_lowercase())
}

/// Header by which a caller names its own trace.
pub(crate) const REQUEST_TRACE: &str = "x-request-trace";

/// Request id: the caller's id, or its name of the trace, if valid; else a new id.
pub(crate) fn request_id(headers: &HeaderMap) -> String {
    given_id(headers, "x-request-id")
        .or_else(|| given_id(headers, REQUEST_TRACE))
        .unwrap_or_else(|| format!("req_{}", uuid::Uuid::new_v4().simple()))
}

/// Request id in a header, if it is valid.
pub(crate) fn given_id(headers: &HeaderMap, name: &str) -> Option<String> {
    let harmless = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte);
    let id = headers.get(name).map(HeaderValue::as_bytes);
    id.filter(|id| !id.is_empty() && id.len() <= MAX_ID_BYTES && id.iter().all(harmless))
        .and_then(|id| String::from_utf8(id.to_vec()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeaderLimits = HeaderLimits {
        count: 10,
        bytes: 1000,
    };

    fn check(guard: &Guard, host: &str) -> bool {
        let request = Request::get("/health")
            .header("host", host)
            .body(())
            .expect("a request");
        guard.check(&request).is_ok()
    }

    #[test]
    fn loopback_answers_to_its_own_names_only() {
        let guard = Guard::new(LIMITS, true, &["api.example".to_owned()], &[]);
        for good in [
            "localhost:8080",
            "127.0.0.1:1",
            "[::1]:8080",
            "LOCALHOST",
            "api.example",
        ] {
            assert!(check(&guard, good), "{good}");
        }
        for bad in [
            "evil.example",
            "localhost.evil.example:8080",
            "[::2]:1",
            "127.0.0.1.x",
            "[",
        ] {
            assert!(!check(&guard, bad), "{bad}");
        }
        assert!(check(&Guard::new(LIMITS, false, &[], &[]), "anything"));
        assert!(check(
            &Guard::new(LIMITS, true, &["*".to_owned()], &[]),
            "anything"
        ));
        assert!(!check(
            &Guard::new(LIMITS, false, &["api.example".to_owned()], &[]),
            "other"
        ));
    }

    #[test]
    fn headers_that_name_server_and_caller_are_single() {
        let request = |uri: &str, headers: &[(&str, &str)]| {
            let mut request = Request::builder().uri(uri);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            check_single(&request.body(()).expect("a request")).is_ok()
        };
        assert!(request(
            "/",
            &[("host", "a"), ("authorization", "Bearer x")]
        ));
        assert!(request("http://A:80/", &[("host", "a:80")]));
        for name in SINGLE {
            assert!(!request("/", &[(name, "a"), (name, "a")]), "{name}");
            assert!(!request("/", &[(name, "a"), (name, "b")]), "{name}");
        }
        assert!(!request("http://a/", &[("host", "b")]));
        assert!(!request("http://a:80/", &[("host", "a:81")]));
    }

    #[test]
    fn harmful_request_ids_are_replaced() {
        let id = |value: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(
                "x-request-id",
                HeaderValue::from_bytes(value).expect("a header"),
            );
            request_id(&headers)
        };
        assert_eq!(id(b"trace-1.a:b_c"), "trace-1.a:b_c");
        for bad in [&b""[..], b"a b", b"a\"b", b"\xff", &[b'a'; 129]] {
            assert!(id(bad).starts_with("req_"));
        }
    }

    #[test]
    fn feature_z5_only_listed_origins_may_read() {
        let mut headers = HeaderMap::new();
        headers.insert(
            header::ORIGIN,
            HeaderValue::from_static("https://a.example"),
        );
        let origin = |list: &[&str]| {
            let list: Vec<String> = list.iter().map(|&entry| entry.to_owned()).collect();
            Guard::new(LIMITS, true, &[], &list).origin(&headers)
        };
        assert!(origin(&[]).is_none());
        assert!(origin(&["https://b.example"]).is_none());
        assert_eq!(
            origin(&["https://a.example"]).expect("allowed"),
            "https://a.example"
        );
        assert_eq!(origin(&["*"]).expect("allowed"), "*");
    }
}
