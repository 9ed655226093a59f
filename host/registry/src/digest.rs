//! Digests of contents: SHA-256, which every registry has.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Digest of a content, written `sha256:` and 64 hexadecimal digits in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// A text is no digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no digest; it must be `sha256:` and 64 hexadecimal digits")]
pub struct DigestError {
    text: String,
}

const ALGORITHM: &str = "sha256:";

impl Digest {
    /// The digest of a content.
    pub fn of(content: &[u8]) -> Self {
        let digits = Sha256::digest(content);
        let digits: String = digits.iter().map(|byte| format!("{byte:02x}")).collect();
        Self(format!("{ALGORITHM}{digits}"))
    }

    /// The text with its algorithm.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The hexadecimal digits alone.
    pub fn digits(&self) -> &str {
        &self.0[ALGORITHM.len()..]
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let digits = text.strip_prefix(ALGORITHM).unwrap_or_default();
        let fits = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match digits.len() == 64 && digits.bytes().all(fits) {
            true => Ok(Self(text.to_owned())),
            false => Err(DigestError {
                text: text
                    .chars()
                    .take(100)
                    .flat_map(char::escape_default)
                    .collect(),
            }),
        }
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
