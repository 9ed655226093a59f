//! Recognition of the caller: by what the host found out, by a key of the settings, or by its address.

use std::net::IpAddr;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::address;
use crate::settings::{Key, Limits, Proof, Settings, Terms};
use crate::wit::{Deny, Facts, Host};

/// Header in which the host says whom it recognised. What a caller sends by this name never arrives.
pub(crate) const IDENTITY: &str = "mortise-identity";

/// A credential longer than this is refused unread.
const MAX_CREDENTIAL_BYTES: usize = 4_096;

/// Longest id that names buckets as it stands; a longer one goes by its digest.
const MAX_ACCOUNT_BYTES: usize = 96;

/// A caller that has been recognised.
pub(crate) struct Caller {
    pub(crate) subject: String,
    pub(crate) tenant: Option<String>,
    pub(crate) limits: Limits,
    /// Name that distinguishes the caller's buckets: `key.ID`, `token.ID` or `anonymous.ADDRESS`.
    pub(crate) account: String,
}

impl Caller {
    /// A caller that the host knows, or the problem of its terms.
    pub(crate) fn known(
        kind: String,
        id: String,
        tenant: Option<String>,
        terms: Terms,
    ) -> Result<Self, String> {
        Ok(Self {
            account: account(&kind, &id),
            subject: id,
            tenant,
            limits: terms.limits()?,
        })
    }
}

/// Facts of the host about the caller.
#[derive(Deserialize, Default)]
struct Identity {
    /// Caller that the host recognised.
    caller: Option<Known>,
    /// Refusal of a credential that is known, or of a known kind, and is not good.
    refused: Option<Refused>,
    /// Flag: the host knows callers, so one without a credential is not served unless the settings say so.
    #[serde(default)]
    closed: bool,
}

#[derive(Deserialize)]
struct Known {
    id: String,
    /// Kind of the credential: `key` or `token`.
    kind: String,
    tenant: Option<String>,
    #[serde(default)]
    terms: Terms,
}

#[derive(Deserialize)]
struct Refused {
    status: u16,
    code: String,
    message: String,
}

pub(crate) fn recognise(
    settings: &Settings,
    host: &impl Host,
    facts: Facts<'_>,
    client: Option<IpAddr>,
) -> Result<Caller, Deny> {
    let identity = identity(facts.headers)?;
    if let Some(refused) = identity.refused {
        return Err(match refused.status {
            403 => forbidden(&refused.code, refused.message),
            _ => unauthorized(&refused.code, refused.message),
        });
    }
    if let Some(known) = identity.caller {
        return Caller::known(known.kind, known.id, known.tenant, known.terms)
            .map_err(|problem| unreadable(&problem));
    }
    let credential = credential(facts.headers);
    let guarded = identity.closed || !settings.keys.is_empty();
    if let (Some(credential), true) = (credential, guarded) {
        return by_key(settings, host, credential);
    }
    match &settings.anonymous {
        Some(anonymous) if anonymous.by_choice || !identity.closed => Ok(Caller {
            subject: "anonymous".to_owned(),
            tenant: None,
            limits: anonymous.limits.clone(),
            account: match client {
                Some(client) => account("anonymous", &address::account(client)),
                None => account("anonymous", facts.peer),
            },
        }),
        _ => Err(unauthorized(
            "invalid_api_key",
            "no API key was sent; send it as `Authorization: Bearer KEY`".to_owned(),
        )),
    }
}

/// Facts of the host, if it gives any.
fn identity(headers: &[(String, String)]) -> Result<Identity, Deny> {
    match headers.iter().find(|(name, _)| name == IDENTITY) {
        None => Ok(Identity::default()),
        Some((_, value)) => {
            serde_json::from_str(value).map_err(|error| unreadable(&error.to_string()))
        }
    }
}

/// Facts of the host that this policy cannot read grant nothing.
fn unreadable(problem: &str) -> Deny {
    forbidden(
        "unreadable_terms",
        format!("the terms of this caller cannot be read: {problem}; ask the operator"),
    )
}

fn by_key(settings: &Settings, host: &impl Host, credential: &str) -> Result<Caller, Deny> {
    let Some(key) = find_key(&settings.keys, host, credential) else {
        return Err(unauthorized(
            "invalid_api_key",
            "the API key is not known to this server; check the key you send".to_owned(),
        ));
    };
    if key.disabled {
        return Err(unauthorized(
            "disabled_api_key",
            format!("the API key `{}` is disabled; ask the operator", key.id),
        ));
    }
    if key.expires_at.is_some_and(|at| at <= host.now_ms() / 1_000) {
        return Err(unauthorized(
            "expired_api_key",
            format!(
                "the API key `{}` has expired; ask the operator for another",
                key.id
            ),
        ));
    }
    Ok(Caller {
        subject: key.id.clone(),
        tenant: key.tenant.clone(),
        limits: key.limits.clone(),
        account: account("key", &key.id),
    })
}

/// Name of the buckets of a caller. An id of another issuer may be long, or hold any character.
fn account(kind: &str, id: &str) -> String {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:@/".contains(&byte);
    if id.len() <= MAX_ACCOUNT_BYTES && id.bytes().all(fits) {
        return format!("{kind}.{id}");
    }
    let digest = Sha256::digest(id.as_bytes());
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{kind}.{digits}")
}

/// The key that the caller sent, wherever the common clients put it.
fn credential(headers: &[(String, String)]) -> Option<&str> {
    let value = |name: &str| {
        headers
            .iter()
            .find(|(header, _)| header == name)
            .map(|(_, value)| value.trim())
            .filter(|value| !value.is_empty())
    };
    let bearer = value("authorization").and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    bearer
        .filter(|key| !key.is_empty())
        .or_else(|| value("x-api-key"))
        .or_else(|| value("api-key"))
}

/// Find the key of a credential. All keys and bytes are compared, so that the time tells nothing about the keys.
fn find_key<'a>(keys: &'a [Key], host: &impl Host, credential: &str) -> Option<&'a Key> {
    if credential.len() > MAX_CREDENTIAL_BYTES {
        return None;
    }
    let digest: [u8; 32] = Sha256::digest(credential.as_bytes()).into();
    let by_secret = keys
        .iter()
        .any(|key| matches!(key.proof, Proof::Secret(_)))
        .then(|| host.find_secret(credential))
        .flatten();
    let mut found = None;
    for key in keys {
        let same = match &key.proof {
            Proof::Sha256(known) => equal(known, &digest),
            Proof::Secret(name) => by_secret.as_deref() == Some(name),
        };
        if same {
            found = Some(key);
        }
    }
    found
}

fn equal(left: &[u8; 32], right: &[u8; 32]) -> bool {
    let difference = left.iter().zip(right).fold(0, |sum, (a, b)| sum | (a ^ b));
    std::hint::black_box(difference) == 0
}

fn unauthorized(code: &str, message: String) -> Deny {
    Deny {
        status: 401,
        kind: "authentication_error",
        code: code.to_owned(),
        message,
        retry_after_ms: None,
        headers: vec![("www-authenticate".to_owned(), "Bearer".to_owned())],
    }
}

pub(crate) fn forbidden(code: &str, message: String) -> Deny {
    Deny {
        status: 403,
        kind: "permission_error",
        code: code.to_owned(),
        message,
        retry_after_ms: None,
        headers: Vec::new(),
    }
}
