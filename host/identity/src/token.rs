//! A signed token (RFC 7515, compact) and its claims (RFC 7519): read strictly, believed only when the signature holds.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::jwk::Algorithm;
use crate::limits::MAX_TOKEN_BYTES;

/// Reason for which a token is refused: a code, and what its bearer is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenRefusal {
    pub(crate) status: u16,
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl TokenRefusal {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status: 401,
            code,
            message: message.into(),
        }
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// A token that was read and not checked yet.
pub(crate) struct Token<'a> {
    pub(crate) algorithm: Algorithm,
    pub(crate) kid: Option<String>,
    pub(crate) claims: Claims,
    /// Bytes that the signature is over.
    pub(crate) signed: &'a [u8],
    pub(crate) signature: Vec<u8>,
}

/// True if a credential has the form of a token: its header is a JSON object.
pub(crate) fn looks_like_token(credential: &str) -> bool {
    credential.starts_with("eyJ") && credential.bytes().filter(|byte| *byte == b'.').count() == 2
}

impl<'a> Token<'a> {
    /// Read a token.
    pub(crate) fn read(text: &'a str) -> Result<Self, TokenRefusal> {
        let malformed = |problem: &str| TokenRefusal::new("invalid_token", problem);
        if text.len() > MAX_TOKEN_BYTES {
            let problem = format!("the token has more than {MAX_TOKEN_BYTES} bytes");
            return Err(malformed(&problem));
        }
        let parts = text.rsplit_once('.').and_then(|(signed, signature)| {
            let (header, claims) = signed.split_once('.')?;
            let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
            Some((
                signed,
                decoded(header)?,
                decoded(claims)?,
                decoded(signature)?,
            ))
        });
        let Some((signed, header, claims, signature)) = parts else {
            return Err(malformed("the token is not three parts in base64url"));
        };
        let header: Header = serde_json::from_slice(&header)
            .map_err(|_| malformed("the token's header cannot be read"))?;
        if header.crit.is_some() {
            return Err(malformed(
                "the token has `crit`, which this server does not know",
            ));
        }
        let algorithm = Algorithm::of(&header.alg).ok_or_else(|| {
            let message = "the token's algorithm is not one that this server takes";
            TokenRefusal::new("unsupported_algorithm", message)
        })?;
        let claims = serde_json::from_slice(&claims)
            .map_err(|_| malformed("the token's claims are not a JSON object"))?;
        Ok(Self {
            algorithm,
            kid: header.kid,
            claims: Claims(claims),
            signed: signed.as_bytes(),
            signature,
        })
    }
}

/// Claims of a token.
#[derive(Debug, Clone)]
pub(crate) struct Claims(pub(crate) Map<String, Value>);

impl Claims {
    /// A text.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// Texts of a list, or of one text as a list of one.
    pub(crate) fn texts(&self, name: &str) -> Vec<&str> {
        match self.0.get(name) {
            Some(Value::String(text)) => vec![text],
            Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// Scopes: words of a text, or texts of a list.
    pub(crate) fn words(&self, name: &str) -> Vec<&str> {
        let texts = self.texts(name);
        texts.into_iter().flat_map(str::split_whitespace).collect()
    }

    /// Check the times against `now`, with `skew` seconds to spare. A time that is no number is refused: a check that
    /// passes over it could be switched off by whoever makes the token.
    pub(crate) fn check_times(&self, now: i64, skew: i64) -> Result<(), TokenRefusal> {
        let Some(expires) = self.time("exp")? else {
            let message = "the token has no `exp`; this server takes none without an end";
            return Err(TokenRefusal::new("invalid_token", message));
        };
        #[allow(clippy::cast_precision_loss, reason = "seconds are far below 2^52")]
        let (now, skew) = (now as f64, skew as f64);
        if expires + skew <= now {
            let message = "the token has expired; get another from its issuer";
            return Err(TokenRefusal::new("expired_token", message));
        }
        for name in ["nbf", "iat"] {
            if self.time(name)?.is_some_and(|at| at > now + skew) {
                let message = format!("the token's `{name}` lies in the future");
                return Err(TokenRefusal::new("token_not_yet_valid", message));
            }
        }
        Ok(())
    }

    fn time(&self, name: &str) -> Result<Option<f64>, TokenRefusal> {
        match self.0.get(name) {
            None => Ok(None),
            Some(value) => value.as_f64().map(Some).ok_or_else(|| {
                let message = format!("the token's `{name}` is not a number of seconds");
                TokenRefusal::new("invalid_token", message)
            }),
        }
    }
}
