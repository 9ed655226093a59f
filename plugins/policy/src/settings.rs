//! The operator's table for this plugin, checked once when an instance is prepared.

use serde::Deserialize;
use serde_json::{Map, Value};

/// Keys that one binding may hold. Every request visits all of them.
pub const MAX_KEYS: usize = 10_000;
/// Bytes of a key's id, of a tenant's name and of a pattern.
pub const MAX_NAME_BYTES: usize = 128;
/// Patterns in one list.
pub const MAX_PATTERNS: usize = 1_000;

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

/// Limits of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Patterns of the models that may be named.
    pub models: Vec<String>,
    /// Patterns of the functions that may be declared.
    pub tools: Vec<String>,
    /// Patterns of the server's tools that may be opted in to.
    pub server_tools: Vec<String>,
    /// Requests a minute, if limited.
    pub requests_per_minute: Option<u64>,
    /// Prompt and answer tokens a minute, if limited.
    pub tokens_per_minute: Option<u64>,
    /// Generated tokens a request, if limited.
    pub max_tokens: Option<u32>,
    /// Higher is served first.
    pub priority: i32,
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
    /// Its limits.
    pub limits: Limits,
}

/// Checked settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// All keys.
    pub keys: Vec<Key>,
    /// Limits of callers without a key; none if they are refused.
    pub anonymous: Option<Limits>,
    /// Patterns of routes that need no key.
    pub public_routes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawKey {
    id: String,
    sha256: Option<String>,
    secret: Option<String>,
    tenant: Option<String>,
    models: Option<Vec<String>>,
    tools: Option<Vec<String>>,
    server_tools: Option<Vec<String>>,
    requests_per_minute: Option<u64>,
    tokens_per_minute: Option<u64>,
    max_tokens: Option<u32>,
    priority: Option<i32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAnonymous {
    allow: bool,
    models: Option<Vec<String>>,
    tools: Option<Vec<String>>,
    server_tools: Option<Vec<String>>,
    requests_per_minute: Option<u64>,
    tokens_per_minute: Option<u64>,
    max_tokens: Option<u32>,
    priority: Option<i32>,
}

impl Settings {
    /// Read the settings table.
    pub fn parse(json: &str) -> Result<Self, SettingsError> {
        let mut table: Map<String, Value> =
            serde_json::from_str(json).map_err(|error| SettingsError::Shape(error.to_string()))?;
        let keys = parse_keys(table.remove("keys"))?;
        let anonymous = parse_anonymous(table.remove("anonymous"), keys.is_empty())?;
        let public_routes = match table.remove("public_routes") {
            None => Vec::new(),
            Some(value) => parse_patterns("public_routes", value)?,
        };
        if let Some(name) = table.keys().next() {
            return Err(SettingsError::Field(format!(
                "`{name}` is unknown; known are `keys`, `anonymous` and `public_routes`"
            )));
        }
        Ok(Self {
            keys,
            anonymous,
            public_routes,
        })
    }
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
    let raw: RawKey = serde_json::from_value(value).map_err(|error| error.to_string())?;
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
    let limits = check_limits(Limits {
        models: raw.models.unwrap_or_else(all),
        tools: raw.tools.unwrap_or_else(all),
        server_tools: raw.server_tools.unwrap_or_else(all),
        requests_per_minute: raw.requests_per_minute,
        tokens_per_minute: raw.tokens_per_minute,
        max_tokens: raw.max_tokens,
        priority: raw.priority.unwrap_or(0),
    })?;
    Ok(Key {
        id: raw.id,
        tenant: raw.tenant,
        proof,
        limits,
    })
}

fn parse_anonymous(value: Option<Value>, no_keys: bool) -> Result<Option<Limits>, SettingsError> {
    let Some(value) = value else {
        // A server without keys is open: somebody is trying it on their own machine.
        return Ok(no_keys.then(|| Limits {
            models: all(),
            tools: all(),
            server_tools: all(),
            requests_per_minute: None,
            tokens_per_minute: None,
            max_tokens: None,
            priority: 0,
        }));
    };
    let field = |problem: String| SettingsError::Field(format!("`anonymous`: {problem}"));
    let raw: RawAnonymous =
        serde_json::from_value(value).map_err(|error| field(error.to_string()))?;
    let limits = check_limits(Limits {
        models: raw.models.unwrap_or_else(all),
        tools: raw.tools.unwrap_or_else(all),
        server_tools: raw.server_tools.unwrap_or_else(all),
        requests_per_minute: raw.requests_per_minute,
        tokens_per_minute: raw.tokens_per_minute,
        max_tokens: raw.max_tokens,
        priority: raw.priority.unwrap_or(0),
    })
    .map_err(field)?;
    Ok(raw.allow.then_some(limits))
}

/// The patterns of somebody who may use everything.
fn all() -> Vec<String> {
    vec!["*".to_owned()]
}

fn parse_patterns(name: &str, value: Value) -> Result<Vec<String>, SettingsError> {
    let patterns: Vec<String> = serde_json::from_value(value)
        .map_err(|error| SettingsError::Field(format!("`{name}`: {error}")))?;
    check_patterns(name, &patterns).map_err(SettingsError::Field)?;
    Ok(patterns)
}

fn check_limits(limits: Limits) -> Result<Limits, String> {
    check_patterns("models", &limits.models)?;
    check_patterns("tools", &limits.tools)?;
    check_patterns("server_tools", &limits.server_tools)?;
    for (name, value) in [
        ("requests_per_minute", limits.requests_per_minute),
        ("tokens_per_minute", limits.tokens_per_minute),
        ("max_tokens", limits.max_tokens.map(u64::from)),
    ] {
        if value == Some(0) {
            return Err(format!(
                "field `{name}` must be at least 1; leave it out for no limit"
            ));
        }
    }
    Ok(limits)
}

fn check_patterns(name: &str, patterns: &[String]) -> Result<(), String> {
    if patterns.len() > MAX_PATTERNS {
        return Err(format!(
            "field `{name}` has {} patterns, at most {MAX_PATTERNS} are allowed",
            patterns.len()
        ));
    }
    match patterns
        .iter()
        .find(|pattern| pattern.is_empty() || pattern.len() > MAX_NAME_BYTES)
    {
        None => Ok(()),
        Some(pattern) => Err(format!(
            "field `{name}` holds a pattern of {} bytes; 1 to {MAX_NAME_BYTES} are allowed",
            pattern.len()
        )),
    }
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
