//! Settings of a store.

use std::fmt;
use std::time::Duration;

/// Place of a bucket, and credentials for it.
#[derive(Debug, Clone)]
pub struct BucketConfig {
    /// Address of the service, such as `https://s3.eu-central-1.amazonaws.com`.
    pub endpoint: String,
    /// Name of the bucket.
    pub bucket: String,
    /// Region that requests are signed for.
    pub region: String,
    /// Beginning of all keys, without a slash at either end; empty is the whole bucket.
    pub prefix: String,
    /// The bucket is the first part of the path; if not, it is the first part of the host's name.
    pub path_style: bool,
    /// Credentials.
    pub credentials: StoreCredentials,
    /// Certificates (PEM) that are trusted in place of the public ones.
    pub authorities: Option<Vec<u8>>,
    /// Size from which on a file is sent in parts, and of each part.
    pub part_bytes: u64,
    /// Wait before the second attempt at a request; each further wait is twice as long.
    pub retry_delay: Duration,
}

/// Credentials of a store.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreCredentials {
    /// Id of the key.
    pub key_id: String,
    /// Key.
    pub secret: String,
    /// Token of credentials that expire.
    pub token: Option<String>,
}

impl fmt::Debug for StoreCredentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("StoreCredentials")
            .finish_non_exhaustive()
    }
}
