//! Response headers that a policy gives: which are passed on, and their bounds.
//!
//! A header decides how a client reads the response. One that frames the body (`content-length`,
//! `transfer-encoding`), the connection, or the caller's state (`set-cookie`) is none of a policy's business,
//! and what is not in the list below is left out.

/// Headers that a policy may give.
pub(crate) const MAX_HEADERS: usize = 32;

/// Longest name of a header.
const MAX_NAME_BYTES: usize = 64;

/// Longest value of a header.
const MAX_VALUE_BYTES: usize = 1024;

/// Bytes of all names and values together.
const MAX_BYTES: usize = 8 << 10;

/// Beginnings of the names that are passed on.
const PASSED_PREFIXES: [&str; 2] = ["x-", "ratelimit-"];

/// Names with such a beginning that are the server's own to give.
const RESERVED: [&str; 5] = [
    "x-request-id",
    "x-request-trace",
    "x-queue-position",
    "x-should-retry",
    "x-content-type-options",
];

/// Beginnings of names by which reverse proxies take orders from the server behind them, such as to send a file of their
/// own or an answer of another server (nginx, Apache, lighttpd, LiteSpeed, Perlbal, Envoy), and of the server's own.
const RESERVED_PREFIXES: [&str; 7] = [
    "x-accel-",
    "x-sendfile",
    "x-lighttpd-",
    "x-litespeed-",
    "x-reproxy-",
    "x-envoy-",
    "x-mortise-",
];

/// The one of the server's own names by which a policy decides something: whether an answer may be cached.
const CACHE_CONTROL: &str = "x-mortise-cache-control";

/// Name that is passed on with a denial only.
const CHALLENGE: &str = "www-authenticate";

/// Kind of decision that headers belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecisionKind {
    Allowed,
    Denied,
}

/// Refuse headers that are too many or too large, or that are no headers.
pub(crate) fn check(headers: &[(String, String)]) -> Result<(), String> {
    if headers.len() > MAX_HEADERS {
        let count = headers.len();
        return Err(format!("gave {count} headers of at most {MAX_HEADERS}"));
    }
    let mut bytes = 0;
    for (name, value) in headers {
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(token) {
            let end = name.floor_char_boundary(MAX_NAME_BYTES);
            return Err(format!(
                "gave a header the name \"{}\"",
                name[..end].escape_default()
            ));
        }
        if value.len() > MAX_VALUE_BYTES {
            return Err(format!(
                "gave the header `{name}` {} bytes, of at most {MAX_VALUE_BYTES}",
                value.len()
            ));
        }
        if value.chars().any(char::is_control) {
            return Err(format!("gave the header `{name}` a control character"));
        }
        bytes += name.len() + value.len();
    }
    match bytes {
        0..=MAX_BYTES => Ok(()),
        _ => Err(format!(
            "gave headers of {bytes} bytes, of at most {MAX_BYTES}"
        )),
    }
}

/// Leave out what is not passed on, and values that are not printable ASCII, such as a name of a caller's
/// that a policy repeats; the names that were left out.
pub(crate) fn retain(headers: &mut Vec<(String, String)>, answer: DecisionKind) -> Vec<String> {
    let dropped = headers.extract_if(.., |(name, value)| {
        !is_passed(name, answer) || !value.bytes().all(|byte| matches!(byte, b' '..=b'~'))
    });
    dropped.map(|(name, _)| name).collect()
}

