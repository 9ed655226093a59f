//! Users who log in with a password, and the tokens that they get.
//!
//! A human's password can be guessed, so it is kept as argon2id with the parameters in its own text (PHC), and tries
//! are few: so many an address in a minute, so many at once on the server.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mortise_store::{Change, Key, Record, RecordKind, SERVER, Store, StoreError};
use ring::hmac;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::issuer::Bearer;
use crate::jwk::{Algorithm, PublicKey};
use crate::key::{NoRandomness, random};
use crate::keys::now;
use crate::limits::{
    MAX_LOGIN_ADDRESSES, MAX_LOGIN_BYTES, MAX_LOGINS_AT_ONCE, MAX_LOGINS_PER_MINUTE,
};
use crate::terms::Terms;
use crate::token::{Token, TokenRefusal};

/// `iss` and `aud` of the server's own tokens.
pub(crate) const ISSUER: &str = "mortise";

const MINUTE: Duration = Duration::from_secs(60);

/// Hash that a password is checked against where there is no such user, so that the time does not tell. Nobody knows
/// a password for it: its bytes were drawn, not computed.
const NOBODY: &str = "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5LWF0LWFsbC4uLg$\
                      n3m7kVwq0S8i1c9Zc6wqjv2l4Yq0Jt7b9hUe5o1xT3A";

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Name.
    pub name: String,
    /// Argon2 of the password, in PHC's form.
    pub password_hash: String,
    /// Account that usage is kept by.
    pub tenant: Option<String>,
    /// Scopes and limits.
    pub terms: Terms,
}

/// Configuration of logins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoginConfig {
    /// Users; nobody logs in if there are none.
    pub users: Vec<User>,
    /// Time for which a token holds.
    pub lifetime: Duration,
}

/// Failure of a login.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// No user has this name and this password.
    #[error("the user name or the password is wrong")]
    Wrong,
    /// The address has tried too often.
    #[error("too many logins from your address; try again in a minute")]
    TooMany {
        /// Seconds until the next may be tried.
        retry_after: u64,
    },
    /// The number of passwords that are checked at once has reached its limit.
    #[error("the server checks as many passwords as it may at once; try again")]
    Busy,
    /// The server has no users.
    #[error("this server has no users; ask its operator for an API key")]
    NoUsers,
}

/// Password that cannot be hashed.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    /// The password is empty or too long.
    #[error("a password has 1 to {MAX_LOGIN_BYTES} bytes")]
    Length,
    /// The system gave no salt.
    #[error(transparent)]
    Random(#[from] NoRandomness),
    /// The hash failed.
    #[error("the password cannot be hashed: {0}")]
    Hash(String),
}

/// Argon2id of a password, in PHC's form, with the parameters of RFC 9106's second choice scaled as OWASP has it:
/// 19 MiB, two passes.
///
/// # Errors
/// When the password is empty or too long, or there is no salt.
pub fn hash_password(password: &str) -> Result<String, PasswordError> {
    if !(1..=MAX_LOGIN_BYTES).contains(&password.len()) {
        return Err(PasswordError::Length);
    }
    let config = argon2::Config {
        variant: argon2::Variant::Argon2id,
        version: argon2::Version::Version13,
        mem_cost: 19_456,
        time_cost: 2,
        lanes: 1,
        ..argon2::Config::default()
    };
    let hashed = argon2::hash_encoded(password.as_bytes(), &random::<16>()?, &config);
    hashed.map_err(|error| PasswordError::Hash(error.to_string()))
}

/// Check that a text is a hash of a password, without knowing one.
///
/// # Errors
/// When it is not.
pub fn check_password_hash(text: &str) -> Result<(), String> {
    if !text.starts_with("$argon2id$") {
        return Err(
            "it must be argon2id in PHC's form; `mortise keys password` makes one".to_owned(),
        );
    }
    let read = argon2::verify_encoded(text, b"");
    read.map(drop).map_err(|error| error.to_string())
}

/// Key by which the server signs its tokens.
pub(crate) struct TokenKey([u8; 32]);

impl TokenKey {
    /// Read the signing key from the store, or make one if the store has none.
    pub(crate) async fn open(store: &Arc<dyn Store>) -> Result<Self, StoreError> {
        let address = Key::new(&Arc::from(SERVER), RecordKind::SigningKey, "login");
        let kept = store.get(address.clone()).await?;
        if let Some(bytes) = kept.and_then(|record| record.body.try_into().ok()) {
            return Ok(Self(bytes));
        }
        let unavailable = |error: NoRandomness| StoreError::Unavailable(error.to_string());
        let bytes = random::<32>().map_err(unavailable)?;
        let record = Record {
            key: address.clone(),
            created: now(),
            expires: None,
            open: false,
            body: bytes.to_vec(),
        };
        match store.commit(vec![Change::Create(record)]).await {
            Ok(()) => Ok(Self(bytes)),
            // Another host that shares the store has made one just now.
            Err(StoreError::Conflict) => {
                let kept = store.get(address).await?;
                let bytes = kept.and_then(|record| record.body.try_into().ok());
                bytes.map(Self).ok_or(StoreError::Conflict)
            }
            Err(error) => Err(error),
        }
    }

