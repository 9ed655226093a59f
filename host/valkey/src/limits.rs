//! Bounds of what a Valkey server can cost, and of what is kept for it.

use std::time::Duration;

/// Time for a connection: name, TCP, TLS, authentication, scripts.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Time between two tries to reach a server that is lost.
pub const RETRY_EVERY: Duration = Duration::from_millis(500);

/// Changes kept for a server that is lost, for each ledger; of buckets beyond them nothing is told.
pub const MAX_UNTOLD: usize = 100_000;

/// Longest name of a bucket.
pub const MAX_BUCKET_NAME_BYTES: usize = 256;

/// Time after the end of its lease at which a host is forgotten.
pub const FORGET_HOST: Duration = Duration::from_secs(600);

/// Time for which places are kept that nobody takes or gives back.
pub const KEEP_PLACES: Duration = Duration::from_secs(2 * 24 * 3600);
