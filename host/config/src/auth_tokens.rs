//! `[[auth.jwt]]`: issuers of tokens that the server trusts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mortise_identity::{Algorithm, IssuerConfig, KeyPlace, KeyTimes, ScopeGrant, check_url};
use serde::Deserialize;

use super::auth_terms::terms_table;
use super::{ConfigError, invalid, variable_of};

/// Issuers at most.
const MAX_ISSUERS: usize = 32;
/// Longest difference of clocks that may be configured, in seconds.
const MAX_CLOCK_SKEW: u32 = 300;
/// Shortest secret that may be shared: as long as the digest of HS256.
const MIN_SHARED_BYTES: usize = 32;
/// Longest time that keys may be kept, in seconds: thirty days.
const MAX_KEY_AGE: u64 = 30 * 86_400;

/// An issuer as it is written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawIssuer {
    issuer: String,
    audience: Vec<String>,
    algorithms: Vec<String>,
    secret_env: Option<String>,
    jwks_file: Option<PathBuf>,
    jwks_url: Option<String>,
    discovery: bool,
    refresh_seconds: u64,
    max_age_seconds: u64,
    clock_skew_seconds: u32,
    required_claims: BTreeMap<String, String>,
    subject_claim: String,
    tenant_claim: Option<String>,
    scope_claim: String,
    grants: Vec<RawGrant>,
}

impl Default for RawIssuer {
    fn default() -> Self {
        Self {
            issuer: String::new(),
            audience: Vec::new(),
            algorithms: Vec::new(),
            secret_env: None,
            jwks_file: None,
            jwks_url: None,
            discovery: false,
            refresh_seconds: 300,
            max_age_seconds: 86_400,
            clock_skew_seconds: 60,
            required_claims: BTreeMap::new(),
            subject_claim: "sub".to_owned(),
            tenant_claim: None,
            scope_claim: "scope".to_owned(),
            grants: Vec::new(),
        }
    }
}

terms_table!(RawGrant {
    scope: Option<String>,
});

pub(super) fn check_issuers(
    raw: Vec<RawIssuer>,
    base: &Path,
) -> Result<Vec<IssuerConfig>, ConfigError> {
    if raw.len() > MAX_ISSUERS {
        let message = format!(
            "it has {} entries, at most {MAX_ISSUERS} are allowed",
            raw.len()
        );
        return Err(invalid("auth.jwt", message));
    }
    let mut issuers: Vec<IssuerConfig> = Vec::new();
    for (index, raw) in raw.into_iter().enumerate() {
        let path = format!("auth.jwt[{index}]");
        let issuer = check_issuer(&path, raw, base)?;
        if issuers.iter().any(|other| other.issuer == issuer.issuer) {
            let message = format!("the issuer `{}` is there twice", issuer.issuer);
            return Err(invalid(&format!("{path}.issuer"), message));
        }
        issuers.push(issuer);
    }
    Ok(issuers)
}