    fn sign(&self, user: &str, lifetime: Duration) -> String {
        let issued = now();
        let lifetime = i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX);
        let header = json!({"alg": "HS256", "typ": "JWT"});
        let claims = json!({
            "iss": ISSUER,
            "aud": ISSUER,
            "sub": user,
            "iat": issued,
            "exp": issued.saturating_add(lifetime),
        });
        let part = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(&claims));
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let signature = hmac::sign(&key, signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// Logins of a server.
pub(crate) struct Logins {
    key: TokenKey,
    places: Semaphore,
    tries: Mutex<HashMap<IpAddr, (Instant, u32)>>,
}

impl Logins {
    pub(crate) fn new(key: TokenKey) -> Self {
        Self {
            key,
            places: Semaphore::new(MAX_LOGINS_AT_ONCE),
            tries: Mutex::default(),
        }
    }

    /// A token for whoever knows the password of a user.
    pub(crate) async fn log_in(
        &self,
        config: &LoginConfig,
        peer: IpAddr,
        name: &str,
        password: &str,
    ) -> Result<String, LoginError> {
        if config.users.is_empty() {
            return Err(LoginError::NoUsers);
        }
        self.count(peer)?;
        let _place = self.places.try_acquire().map_err(|_| LoginError::Busy)?;
        let user = config.users.iter().find(|user| user.name == name);
        let hash = user.map_or(NOBODY, |user| &user.password_hash).to_owned();
        let fits = (1..=MAX_LOGIN_BYTES).contains(&password.len());
        let password = if fits {
            password.to_owned()
        } else {
            String::new()
        };
        let checking = tokio::task::spawn_blocking(move || {
            argon2::verify_encoded(&hash, password.as_bytes()).unwrap_or(false)
        });
        let same = checking.await.unwrap_or(false);
        match user {
            Some(user) if same && fits => Ok(self.key.sign(&user.name, config.lifetime)),
            _ => Err(LoginError::Wrong),
        }
    }

    /// Count a try of an address.
    fn count(&self, peer: IpAddr) -> Result<(), LoginError> {
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        if tries.len() >= MAX_LOGIN_ADDRESSES && !tries.contains_key(&peer) {
            tries.retain(|_, (since, _)| since.elapsed() < MINUTE);
            if tries.len() >= MAX_LOGIN_ADDRESSES {
                return Err(LoginError::Busy);
            }
        }
        let (since, count) = tries.entry(peer).or_insert((Instant::now(), 0));
        if since.elapsed() >= MINUTE {
            (*since, *count) = (Instant::now(), 0);
        }
        if *count >= MAX_LOGINS_PER_MINUTE {
            let left = MINUTE.saturating_sub(since.elapsed());
            return Err(LoginError::TooMany {
                retry_after: left.as_secs().saturating_add(1),
            });
        }
        *count += 1;
        Ok(())
    }

    /// Bearer of a token of this server: a user that there still is, with the terms of today.
    pub(crate) fn recognise(
        &self,
        config: &LoginConfig,
        token: &Token<'_>,
    ) -> Result<Bearer, TokenRefusal> {
        let invalid = |message: &str| TokenRefusal::new("invalid_token", message);
        let key = PublicKey::shared(&self.key.0);
        let ours = token.algorithm == Algorithm::HS256;
        if !ours || !key.verifies(token.algorithm, token.signed, &token.signature) {
            return Err(invalid("the token's signature does not hold"));
        }
        token.claims.check_times(now(), 0)?;
        if token.claims.text("aud") != Some(ISSUER) {
            return Err(invalid("the token's `aud` is for somebody else"));
        }
        let name = token.claims.text("sub");
        let user = config
            .users
            .iter()
            .find(|user| Some(user.name.as_str()) == name);
        let user =
            user.ok_or_else(|| invalid("the token's user is no longer one of this server"))?;
        Ok(Bearer {
            id: format!("user {}", user.name),
            tenant: user.tenant.clone(),
            terms: user.terms.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobodys_hash_is_checked_as_a_users_is() {
        let hash = hash_password("sesame").expect("a hash");
        let parameters = |text: &str| text.split('$').take(4).collect::<Vec<_>>().join("$");
        assert_eq!(parameters(NOBODY), parameters(&hash), "the same work");
        assert_eq!(argon2::verify_encoded(NOBODY, b"sesame").ok(), Some(false));
        assert_eq!(argon2::verify_encoded(&hash, b"sesame").ok(), Some(true));
        assert!(check_password_hash(NOBODY).is_ok() && check_password_hash(&hash).is_ok());
        for text in [
            "",
            "sesame",
            "$2b$12$abc",
            "$argon2id$v=19$m=8",
            "$argon2i$v=19$m=19456,t=2,p=1$YQ$YQ",
        ] {
            assert!(check_password_hash(text).is_err(), "{text}");
        }
        assert!(hash_password("").is_err());
    }
}
