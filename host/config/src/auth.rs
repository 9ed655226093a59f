//! The `[auth]` table: keys, tenants, users and issuers of tokens, and what their callers may.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mortise_identity::{
    IdentityConfig, LoginConfig, Terms, TermsError, User, check_name, check_password_hash,
};
use mortise_plugin::Secret;
use mortise_plugin_manager::AuthConfig;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::auth_terms::terms_table;
use super::auth_tokens::{RawIssuer, check_issuers};
use super::hex::hex_32;
use super::variables::secret_of_file;
use super::{ConfigError, invalid, variable_of};

/// Longest life of a token of the server's own, in hours: a year.
const MAX_TOKEN_HOURS: u64 = 24 * 366;

/// Beginning of a key that is given by its digest.
const DIGEST: &str = "sha256:";

/// The table as it is written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawAuth {
    pub(crate) api_keys: Vec<RawKey>,
    tenants: Vec<RawTenant>,
    anonymous: Option<bool>,
    anonymous_limits: Option<RawAnonymous>,
    public_routes: Vec<String>,
    environment: Option<String>,
    pub(crate) trusted_proxies: Vec<String>,
    allowed_addresses: Vec<String>,
    denied_addresses: Vec<String>,
    pub(crate) jwt: Vec<RawIssuer>,
    pub(crate) users: Vec<RawUser>,
    token_hours: u64,
}

impl Default for RawAuth {
    fn default() -> Self {
        Self {
            api_keys: Vec::new(),
            tenants: Vec::new(),
            anonymous: None,
            anonymous_limits: None,
            public_routes: Vec::new(),
            environment: None,
            trusted_proxies: Vec::new(),
            allowed_addresses: Vec::new(),
            denied_addresses: Vec::new(),
            jwt: Vec::new(),
            users: Vec::new(),
            token_hours: 24,
        }
    }
}

terms_table!(RawKey {
    id: String,
    key: Option<String>,
    key_env: Option<String>,
    key_file: Option<PathBuf>,
    sha256: Option<String>,
    tenant: Option<String>,
    expires_at: Option<String>,
    disabled: Option<bool>,
});

terms_table!(RawAnonymous {});

terms_table!(RawUser {
    name: String,
    password_hash: String,
    tenant: Option<String>,
});

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawTenant {
    name: String,
    requests_per_second: Option<u64>,
    requests_per_minute: Option<u64>,
    requests_per_day: Option<u64>,
    tokens_per_minute: Option<u64>,
    tokens_per_day: Option<u64>,
    max_concurrent: Option<u64>,
}

/// The table in the words of the default policy, and of those who recognise callers. Keys themselves stay with the
/// host; the policy learns only their names.
pub(super) fn check_auth(
    raw: RawAuth,
    from_command_line: &[String],
    base: &Path,
) -> Result<(AuthConfig, IdentityConfig), ConfigError> {
    let mut settings = Map::new();
    let (keys, secrets) = check_keys(raw.api_keys, from_command_line, base)?;
    let mut count = keys.len();
    if !keys.is_empty() {
        settings.insert("keys".to_owned(), Value::Array(keys));
    }
    if !raw.tenants.is_empty() {
        settings.insert("tenants".to_owned(), check_tenants(raw.tenants)?);
    }
    if let Some(environment) = raw.environment {
        checked("auth.environment", check_name("environment", &environment))?;
        settings.insert("environment".to_owned(), json!(environment));
    }
    for (name, texts) in [
        ("public_routes", raw.public_routes),
        ("trusted_proxies", raw.trusted_proxies),
        ("allowed_addresses", raw.allowed_addresses),
        ("denied_addresses", raw.denied_addresses),
    ] {
        if !texts.is_empty() {
            settings.insert(name.to_owned(), json!(texts));
        }
    }
    if let Some(anonymous) = check_anonymous(raw.anonymous, raw.anonymous_limits)? {
        settings.insert("anonymous".to_owned(), anonymous);
    }
    let identity = IdentityConfig {
        login: check_users(raw.users, raw.token_hours)?,
        issuers: check_issuers(raw.jwt, base)?,
    };
    count += identity.issuers.len() + identity.login.users.len();
    let auth = AuthConfig {
        settings: Value::Object(settings),
        secrets,
        keys: count,
    };
    Ok((auth, identity))
}

