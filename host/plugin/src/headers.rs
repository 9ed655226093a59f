//! Request headers that a binding of a policy is granted, and handles that stand for the credentials among them.
//!
//! A policy could log what it sees, so a credential arrives as a handle: a text of no use to anybody else, which
//! `secrets.find` takes in its place. The same credential has the same handle for as long as the process lives.

use std::sync::LazyLock;

use ring::hmac;
use ring::rand::SystemRandom;
use wildmatch::WildMatchPattern;

use crate::Facts;
use crate::secret::digest;

/// Beginning of every handle.
const HANDLE: &str = "mortise-credential-";

/// Bytes of the keyed digest in a handle.
const HANDLE_BYTES: usize = 16;

/// Character for one character in patterns: there is none, so one that no name has.
const NO_WILDCARD: char = '\0';

/// Words of names of headers that hold credentials.
const CREDENTIAL_WORDS: [&str; 13] = [
    "apikey",
    "auth",
    "authorization",
    "cookie",
    "credential",
    "credentials",
    "jwt",
    "passwd",
    "password",
    "secret",
    "session",
    "signature",
    "token",
];

/// Names that end with `key` and hold no credential.
const NO_CREDENTIAL: [&str; 2] = ["idempotency-key", "sec-websocket-key"];

/// Subprotocols of a WebSocket, by which browsers send keys.
const SUBPROTOCOL: &str = "sec-websocket-protocol";

/// Request headers that a policy is granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderGrant {
    /// Names in lower case, and patterns in which `*` stands for any text. A header that none of them matches does
    /// not arrive, but for credentials, which arrive as handles unless they are named without a `*`.
    pub patterns: Vec<String>,
    /// All headers arrive as they were sent: in tests of a plugin, whose author wrote them.
    pub as_sent: bool,
}

impl Default for HeaderGrant {
    /// All headers, credentials as handles.
    fn default() -> Self {
        Self {
            patterns: vec!["*".to_owned()],
            as_sent: false,
        }
    }
}

/// A handle that was given to a call, and the digest of the credential that it stands for.
pub(crate) type CredentialHandle = (String, [u8; 32]);

impl HeaderGrant {
    /// All headers as they were sent.
    pub fn as_sent() -> Self {
        Self {
            as_sent: true,
            ..Self::default()
        }
    }

    /// The facts with the headers that are granted, and the handles among them.
    pub(crate) fn apply(&self, mut facts: Facts) -> (Facts, Vec<CredentialHandle>) {
        let mut handles = Vec::new();
        if !self.as_sent {
            facts.headers.retain_mut(|(name, value)| {
                if !is_credential(name) {
                    return self.matches(name);
                }
                if !self.patterns.iter().any(|pattern| pattern == name) {
                    *value = without_credential(name, value, &mut handles);
                }
                true
            });
        }
        (facts, handles)
    }

    fn matches(&self, name: &str) -> bool {
        let matches =
            |pattern: &String| WildMatchPattern::<'*', NO_WILDCARD>::new(pattern).matches(name);
        // What the host itself says of the caller is for all policies.
        name.starts_with("mortise-") || self.patterns.iter().any(matches)
    }
}

/// True if a header of this name, in lower case, may hold what proves who asks.
fn is_credential(name: &str) -> bool {
    let mut words = name.split(['-', '_']);
    let ends_as_key = name.rsplit(['-', '_']).next() == Some("key");
    name == SUBPROTOCOL
        || words.any(|word| CREDENTIAL_WORDS.contains(&word))
        || (ends_as_key && !NO_CREDENTIAL.contains(&name))
}

/// The value with a handle in place of the credential. The scheme of `authorization` stays.
fn without_credential(name: &str, value: &str, handles: &mut Vec<CredentialHandle>) -> String {
    let value = value.trim();
    let scheme = match name {
        "authorization" | "proxy-authorization" => value.split_once(' '),
        _ => None,
    };
    let token = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let scheme = scheme.filter(|(scheme, _)| scheme.bytes().all(token));
    let credential = scheme.map_or(value, |(_, credential)| credential.trim());
    if credential.is_empty() {
        return value.to_owned();
    }
    let digest = digest(credential);
    let handle = handle_of(&digest);
    let said = match scheme {
        Some((scheme, _)) => format!("{scheme} {handle}"),
        None => handle.clone(),
    };
    handles.push((handle, digest));
    said
}

