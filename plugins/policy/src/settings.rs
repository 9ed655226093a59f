//! The operator's table for this plugin, checked once when an instance is prepared.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::{Map, Value};

pub use crate::terms::{Limits, MAX_NAME_BYTES, MAX_PATTERNS, Rates, Terms};
use crate::terms::{check_patterns, terms_table};

/// Keys that one binding may hold. Every request visits all of them.
pub const MAX_KEYS: usize = 10_000;

/// Error in the settings.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SettingsError {
    /// Not JSON, or not an object.
    #[error("policy settings must be a table: {0}")]
    Shape(String),
    /// A field outside any key.
    #[error("policy setting {0}")]
    Field(String),
    /// A field of one key.
    #[error("policy setting `keys[{index}]` (id `{id}`): {problem}")]
    Key {
        /// Position in the list, from 0.
        index: usize,
        /// Its id, or `?` if it has none.
        id: String,
        /// Defect, and what would be right.
        problem: String,
    },
}

/// Proof by which a key is recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// By the SHA-256 of the key.
    Sha256([u8; 32]),
    /// By the name of a secret of the host.
    Secret(String),
}

/// One caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Name of the key, fit for logs.
    pub id: String,
    /// Account that usage is kept by.
    pub tenant: Option<String>,
    /// Proof of the key.
    pub proof: Proof,
    /// Its scopes and limits.
    pub limits: Limits,
    /// Seconds since 1970 from which it is refused.
    pub expires_at: Option<u64>,
    /// True while it is refused, until the operator enables it again.
    pub disabled: bool,
}

/// Callers without a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anonymous {
    /// Their scopes and limits, those of rates by address.
    pub limits: Limits,
    /// The settings say that they are served; otherwise they are for as long as nobody knows a key.
    pub by_choice: bool,
}

/// A tenant whose keys share limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Limits over all its keys.
    pub rates: Rates,
}

/// Checked settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// All keys.
    pub keys: Vec<Key>,
    /// Tenants with limits of their own.
    pub tenants: Vec<Tenant>,
    /// Callers without a key; none if they are refused.
    pub anonymous: Option<Anonymous>,
    /// Patterns of routes that need no key.
    pub public_routes: Vec<String>,
    /// Label of this server, which keys may be bound to; may be empty.
    pub environment: String,
    /// Proxies that are believed about the address of the client.
    pub trusted_proxies: Vec<IpNet>,
    /// Addresses that may ask; all if it is empty.
    pub allowed_addresses: Vec<IpNet>,
    /// Addresses that may not ask.
    pub denied_addresses: Vec<IpNet>,
}

terms_table!(RawKey {
    id: String,
    sha256: Option<String>,
    secret: Option<String>,
    tenant: Option<String>,
    expires_at: Option<u64>,
    disabled: Option<bool>,
});

terms_table!(RawAnonymous { allow: bool });

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTenant {
    name: String,
    requests_per_second: Option<u64>,
    requests_per_minute: Option<u64>,
    requests_per_day: Option<u64>,
    tokens_per_minute: Option<u64>,
    tokens_per_day: Option<u64>,
    max_concurrent: Option<u64>,
}

impl Settings {
    /// Read the settings table.
    pub fn parse(json: &str) -> Result<Self, SettingsError> {
        let mut table: Map<String, Value> =
            serde_json::from_str(json).map_err(|error| SettingsError::Shape(error.to_string()))?;
        let keys = parse_keys(table.remove("keys"))?;
        let anonymous = parse_anonymous(table.remove("anonymous"), keys.is_empty())?;
        let read = Self {
            keys,
            tenants: parse_tenants(table.remove("tenants"))?,
            anonymous,
            public_routes: match table.remove("public_routes") {
                None => Vec::new(),
                Some(value) => parse_patterns("public_routes", value)?,
            },
            environment: match table.remove("environment") {
                None => String::new(),
                Some(value) => parse_environment(value)?,
            },
            trusted_proxies: parse_networks("trusted_proxies", &mut table)?,
            allowed_addresses: parse_networks("allowed_addresses", &mut table)?,
            denied_addresses: parse_networks("denied_addresses", &mut table)?,
        };
        match table.keys().next() {
            None => Ok(read),
            Some(name) => Err(SettingsError::Field(format!(
                "`{name}` is unknown; known are `keys`, `tenants`, `anonymous`, `public_routes`, `environment`, \
                 `trusted_proxies`, `allowed_addresses` and `denied_addresses`"
            ))),
        }
    }
}

fn parse_environment(value: Value) -> Result<String, SettingsError> {
    let name: String = serde_json::from_value(value)
        .map_err(|error| SettingsError::Field(format!("`environment`: {error}")))?;
    check_name("environment", &name).map_err(SettingsError::Field)?;
    Ok(name)
}

/// A list of networks such as `10.0.0.0/8`, or of single addresses.
fn parse_networks(
    field: &str,
    table: &mut Map<String, Value>,
) -> Result<Vec<IpNet>, SettingsError> {
    let Some(value) = table.remove(field) else {
        return Ok(Vec::new());
    };
    let wrong = |problem: String| SettingsError::Field(format!("`{field}`: {problem}"));
    let texts: Vec<String> =
        serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
    if texts.len() > MAX_PATTERNS {
        let count = texts.len();
        return Err(wrong(format!(
            "it has {count} entries, at most {MAX_PATTERNS} are allowed"
        )));
    }
    let read = |text: &String| {
        let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
        let network = text.parse::<IpNet>().ok().or_else(address);
        network.ok_or_else(|| {
            let text: String = text.chars().take(64).collect();
            wrong(format!(
                "{text:?} is neither an address nor a network such as \"10.0.0.0/8\""
            ))
        })
    };
    texts.iter().map(read).collect()
}