fn check_anonymous(
    allow: Option<bool>,
    limits: Option<RawAnonymous>,
) -> Result<Option<Value>, ConfigError> {
    let Some(mut limits) = limits else {
        return Ok(allow.map(|allow| json!({"allow": allow})));
    };
    if allow != Some(true) {
        return Err(invalid(
            "auth.anonymous_limits",
            "they are for callers without a key, whom only `auth.anonymous = true` serves",
        ));
    }
    let mut table = check_terms("auth.anonymous_limits", &limits.terms())?;
    table.insert("allow".to_owned(), json!(true));
    Ok(Some(Value::Object(table)))
}

/// Keys as the policy has them, and their secrets.
type Keys = (Vec<Value>, Vec<Secret>);

fn check_keys(
    raw: Vec<RawKey>,
    from_command_line: &[String],
    base: &Path,
) -> Result<Keys, ConfigError> {
    let (mut keys, mut secrets) = (Vec::new(), Vec::new());
    let given = from_command_line
        .iter()
        .enumerate()
        .map(|(index, key)| RawKey {
            id: format!("command-line-{}", index + 1),
            key: Some(key.clone()),
            ..RawKey::default()
        });
    for (index, key) in raw.into_iter().chain(given).enumerate() {
        keys.push(check_key(index, key, base, &mut secrets)?);
    }
    Ok((keys, secrets))
}

fn check_key(
    index: usize,
    mut raw: RawKey,
    base: &Path,
    secrets: &mut Vec<Secret>,
) -> Result<Value, ConfigError> {
    let path = format!("auth.api_keys[{index}]");
    if raw.id.is_empty() {
        return Err(invalid(
            &format!("{path}.id"),
            "it is required; logs name callers by it",
        ));
    }
    let mut key = check_terms(&path, &raw.terms())?;
    key.insert("id".to_owned(), json!(raw.id));
    if secrets.iter().any(|known| known.name == raw.id) {
        let message = format!("the key `{}` is there twice; ids must differ", raw.id);
        return Err(invalid(&format!("{path}.id"), message));
    }
    // The policy asks the host whose key it is, by the name that the operator gave.
    key.insert("secret".to_owned(), json!(raw.id));
    secrets.push(match (raw.key, raw.key_env, raw.key_file, raw.sha256) {
        (Some(key), None, None, None) => secret(&path, &raw.id, &key)?,
        (None, Some(variable), None, None) => {
            let key = variable_of(&format!("{path}.key_env"), &variable)?;
            secret(&path, &raw.id, &key)?
        }
        (None, None, Some(file), None) => {
            let key = secret_of_file(&format!("{path}.key_file"), base, &file)?;
            secret(&path, &raw.id, &key)?
        }
        (None, None, None, Some(digest)) => {
            let digest = digest_of(&format!("{path}.sha256"), &digest)?;
            Secret::of_digest(&*raw.id, digest)
        }
        _ => {
            return Err(invalid(
                &path,
                "give exactly one of `key`, `key_env`, `key_file` and `sha256`",
            ));
        }
    });
    if let Some(tenant) = raw.tenant {
        key.insert("tenant".to_owned(), json!(tenant));
    }
    if let Some(disabled) = raw.disabled {
        key.insert("disabled".to_owned(), json!(disabled));
    }
    if let Some(text) = raw.expires_at {
        let at = OffsetDateTime::parse(&text, &Rfc3339).map_err(|_| {
            let message = "it must be a time such as \"2027-01-31T00:00:00Z\"";
            invalid(&format!("{path}.expires_at"), message)
        })?;
        let at = at.unix_timestamp().max(0);
        key.insert("expires_at".to_owned(), json!(at));
    }
    Ok(Value::Object(key))
}