fn is_passed(name: &str, answer: DecisionKind) -> bool {
    let name = name.to_ascii_lowercase();
    let prefixed = PASSED_PREFIXES.iter().any(|prefix| {
        name.strip_prefix(prefix)
            .is_some_and(|rest| !rest.is_empty())
    });
    let of_others = RESERVED_PREFIXES
        .iter()
        .any(|prefix| name.starts_with(prefix))
        && name != CACHE_CONTROL;
    let challenge = name == CHALLENGE && answer == DecisionKind::Denied;
    (prefixed && !of_others && !RESERVED.contains(&name.as_str())) || challenge
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn only_headers_of_the_list_are_passed_on() {
        let mut headers: Vec<_> = [
            "x-ratelimit-limit-tokens",
            "X-Tier",
            "RateLimit-Policy",
            "www-authenticate",
            "content-length",
            "Transfer-Encoding",
            "connection",
            "Set-Cookie",
            "location",
            "content-type",
            "x-request-id",
            "x-",
            "retry-after",
            "access-control-allow-origin",
        ]
        .map(|name| header(name, "1"))
        .into();
        let mut denied = headers.clone();
        let dropped = retain(&mut headers, DecisionKind::Allowed);
        let names = |headers: &[(String, String)]| -> Vec<String> {
            headers.iter().map(|(name, _)| name.clone()).collect()
        };
        let passed = ["x-ratelimit-limit-tokens", "X-Tier", "RateLimit-Policy"];
        assert_eq!(names(&headers), passed);
        assert_eq!(dropped.len(), 11);
        retain(&mut denied, DecisionKind::Denied);
        let passed = [&passed[..], &["www-authenticate"]].concat();
        assert_eq!(names(&denied), passed);
        let mut accented = vec![header("x-tenant", "Zürich")];
        assert!(check(&accented).is_ok());
        assert_eq!(retain(&mut accented, DecisionKind::Allowed), ["x-tenant"]);
    }

    #[test]
    fn what_proxies_obey_and_what_is_the_servers_own_is_left_out() {
        let refused = [
            "x-accel-redirect",
            "X-Accel-Buffering",
            "x-sendfile",
            "X-Sendfile-Type",
            "x-lighttpd-send-file",
            "X-LIGHTTPD-send-tempfile",
            "x-litespeed-location",
            "x-reproxy-url",
            "x-envoy-immediate-health-check-fail",
            "x-mortise-cache",
            "X-Mortise-Anything",
            "x-queue-position",
            "x-request-trace",
        ];
        for answer in [DecisionKind::Allowed, DecisionKind::Denied] {
            let mut headers: Vec<_> = refused.iter().map(|name| header(name, "1")).collect();
            let passed = ["x-mortise-cache-control", "x-acceleration", "x-mortised"];
            headers.extend(passed.map(|name| header(name, "no-store")));
            assert_eq!(retain(&mut headers, answer), refused);
            let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, passed);
        }
    }

    #[test]
    fn what_is_no_header_is_refused() {
        for (name, value) in [
            ("x-a", "b\r\nset-cookie: c"),
            ("x-a\r\nb", "c"),
            ("", "c"),
            ("x a", "c"),
            ("x-a:", "c"),
            ("x-ä", "c"),
            ("x-a", "b\0"),
            ("x-a", "\u{7f}"),
            ("x-a", "\u{85}"),
        ] {
            assert!(
                check(&[header(name, value)]).is_err(),
                "{name:?}: {value:?}"
            );
        }
        assert!(check(&[header(&"x".repeat(MAX_NAME_BYTES + 1), "")]).is_err());
        assert!(check(&[header("x-a", &"v".repeat(MAX_VALUE_BYTES + 1))]).is_err());
        assert!(check(&vec![header("x-a", "v"); MAX_HEADERS]).is_ok());
        assert!(check(&vec![header("x-a", "v"); MAX_HEADERS + 1]).is_err());
        let large = header("x-a", &"v".repeat(MAX_VALUE_BYTES));
        assert!(check(&vec![large.clone(); 7]).is_ok());
        assert!(
            check(&vec![large; 9]).is_err(),
            "together they are too large"
        );
    }

    proptest! {
        #[test]
        fn nothing_that_passes_breaks_a_response(name in "\\PC{0,12}", value in "\\PC{0,12}") {
            let mut headers = vec![(name, value)];
            if check(&headers).is_ok() {
                retain(&mut headers, DecisionKind::Denied);
                for (name, value) in headers {
                    let name = name.to_ascii_lowercase();
                    let known = ["x-", "ratelimit-", "www-authenticate"];
                    prop_assert!(known.iter().any(|prefix| name.starts_with(prefix)));
                    prop_assert!(!value.bytes().any(|byte| !(b' '..=b'~').contains(&byte)));
                }
            }
        }
    }
}