fn check_issuer(path: &str, raw: RawIssuer, base: &Path) -> Result<IssuerConfig, ConfigError> {
    let key = |name: &str| format!("{path}.{name}");
    if raw.issuer.is_empty() || raw.issuer == "mortise" {
        let message =
            "it is required, as the tokens have it in `iss`; `mortise` is the server itself";
        return Err(invalid(&key("issuer"), message));
    }
    if raw.audience.is_empty() {
        let message = "it is required: a token for another service is none for this one";
        return Err(invalid(&key("audience"), message));
    }
    if raw.clock_skew_seconds > MAX_CLOCK_SKEW {
        let message = format!("it must be at most {MAX_CLOCK_SKEW}");
        return Err(invalid(&key("clock_skew_seconds"), message));
    }
    for (name, value) in [
        ("refresh_seconds", raw.refresh_seconds),
        ("max_age_seconds", raw.max_age_seconds),
    ] {
        if !(1..=MAX_KEY_AGE).contains(&value) {
            return Err(invalid(
                &key(name),
                format!("it must be from 1 to {MAX_KEY_AGE}"),
            ));
        }
    }
    let keys = check_place(path, &raw, base)?;
    let algorithms = check_algorithms(path, &raw.algorithms, &keys)?;
    let mut grants = Vec::new();
    for (index, mut grant) in raw.grants.into_iter().enumerate() {
        let terms = grant.terms();
        let checked = terms.check();
        checked.map_err(|error| {
            let field = error.field;
            invalid(&format!("{path}.grants[{index}].{field}"), error.problem)
        })?;
        let scope = grant.scope;
        grants.push(ScopeGrant { scope, terms });
    }
    if grants.is_empty() {
        grants.push(ScopeGrant {
            scope: None,
            terms: mortise_identity::Terms::default(),
        });
    }
    Ok(IssuerConfig {
        issuer: raw.issuer,
        audiences: raw.audience,
        algorithms,
        keys,
        times: KeyTimes {
            refresh: Duration::from_secs(raw.refresh_seconds),
            max_age: Duration::from_secs(raw.max_age_seconds),
        },
        clock_skew: raw.clock_skew_seconds,
        required: raw.required_claims.into_iter().collect(),
        subject_claim: raw.subject_claim,
        tenant_claim: raw.tenant_claim,
        scope_claim: raw.scope_claim,
        grants,
    })
}

/// The one place of the keys.
fn check_place(path: &str, raw: &RawIssuer, base: &Path) -> Result<KeyPlace, ConfigError> {
    let key = |name: &str| format!("{path}.{name}");
    let url = |name: &str, url: &String| {
        check_url(url).map_err(|problem| invalid(&key(name), problem))?;
        Ok::<_, ConfigError>(url.clone())
    };
    match (
        &raw.secret_env,
        &raw.jwks_file,
        &raw.jwks_url,
        raw.discovery,
    ) {
        (Some(variable), None, None, false) => {
            let secret = variable_of(&key("secret_env"), variable)?.into_bytes();
            if secret.len() < MIN_SHARED_BYTES {
                let message = format!("the secret must have {MIN_SHARED_BYTES} bytes or more");
                return Err(invalid(&key("secret_env"), message));
            }
            Ok(KeyPlace::Shared(secret))
        }
        (None, Some(file), None, false) => Ok(KeyPlace::File(base.join(file))),
        (None, None, Some(address), false) => Ok(KeyPlace::Url(url("jwks_url", address)?)),
        (None, None, None, true) => Ok(KeyPlace::Discovery(url("issuer", &raw.issuer)?)),
        _ => Err(invalid(
            path,
            "give exactly one of `secret_env`, `jwks_file`, `jwks_url` and `discovery = true`",
        )),
    }
}

/// The algorithms that are taken: those that are listed, or those that suit the keys. A secret and public keys never
/// serve the same issuer.
fn check_algorithms(
    path: &str,
    names: &[String],
    keys: &KeyPlace,
) -> Result<Vec<Algorithm>, ConfigError> {
    let shared = matches!(keys, KeyPlace::Shared(_));
    if names.is_empty() {
        return Ok(match shared {
            true => vec![Algorithm::HS256],
            false => vec![Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA],
        });
    }
    let read = names.iter().enumerate().map(|(index, name)| {
        let key = format!("{path}.algorithms[{index}]");
        let algorithm = Algorithm::of(name).ok_or_else(|| {
            let known = "HS256, HS384, HS512, RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 and EdDSA";
            invalid(&key, format!("`{name}` is not known; known are {known}"))
        })?;
        match algorithm.is_shared() == shared {
            true => Ok(algorithm),
            false if shared => Err(invalid(&key, "a shared secret has the algorithms HS256, HS384 and HS512")),
            false => Err(invalid(&key, "public keys have no algorithm of shared secrets")),
        }
    });
    read.collect()
}