/// The secret that a key's text gives: the key, or its digest.
fn secret(path: &str, id: &str, text: &str) -> Result<Secret, ConfigError> {
    match text.strip_prefix(DIGEST) {
        _ if text.is_empty() => Err(invalid(path, "the key is empty")),
        Some(digest) => Ok(Secret::of_digest(id, digest_of(path, digest)?)),
        None => Ok(Secret::new(id, text)),
    }
}

fn digest_of(key: &str, digits: &str) -> Result<[u8; 32], ConfigError> {
    hex_32(digits).ok_or_else(|| {
        let message = "it must be the 64 hexadecimal digits of the key's SHA-256";
        invalid(key, message)
    })
}

fn check_tenants(raw: Vec<RawTenant>) -> Result<Value, ConfigError> {
    let mut tenants = BTreeMap::new();
    for (index, tenant) in raw.into_iter().enumerate() {
        let path = format!("auth.tenants[{index}]");
        checked(&path, check_name("name", &tenant.name))?;
        let terms = Terms {
            requests_per_second: tenant.requests_per_second,
            requests_per_minute: tenant.requests_per_minute,
            requests_per_day: tenant.requests_per_day,
            tokens_per_minute: tenant.tokens_per_minute,
            tokens_per_day: tenant.tokens_per_day,
            max_concurrent: tenant.max_concurrent,
            ..Terms::default()
        };
        let mut table = check_terms(&path, &terms)?;
        table.insert("name".to_owned(), json!(tenant.name));
        let name = tenant.name;
        if tenants.insert(name.clone(), Value::Object(table)).is_some() {
            let message = format!("the tenant `{name}` is there twice");
            return Err(invalid(&format!("{path}.name"), message));
        }
    }
    Ok(tenants.into_values().collect())
}

fn check_users(raw: Vec<RawUser>, token_hours: u64) -> Result<LoginConfig, ConfigError> {
    if !(1..=MAX_TOKEN_HOURS).contains(&token_hours) {
        let message = format!("it must be from 1 to {MAX_TOKEN_HOURS}; it is {token_hours}");
        return Err(invalid("auth.token_hours", message));
    }
    let mut users: Vec<User> = Vec::new();
    for (index, mut raw) in raw.into_iter().enumerate() {
        let path = format!("auth.users[{index}]");
        checked(&path, check_name("name", &raw.name))?;
        if users.iter().any(|user| user.name == raw.name) {
            let message = format!("the user `{}` is there twice", raw.name);
            return Err(invalid(&format!("{path}.name"), message));
        }
        check_password_hash(&raw.password_hash)
            .map_err(|problem| invalid(&format!("{path}.password_hash"), problem))?;
        check_tenant(&path, raw.tenant.as_deref())?;
        let terms = raw.terms();
        checked(&path, terms.check())?;
        users.push(User {
            name: raw.name,
            password_hash: raw.password_hash,
            tenant: raw.tenant,
            terms,
        });
    }
    Ok(LoginConfig {
        users,
        lifetime: Duration::from_hours(token_hours),
    })
}

fn check_tenant(path: &str, tenant: Option<&str>) -> Result<(), ConfigError> {
    match tenant {
        Some(tenant) => checked(path, check_name("tenant", tenant)),
        None => Ok(()),
    }
}

/// Terms as the settings of the policy have them.
fn check_terms(path: &str, terms: &Terms) -> Result<Map<String, Value>, ConfigError> {
    checked(path, terms.check())?;
    match serde_json::to_value(terms) {
        Ok(Value::Object(table)) => Ok(table),
        Ok(_) => Ok(Map::new()),
        Err(error) => Err(invalid(path, error.to_string())),
    }
}

/// An error about a field of the table at `path`.
pub(super) fn checked(path: &str, result: Result<(), TermsError>) -> Result<(), ConfigError> {
    result.map_err(|error| {
        let key = format!("{path}.{}", error.field);
        // The field of a table of one field is the key itself.
        let key = match path.ends_with(&format!(".{}", error.field)) {
            true => path.to_owned(),
            false => key,
        };
        invalid(&key, error.problem)
    })
}