fn parse_tenants(value: Option<Value>) -> Result<Vec<Tenant>, SettingsError> {
    let wrong = |problem: String| SettingsError::Field(format!("`tenants`: {problem}"));
    let Some(value) = value else {
        return Ok(Vec::new());
    };
    let raw: Vec<RawTenant> =
        serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
    if raw.len() > MAX_KEYS {
        let count = raw.len();
        return Err(wrong(format!(
            "it has {count} entries, at most {MAX_KEYS} are allowed"
        )));
    }
    let mut names = std::collections::HashSet::new();
    let tenants = raw.into_iter().map(|raw| {
        check_name("name", &raw.name).map_err(wrong)?;
        if !names.insert(raw.name.clone()) {
            return Err(wrong(format!("`{}` is there twice", raw.name)));
        }
        let rates = Rates {
            requests_per_second: raw.requests_per_second,
            requests_per_minute: raw.requests_per_minute,
            requests_per_day: raw.requests_per_day,
            tokens_per_minute: raw.tokens_per_minute,
            tokens_per_day: raw.tokens_per_day,
            max_concurrent: raw.max_concurrent,
        };
        rates.check().map_err(wrong)?;
        Ok(Tenant {
            name: raw.name,
            rates,
        })
    });
    tenants.collect()
}

fn parse_keys(value: Option<Value>) -> Result<Vec<Key>, SettingsError> {
    let list = match value {
        None => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(_) => {
            return Err(SettingsError::Field(
                "`keys` must be an array of tables".to_owned(),
            ));
        }
    };
    if list.len() > MAX_KEYS {
        return Err(SettingsError::Field(format!(
            "`keys` has {} entries, at most {MAX_KEYS} are allowed",
            list.len()
        )));
    }
    let mut keys: Vec<Key> = Vec::with_capacity(list.len());
    let mut ids = std::collections::HashSet::new();
    let mut proofs = std::collections::HashSet::new();
    for (index, value) in list.into_iter().enumerate() {
        let id = match value.get("id") {
            Some(Value::String(id)) if !id.is_empty() => id.clone(),
            _ => "?".to_owned(),
        };
        let key = parse_key(value).and_then(|key| {
            if !ids.insert(key.id.clone()) {
                return Err("field `id` is used by an earlier key; ids must differ".to_owned());
            }
            let proof = match &key.proof {
                Proof::Sha256(digest) => digest.to_vec(),
                Proof::Secret(name) => name.clone().into_bytes(),
            };
            if !proofs.insert(proof) {
                return Err(
                    "an earlier key is recognised by the same `sha256` or `secret`; \
                            give each its own"
                        .to_owned(),
                );
            }
            Ok(key)
        });
        keys.push(key.map_err(|problem| SettingsError::Key { index, id, problem })?);
    }
    Ok(keys)
}

fn parse_key(value: Value) -> Result<Key, String> {
    let mut raw: RawKey = serde_json::from_value(value).map_err(|error| error.to_string())?;
    let limits = raw.terms().limits()?;
    check_name("id", &raw.id)?;
    if let Some(tenant) = &raw.tenant {
        check_name("tenant", tenant)?;
    }
    let proof = match (raw.sha256, raw.secret) {
        (Some(hex), None) => Proof::Sha256(parse_digest(&hex).ok_or_else(|| {
            "field `sha256` must be the 64 hexadecimal digits of the key's SHA-256".to_owned()
        })?),
        (None, Some(name)) => {
            check_name("secret", &name)?;
            Proof::Secret(name)
        }
        _ => return Err("exactly one of `sha256` and `secret` must be given".to_owned()),
    };
    Ok(Key {
        id: raw.id,
        tenant: raw.tenant,
        proof,
        limits,
        expires_at: raw.expires_at,
        disabled: raw.disabled.unwrap_or(false),
    })
}

fn parse_anonymous(
    value: Option<Value>,
    no_keys: bool,
) -> Result<Option<Anonymous>, SettingsError> {
    let field = |problem: String| SettingsError::Field(format!("`anonymous`: {problem}"));
    let (allow, terms, by_choice) = match value {
        // A server without keys is open: somebody is trying it on their own machine.
        None => (no_keys, Terms::default(), false),
        Some(value) => {
            let mut raw: RawAnonymous =
                serde_json::from_value(value).map_err(|error| field(error.to_string()))?;
            (raw.allow, raw.terms(), true)
        }
    };
    let limits = terms.limits().map_err(field)?;
    Ok(allow.then_some(Anonymous { limits, by_choice }))
}

fn parse_patterns(name: &str, value: Value) -> Result<Vec<String>, SettingsError> {
    let patterns: Vec<String> = serde_json::from_value(value)
        .map_err(|error| SettingsError::Field(format!("`{name}`: {error}")))?;
    check_patterns(name, &patterns).map_err(SettingsError::Field)?;
    Ok(patterns)
}

/// Ids reach logs, headers and bucket names, hence the narrow alphabet.
fn check_name(field: &str, name: &str) -> Result<(), String> {
    let fits = !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if fits {
        Ok(())
    } else {
        Err(format!(
            "field `{field}` must be 1 to {MAX_NAME_BYTES} letters, digits, `.`, `_` or `-`"
        ))
    }
}

fn parse_digest(hex: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    let bytes = hex.as_bytes();
    if bytes.len() != 64 {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(bytes.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = u8::try_from(high * 16 + low).ok()?;
    }
    Some(digest)
}
