//! An issued key: what is kept of it, and its secrets.
//!
//! A secret is 32 bytes of the system's generator, so its SHA-256 is all that needs to be kept: nobody can try 2^256
//! values, and a slow hash such as argon2, which makes guessing a human's password dear, would make each request dear
//! and add nothing.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::terms::Terms;

/// Beginning of every secret, by which people and scanners of repositories know it.
const PREFIX: &str = "sk-mortise-";

const SECRET_BYTES: usize = 32;

/// SHA-256 of a secret.
pub(crate) type SecretDigest = [u8; 32];

/// The system gave no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system gave no random bytes")]
pub struct NoRandomness;

/// A key as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedKey {
    /// Id, by which logs name the caller.
    pub id: String,
    /// Account that usage is kept by.
    pub tenant: Option<String>,
    /// Seconds since 1970 at which it was issued.
    pub created_at: i64,
    /// Seconds since 1970 from which it is refused.
    pub expires_at: Option<i64>,
    /// True while it is refused, until the operator enables it again.
    pub disabled: bool,
    /// Seconds since 1970 at which it was revoked, for good.
    pub revoked_at: Option<i64>,
    /// Scopes and limits.
    pub terms: Terms,
    /// Digests of its secrets, the newest last.
    pub(crate) secrets: Vec<KeptSecret>,
}

/// A secret as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptSecret {
    /// SHA-256 in hexadecimal digits.
    pub(crate) sha256: String,
    pub(crate) created_at: i64,
    /// Seconds since 1970 from which it is refused, once another has replaced it.
    pub(crate) expires_at: Option<i64>,
}

/// Reason for which a key that is known is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyRefusal {
    Revoked,
    Disabled,
    Expired,
}

impl IssuedKey {
    /// Reason to refuse a caller who sent the secret of this digest, at `now`.
    pub(crate) fn refusal(&self, digest: &SecretDigest, now: i64) -> Option<KeyRefusal> {
        let sent = hexadecimal(digest);
        let same =
            |secret: &&KeptSecret| bool::from(secret.sha256.as_bytes().ct_eq(sent.as_bytes()));
        let ended = |at: Option<i64>| at.is_some_and(|at| at <= now);
        match self.secrets.iter().find(same) {
            _ if self.revoked_at.is_some() => Some(KeyRefusal::Revoked),
            _ if self.disabled => Some(KeyRefusal::Disabled),
            Some(secret) if !ended(secret.expires_at) && !ended(self.expires_at) => None,
            _ => Some(KeyRefusal::Expired),
        }
    }

    /// `active`, `disabled`, `expired` or `revoked`, at `now`.
    pub fn state(&self, now: i64) -> &'static str {
        match () {
            () if self.revoked_at.is_some() => "revoked",
            () if self.disabled => "disabled",
            () if self.expires_at.is_some_and(|at| at <= now) => "expired",
            () => "active",
        }
    }

    /// Secrets that are taken at `now`: more than one while a rotation overlaps.
    pub fn secrets_in_force(&self, now: i64) -> usize {
        let holds = |secret: &&KeptSecret| secret.expires_at.is_none_or(|at| at > now);
        self.secrets.iter().filter(holds).count()
    }
}

/// A new secret, and what is kept of it.
pub(crate) fn new_secret(now: i64) -> Result<(String, KeptSecret), NoRandomness> {
    let text = format!(
        "{PREFIX}{}",
        URL_SAFE_NO_PAD.encode(random::<SECRET_BYTES>()?)
    );
    let secret = KeptSecret {
        sha256: hexadecimal(&digest(&text)),
        created_at: now,
        expires_at: None,
    };
    Ok((text, secret))
}

/// Random bytes of the system's generator.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| NoRandomness)?;
    Ok(bytes)
}

pub(crate) fn digest(secret: &str) -> SecretDigest {
    Sha256::digest(secret.as_bytes()).into()
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
