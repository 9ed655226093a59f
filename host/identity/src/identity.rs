//! The caller of a request, as the host finds out by its credential.

use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use mortise_store::{Store, StoreError};
use serde_json::{Value, json};

use crate::issuer::{Bearer, Issuer, IssuerConfig, NotRecognised};
use crate::key::KeyRefusal;
use crate::keys::Keys;
use crate::login::{ISSUER, LoginConfig, LoginError, Logins, TokenKey};
use crate::token::{Token, TokenRefusal, looks_like_token};

/// Configuration of all ways by which callers are recognised.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdentityConfig {
    /// Issuers of tokens.
    pub issuers: Vec<IssuerConfig>,
    /// Users.
    pub login: LoginConfig,
}

/// Issuers and users in force.
struct Known {
    issuers: Vec<Arc<Issuer>>,
    login: LoginConfig,
}

/// Callers of a server.
pub struct CallerDirectory {
    keys: Keys,
    logins: Logins,
    known: RwLock<Arc<Known>>,
}

/// The keys of a token's issuer cannot be had, so nobody can say who bears it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the keys of the token's issuer cannot be had at present; try again")]
pub struct IssuerOutage;

impl std::fmt::Debug for CallerDirectory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Identity")
    }
}

impl CallerDirectory {
    /// The callers that a store and a configuration know.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub async fn open(store: Arc<dyn Store>, config: IdentityConfig) -> Result<Self, StoreError> {
        let logins = Logins::new(TokenKey::open(&store).await?);
        let issuers = config.issuers.into_iter().map(Issuer::new).map(Arc::new);
        let known = Known {
            issuers: issuers.collect(),
            login: config.login,
        };
        Ok(Self {
            keys: Keys::open(store).await?,
            logins,
            known: RwLock::new(Arc::new(known)),
        })
    }

    /// Issued keys.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Take note of what other hosts that share the store have changed.
    ///
    /// # Errors
    /// When it cannot be read; callers stay as they were known.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        self.keys.refresh().await
    }

    /// Take another configuration for the next request on.
    pub fn configure(&self, config: IdentityConfig) {
        let before = self.known();
        let issuer = |config: IssuerConfig| {
            let mut issuers = before.issuers.iter();
            let same = issuers.find(|issuer| issuer.config.issuer == config.issuer);
            Arc::new(match same {
                Some(issuer) => issuer.again(config),
                None => Issuer::new(config),
            })
        };
        let known = Known {
            issuers: config.issuers.into_iter().map(issuer).collect(),
            login: config.login,
        };
        let mut current = self.known.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(known);
    }

    fn known(&self) -> Arc<Known> {
        let known = self.known.read();
        Arc::clone(&known.unwrap_or_else(PoisonError::into_inner))
    }

    /// A token for whoever knows the password of a user.
    ///
    /// # Errors
    /// When the name or the password is wrong, or was tried too often.
    pub async fn log_in(
        &self,
        peer: IpAddr,
        name: &str,
        password: &str,
    ) -> Result<String, LoginError> {
        let known = self.known();
        let token = self.logins.log_in(&known.login, peer, name, password);
        token.await
    }

    /// True if there is a user of this name.
    pub fn has_user(&self, name: &str) -> bool {
        let known = self.known();
        known.login.users.iter().any(|user| user.name == name)
    }

    /// Facts for policies about the caller who sent these headers, names in lower case: whom its credential names, or
    /// the reason to refuse it. `None` where nothing is known but what the policies know themselves.
    ///
    /// # Errors
    /// When the keys of a token's issuer cannot be had.
    pub async fn recognise(
        &self,
        headers: &[(String, String)],
    ) -> Result<Option<Value>, IssuerOutage> {
        let known = self.known();
        let tokens = !known.issuers.is_empty() || !known.login.users.is_empty();
        let closed = || (tokens || self.keys.any()).then(|| json!({"closed": true}));
        let Some(credential) = credential(headers) else {
            return Ok(closed());
        };
        if let Some((key, refusal)) = self.keys.find(credential) {
            return Ok(Some(match refusal {
                None => json!({"caller": {
                    "id": key.id, "kind": "key", "tenant": key.tenant, "terms": key.terms,
                }}),
                Some(refusal) => refused_key(&key.id, refusal),
            }));
        }
        if !tokens || !looks_like_token(credential) {
            return Ok(closed());
        }
        match self.bearer(&known, credential).await {
            Ok(bearer) => Ok(Some(json!({"caller": {
                "id": bearer.id, "kind": "token", "tenant": bearer.tenant, "terms": bearer.terms,
            }}))),
            Err(NotRecognised::Refused(refusal)) => Ok(Some(refused(
                refusal.status,
                refusal.code,
                &refusal.message,
            ))),
            Err(NotRecognised::Outage) => Err(IssuerOutage),
        }
    }

    async fn bearer(&self, known: &Known, credential: &str) -> Result<Bearer, NotRecognised> {
        let token = Token::read(credential)?;
        let named = token.claims.text("iss").unwrap_or_default();
        if named == ISSUER && !known.login.users.is_empty() {
            return Ok(self.logins.recognise(&known.login, &token)?);
        }
        let issuer = known
            .issuers
            .iter()
            .find(|issuer| issuer.config.issuer == named);
        let Some(issuer) = issuer else {
            let message = "the token's issuer is not one that this server trusts";
            return Err(TokenRefusal::new("unknown_issuer", message).into());
        };
        issuer.recognise(&token).await
    }
}

fn refused_key(id: &str, refusal: KeyRefusal) -> Value {
    let (code, state) = match refusal {
        KeyRefusal::Revoked => ("revoked_api_key", "was revoked"),
        KeyRefusal::Disabled => ("disabled_api_key", "is disabled"),
        KeyRefusal::Expired => ("expired_api_key", "has expired"),
    };
    let message = format!("the API key `{id}` {state}; ask the operator of this server");
    refused(401, code, &message)
}

fn refused(status: u16, code: &str, message: &str) -> Value {
    json!({"refused": {"status": status, "code": code, "message": message}})
}

/// The credential that the caller sent, wherever the common clients put it: the same as the default policy reads.
fn credential(headers: &[(String, String)]) -> Option<&str> {
    let value = |name: &str| {
        let found = headers.iter().find(|(header, _)| header == name);
        found
            .map(|(_, value)| value.trim())
            .filter(|value| !value.is_empty())
    };
    let bearer = value("authorization").and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    let bearer = bearer.filter(|key| !key.is_empty());
    bearer
        .or_else(|| value("x-api-key"))
        .or_else(|| value("api-key"))
}
