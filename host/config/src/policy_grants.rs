//! Grants of a policy's binding: `secrets` and `headers`, which it sees of callers, and `rewrite`.

use mortise_plugin::{HeaderGrant, Kind, Rewrite};

use super::{ConfigError, invalid};

/// Patterns of ids of API keys; all of them if the key is left out.
pub(super) fn check_secrets(
    key: &str,
    kind: Kind,
    raw: Option<Vec<String>>,
) -> Result<Vec<String>, ConfigError> {
    check_kind(key, kind, raw.is_some())?;
    let ids = raw.unwrap_or_else(|| vec!["*".to_owned()]);
    match ids.iter().position(String::is_empty) {
        Some(index) => Err(invalid(&format!("{key}[{index}]"), "it is empty")),
        None => Ok(ids),
    }
}

/// Names and patterns of request headers.
pub(super) fn check_headers(
    key: &str,
    kind: Kind,
    raw: Option<Vec<String>>,
) -> Result<HeaderGrant, ConfigError> {
    check_kind(key, kind, raw.is_some())?;
    let Some(raw) = raw else {
        return Ok(HeaderGrant::default());
    };
    let mut patterns = Vec::new();
    for (index, pattern) in raw.into_iter().enumerate() {
        let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if pattern.is_empty() || !pattern.bytes().all(sound) {
            let message = format!(
                "it must be the name of a header, or a pattern such as \"x-*\"; it is `{}`",
                pattern.escape_default()
            );
            return Err(invalid(&format!("{key}[{index}]"), message));
        }
        patterns.push(pattern.to_ascii_lowercase());
    }
    Ok(HeaderGrant {
        patterns,
        as_sent: false,
    })
}

/// Names of changes that a policy may make of requests; none if the key is left out.
pub(super) fn check_rewrite(
    key: &str,
    kind: Kind,
    raw: Option<Vec<String>>,
) -> Result<Vec<String>, ConfigError> {
    check_kind(key, kind, raw.is_some())?;
    let names = raw.unwrap_or_default();
    for (index, name) in names.iter().enumerate() {
        if !Rewrite::NAMES.contains(&&**name) {
            let message = format!(
                "it must be one of {}; it is `{}`",
                Rewrite::NAMES.map(|name| format!("\"{name}\"")).join(", "),
                name.escape_default()
            );
            return Err(invalid(&format!("{key}[{index}]"), message));
        }
    }
    Ok(names)
}

fn check_kind(key: &str, kind: Kind, given: bool) -> Result<(), ConfigError> {
    match given && kind != Kind::Policy {
        true => Err(invalid(key, "only a policy has it")),
        false => Ok(()),
    }
}
