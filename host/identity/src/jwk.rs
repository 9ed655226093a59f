//! Public keys of an issuer (RFC 7517), and signatures by them (RFC 7518, RFC 8037).
//!
//! Signatures are checked by ring, which is linked for TLS. A key says which algorithms it may check; a token's header
//! only chooses among those, so that no token can have a public key taken for a shared secret.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::signature::{
    self, ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use serde::Deserialize;

use crate::limits::{MAX_KEY_SET_BYTES, MAX_KEY_SET_KEYS};

/// Algorithms that are known. `none` is not one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "names of RFC 7518")]
pub enum Algorithm {
    HS256,
    HS384,
    HS512,
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
    EdDSA,
}

impl Algorithm {
    /// The algorithm of this name.
    pub fn of(name: &str) -> Option<Self> {
        serde_json::from_value(name.into()).ok()
    }

    /// True if who checks could sign as well.
    pub fn is_shared(self) -> bool {
        matches!(self, Self::HS256 | Self::HS384 | Self::HS512)
    }
}

/// Key by which signatures are checked.
#[derive(Clone)]
pub(crate) enum Verifier {
    Shared(Vec<u8>),
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// A key of a set.
#[derive(Clone)]
pub(crate) struct PublicKey {
    pub(crate) kid: Option<String>,
    /// The one algorithm that it is for, if its set says.
    algorithm: Option<Algorithm>,
    verifier: Verifier,
}

#[derive(Deserialize)]
struct RawSet {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct RawKey {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl PublicKey {
    /// A secret that is shared with the issuer.
    pub(crate) fn shared(secret: &[u8]) -> Self {
        Self {
            kid: None,
            algorithm: None,
            verifier: Verifier::Shared(secret.to_vec()),
        }
    }

    /// True if the key is one for `algorithm`.
    pub(crate) fn is_for(&self, algorithm: Algorithm) -> bool {
        use Algorithm::{
            ES256, ES384, EdDSA, HS256, HS384, HS512, PS256, PS384, PS512, RS256, RS384, RS512,
        };
        let suits = match &self.verifier {
            Verifier::Shared(_) => matches!(algorithm, HS256 | HS384 | HS512),
            Verifier::Rsa { .. } => {
                matches!(algorithm, RS256 | RS384 | RS512 | PS256 | PS384 | PS512)
            }
            Verifier::P256(_) => algorithm == ES256,
            Verifier::P384(_) => algorithm == ES384,
            Verifier::Ed25519(_) => algorithm == EdDSA,
        };
        suits && self.algorithm.is_none_or(|own| own == algorithm)
    }