/// Keyed, so that a handle in a log does not help to guess a weak credential.
fn handle_of(digest: &[u8; 32]) -> String {
    static KEY: LazyLock<hmac::Key> = LazyLock::new(|| {
        hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .expect("the system has random numbers")
    });
    let tag = hmac::sign(&KEY, digest);
    let bytes = tag.as_ref().iter().take(HANDLE_BYTES);
    let digits = bytes.flat_map(|byte| [byte >> 4, byte & 15]);
    let digits = digits.filter_map(|digit| char::from_digit(digit.into(), 16));
    let mut handle = String::with_capacity(HANDLE.len() + 2 * HANDLE_BYTES);
    handle.push_str(HANDLE);
    handle.extend(digits);
    handle
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn facts(headers: &[(&str, &str)]) -> Facts {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Facts {
            headers: headers.iter().map(owned).collect(),
            ..Facts::default()
        }
    }

    fn granted(
        patterns: &[&str],
        headers: &[(&str, &str)],
    ) -> (Vec<(String, String)>, Vec<CredentialHandle>) {
        let grant = HeaderGrant {
            patterns: patterns.iter().map(|&pattern| pattern.to_owned()).collect(),
            as_sent: false,
        };
        let (facts, handles) = grant.apply(facts(headers));
        (facts.headers, handles)
    }

    #[test]
    fn names_tell_credentials() {
        for name in [
            "authorization",
            "proxy-authorization",
            "cookie",
            "x-api-key",
            "api-key",
            "x-goog-api-key",
            "ocp-apim-subscription-key",
            "x-apikey",
            "x-auth-token",
            "x-forwarded-access-token",
            "x_session_id",
            "sec-websocket-protocol",
        ] {
            assert!(is_credential(name), "{name}");
        }
        for name in [
            "accept",
            "content-length",
            "idempotency-key",
            "sec-websocket-key",
            "x-tenant",
            "x-max-tokens",
            "x-keyboard",
            "user-agent",
            "mortise-identity",
            "x-forwarded-for",
        ] {
            assert!(!is_credential(name), "{name}");
        }
    }

    #[test]
    fn equal_credentials_have_equal_handles_wherever_they_stand() {
        let (headers, handles) = granted(
            &["*"],
            &[
                ("authorization", "Bearer  sk-1 "),
                ("x-api-key", "sk-1"),
                ("api-key", "sk-2"),
                ("proxy-authorization", "no-scheme"),
                ("x-token", ""),
            ],
        );
        let one = &handles[0].0;
        assert!(one.starts_with(HANDLE));
        assert_eq!(headers[0].1, format!("Bearer {one}"));
        assert_eq!(&headers[1].1, one);
        assert_ne!(&headers[2].1, one);
        assert!(headers[3].1.starts_with(HANDLE));
        assert_eq!(headers[4].1, "", "nothing stands for nothing");
        assert_eq!(handles.len(), 4);
        assert_eq!(handles[0].1, digest("sk-1"));
    }

    #[test]
    fn a_credential_is_granted_by_its_full_name_only() {
        let sent = [
            ("authorization", "Bearer sk-1"),
            ("x-tenant", "acme"),
            ("accept", "*/*"),
        ];
        let names = |patterns: &[&str]| {
            let (headers, handles) = granted(patterns, &sent);
            let names: Vec<String> = headers.into_iter().map(|(name, _)| name).collect();
            (names.join(" "), handles.len())
        };
        let all = "authorization x-tenant accept".to_owned();
        assert_eq!(names(&["*"]), (all.clone(), 1));
        assert_eq!(names(&["*", "auth*"]), (all.clone(), 1));
        assert_eq!(names(&["*", "authorization"]), (all, 0));
        assert_eq!(names(&["x-*"]), ("authorization x-tenant".to_owned(), 1));
        assert_eq!(names(&["authorization"]), ("authorization".to_owned(), 0));
        assert_eq!(names(&[]), ("authorization".to_owned(), 1));
    }

    proptest! {
        #[test]
        fn a_credential_never_passes(
            name in "(x-)?(api-key|auth-token|secret)|(proxy-)?authorization|cookie",
            scheme in "(Bearer |Basic |)",
            credential in "[!-~]{4,40}",
        ) {
            let value = format!("{scheme}{credential}");
            let (headers, handles) = granted(&["*", "auth*", "x-*"], &[(&name, &value)]);
            prop_assert_eq!(handles.len(), 1);
            let rest = headers[0].1.replace(&handles[0].0, "");
            prop_assert!(!rest.contains(&credential), "{}", rest);
        }

        #[test]
        fn any_header_is_taken(name in "\\PC{0,20}", value in "\\PC{0,40}") {
            granted(&["*"], &[(&name, &value)]);
        }
    }
}
