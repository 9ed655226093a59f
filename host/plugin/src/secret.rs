//! Secrets that a policy can ask about, by the digests that they are compared by.

use std::fmt;

use sha2::{Digest, Sha256};

/// A secret by its name. Only the digest of its value is kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    /// The name that a policy is told.
    pub name: String,
    digest: [u8; 32],
}

impl Secret {
    /// A secret by its value.
    pub fn new(name: impl Into<String>, value: &str) -> Self {
        Self::of_digest(name, digest(value))
    }

    /// A secret by the SHA-256 of its value.
    pub fn of_digest(name: impl Into<String>, digest: [u8; 32]) -> Self {
        let name = name.into();
        Self { name, digest }
    }

    pub(crate) fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Secret({})", self.name)
    }
}

/// The digest by which secrets and credentials are compared.
pub(crate) fn digest(value: &str) -> [u8; 32] {
    Sha256::digest(value.as_bytes()).into()
}
