//! An issuer of tokens that the server trusts, and what its claims grant.

use std::sync::Arc;

use crate::jwk::{Algorithm, PublicKey};
use crate::key_source::{KeyPlace, KeySource, KeyTimes, Outage};
use crate::keys::now;
use crate::terms::{Terms, check_name};
use crate::token::{Claims, Token, TokenRefusal};

/// Longest `sub` that names a caller.
const MAX_SUBJECT_BYTES: usize = 256;

/// Terms of bearers whose tokens have a scope; of all bearers without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopeGrant {
    /// The scope.
    pub scope: Option<String>,
    /// Scopes and limits.
    pub terms: Terms,
}

/// Configuration of an issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerConfig {
    /// `iss` of its tokens, to the letter.
    pub issuer: String,
    /// `aud` that tokens must name, one of these.
    pub audiences: Vec<String>,
    /// Algorithms that are taken.
    pub algorithms: Vec<Algorithm>,
    /// Place of its keys.
    pub keys: KeyPlace,
    /// Times of its keys.
    pub times: KeyTimes,
    /// Seconds by which its clock may differ from this one's.
    pub clock_skew: u32,
    /// Claims that must be there, and one of the values that each must have.
    pub required: Vec<(String, String)>,
    /// Claim that names the caller.
    pub subject_claim: String,
    /// Claim that names the tenant, if one does.
    pub tenant_claim: Option<String>,
    /// Claim that lists scopes.
    pub scope_claim: String,
    /// Terms by scope; the first that fits holds.
    pub grants: Vec<ScopeGrant>,
}

/// Bearer of a good token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bearer {
    pub(crate) id: String,
    pub(crate) tenant: Option<String>,
    pub(crate) terms: Terms,
}

/// Reason for which nobody is recognised by a token.
pub(crate) enum NotRecognised {
    Refused(TokenRefusal),
    /// The issuer's keys cannot be had.
    Outage,
}

impl From<TokenRefusal> for NotRecognised {
    fn from(refusal: TokenRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Outage> for NotRecognised {
    fn from(_: Outage) -> Self {
        Self::Outage
    }
}

/// An issuer with its keys.
pub(crate) struct Issuer {
    pub(crate) config: IssuerConfig,
    keys: Arc<KeySource>,
}

impl Issuer {
    pub(crate) fn new(config: IssuerConfig) -> Self {
        Self {
            keys: KeySource::new(config.keys.clone(), config.times),
            config,
        }
    }

    /// Another configuration. Keys that were read stay if they come from the same place.
    pub(crate) fn again(&self, config: IssuerConfig) -> Self {
        let same = config.keys == self.config.keys && config.times == self.config.times;
        match same {
            true => Self {
                keys: Arc::clone(&self.keys),
                config,
            },
            false => Self::new(config),
        }
    }

    /// Check a token, and say who bears it.
    pub(crate) async fn recognise(&self, token: &Token<'_>) -> Result<Bearer, NotRecognised> {
        let config = &self.config;
        if !config.algorithms.contains(&token.algorithm) {
            let message = "the token's algorithm is not one that this server takes of its issuer";
            return Err(TokenRefusal::new("unsupported_algorithm", message).into());
        }
        let mut keys = self.keys.keys().await?;
        if !keys.iter().any(|key| names(token, key)) {
            // It may have been signed by a key that is newer than the set.
            keys = self.keys.again().await.unwrap_or(keys);
        }
        let mut fitting = keys.iter().filter(|key| names(token, key));
        let first = fitting.next().ok_or_else(|| {
            let message = "the token was signed by a key that its issuer does not publish";
            TokenRefusal::new("unknown_token_key", message)
        })?;
        if token.kid.is_none() && fitting.next().is_some() {
            let message = "the token names no key by `kid`, and its issuer has several";
            return Err(TokenRefusal::new("unknown_token_key", message).into());
        }
        if !first.verifies(token.algorithm, token.signed, &token.signature) {
            let message = "the token's signature does not hold";
            return Err(TokenRefusal::new("invalid_token", message).into());
        }
        self.check(&token.claims)?;
        Ok(self.bearer(&token.claims)?)
    }

    fn check(&self, claims: &Claims) -> Result<(), TokenRefusal> {
        let config = &self.config;
        claims.check_times(now(), i64::from(config.clock_skew))?;
        let audiences = claims.texts("aud");
        if !audiences
            .iter()
            .any(|one| config.audiences.iter().any(|own| own == one))
        {
            let message = "the token's `aud` is for somebody else";
            return Err(TokenRefusal::new("wrong_audience", message));
        }
        for (name, value) in &config.required {
            if !claims.texts(name).contains(&value.as_str()) {
                let message = format!(
                    "the token's claim `{name}` does not have the value that this server requires"
                );
                return Err(TokenRefusal::new("missing_claim", message));
            }
        }
        Ok(())
    }

    fn bearer(&self, claims: &Claims) -> Result<Bearer, TokenRefusal> {
        let config = &self.config;
        let missing = |name: &str| {
            let message =
                format!("the token's claim `{name}` is missing, or no name that this server takes");
            TokenRefusal::new("missing_claim", message)
        };
        let subject = claims.text(&config.subject_claim);
        let fits = |subject: &&str| {
            let printable = !subject.chars().any(char::is_control);
            (1..=MAX_SUBJECT_BYTES).contains(&subject.len()) && printable
        };
        let subject = subject.filter(fits);
        let subject = subject.ok_or_else(|| missing(&config.subject_claim))?;
        let tenant = match &config.tenant_claim {
            None => None,
            Some(name) => {
                let tenant = claims.text(name);
                let tenant = tenant.filter(|tenant| check_name("tenant", tenant).is_ok());
                Some(tenant.ok_or_else(|| missing(name))?.to_owned())
            }
        };
        let scopes = claims.words(&config.scope_claim);
        let fits = |grant: &&ScopeGrant| {
            let scope = grant.scope.as_deref();
            scope.is_none_or(|scope| scopes.contains(&scope))
        };
        let Some(grant) = config.grants.iter().find(fits) else {
            return Err(TokenRefusal {
                status: 403,
                code: "insufficient_scope",
                message: format!(
                    "no scope of the token's `{}` is one that this server serves",
                    config.scope_claim
                ),
            });
        };
        Ok(Bearer {
            id: format!("{} {subject}", config.issuer),
            tenant,
            terms: grant.terms.clone(),
        })
    }
}

/// True if a token may have been signed by a key: it has the key's id, and the key is one for the token's algorithm.
fn names(token: &Token<'_>, key: &PublicKey) -> bool {
    let named = match (&token.kid, &key.kid) {
        (Some(wanted), Some(own)) => wanted == own,
        // A set of one key may go without an id; one with ids is asked by them.
        (Some(_), None) => token.algorithm.is_shared(),
        (None, _) => true,
    };
    named && key.is_for(token.algorithm)
}