    /// True if `signature` is that of `message`. No for an algorithm that the key is not for.
    pub(crate) fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        if !self.is_for(algorithm) {
            return false;
        }
        match &self.verifier {
            Verifier::Shared(secret) => {
                let digest = match algorithm {
                    Algorithm::HS384 => hmac::HMAC_SHA384,
                    Algorithm::HS512 => hmac::HMAC_SHA512,
                    _ => hmac::HMAC_SHA256,
                };
                hmac::verify(&hmac::Key::new(digest, secret), message, signature).is_ok()
            }
            Verifier::Rsa { n, e } => {
                let parameters = match algorithm {
                    Algorithm::RS384 => &signature::RSA_PKCS1_2048_8192_SHA384,
                    Algorithm::RS512 => &signature::RSA_PKCS1_2048_8192_SHA512,
                    Algorithm::PS256 => &signature::RSA_PSS_2048_8192_SHA256,
                    Algorithm::PS384 => &signature::RSA_PSS_2048_8192_SHA384,
                    Algorithm::PS512 => &signature::RSA_PSS_2048_8192_SHA512,
                    _ => &signature::RSA_PKCS1_2048_8192_SHA256,
                };
                let key = RsaPublicKeyComponents { n, e };
                key.verify(parameters, message, signature).is_ok()
            }
            Verifier::P256(point) => {
                let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
                key.verify(message, signature).is_ok()
            }
            Verifier::P384(point) => {
                let key = UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, point);
                key.verify(message, signature).is_ok()
            }
            Verifier::Ed25519(point) => {
                let key = UnparsedPublicKey::new(&ED25519, point);
                key.verify(message, signature).is_ok()
            }
        }
    }
}

/// The keys of a set that can check signatures. Others, such as secrets, which no set for everybody holds, and keys
/// for encryption, are passed over.
pub(crate) fn key_set(bytes: &[u8]) -> Result<Vec<PublicKey>, String> {
    if bytes.len() > MAX_KEY_SET_BYTES {
        return Err(format!("it has more than {MAX_KEY_SET_BYTES} bytes"));
    }
    let set: RawSet = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let keys = set.keys.into_iter().take(MAX_KEY_SET_KEYS);
    let keys: Vec<PublicKey> = keys.filter_map(public_key).collect();
    match keys.is_empty() {
        true => Err("it has no key that checks signatures".to_owned()),
        false => Ok(keys),
    }
}

fn public_key(value: serde_json::Value) -> Option<PublicKey> {
    let raw: RawKey = serde_json::from_value(value).ok()?;
    if raw
        .purpose
        .as_deref()
        .is_some_and(|purpose| purpose != "sig")
    {
        return None;
    }
    let algorithm = match &raw.alg {
        None => None,
        Some(name) => Some(Algorithm::of(name)?),
    };
    let bytes = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
    let point = |size: usize| {
        let (x, y) = (bytes(&raw.x)?, bytes(&raw.y)?);
        let fits = x.len() == size && y.len() == size;
        fits.then(|| [&[4][..], &x, &y].concat())
    };
    let verifier = match (raw.kty.as_str(), raw.crv.as_deref()) {
        ("RSA", _) => Verifier::Rsa {
            n: bytes(&raw.n)?,
            e: bytes(&raw.e)?,
        },
        ("EC", Some("P-256")) => Verifier::P256(point(32)?),
        ("EC", Some("P-384")) => Verifier::P384(point(48)?),
        ("OKP", Some("Ed25519")) => Verifier::Ed25519(bytes(&raw.x)?),
        _ => return None,
    };
    Some(PublicKey {
        kid: raw.kid,
        algorithm,
        verifier,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bytes(text: &str) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(text).expect("base64url")
    }

    /// Examples of RFC 7515 (A.1, A.3) and RFC 8037 (A.4): key, algorithm, signed text, signature.
    fn examples() -> Vec<(PublicKey, Algorithm, &'static str, &'static str)> {
        const JOE: &str = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
        let set = json!({"keys": [
            {"kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
             "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"},
            {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
        ]});
        let mut keys = key_set(set.to_string().as_bytes())
            .expect("keys")
            .into_iter();
        let secret = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
        let shared = PublicKey::shared(&bytes(secret));
        let leak = |header: &str| -> &'static str { format!("{header}.{JOE}").leak() };
        vec![
            (
                shared,
                Algorithm::HS256,
                leak("eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9"),
                "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
            ),
            (
                keys.next().expect("a key"),
                Algorithm::ES256,
                leak("eyJhbGciOiJFUzI1NiJ9"),
                "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
            ),
            (
                keys.next().expect("a key"),
                Algorithm::EdDSA,
                "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc",
                "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
            ),
        ]
    }

    #[test]
    fn the_examples_of_the_standards_hold_and_nothing_near_them_does() {
        let examples = examples();
        for (key, algorithm, text, signature) in &examples {
            let signature = bytes(signature);
            assert!(
                key.verifies(*algorithm, text.as_bytes(), &signature),
                "{algorithm:?}"
            );
            let mut other = signature.clone();
            other[7] ^= 1;
            assert!(!key.verifies(*algorithm, text.as_bytes(), &other));
            assert!(!key.verifies(*algorithm, &text.as_bytes()[1..], &signature));
            assert!(!key.verifies(*algorithm, text.as_bytes(), &[]));
            for (stranger, _, _, _) in examples
                .iter()
                .filter(|(_, other, _, _)| other != algorithm)
            {
                assert!(!stranger.is_for(*algorithm));
                assert!(!stranger.verifies(*algorithm, text.as_bytes(), &signature));
            }
        }
    }

    #[test]
    fn sets_that_check_nothing_are_refused() {
        for set in [
            "{}",
            "[]",
            r#"{"keys": []}"#,
            r#"{"keys": [{"kty": "oct", "k": "AAAA"}]}"#,
            r#"{"keys": [{"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA"}]}"#,
            r#"{"keys": [{"kty": "RSA", "n": "AAAA", "e": "AQAB", "use": "enc"}]}"#,
            r#"{"keys": [{"kty": "RSA", "n": "AAAA", "e": "AQAB", "alg": "none"}]}"#,
        ] {
            assert!(key_set(set.as_bytes()).is_err(), "{set}");
        }
        assert!(key_set(&vec![b' '; MAX_KEY_SET_BYTES + 1]).is_err());
    }
}
