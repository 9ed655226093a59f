//! Ids of what requests make.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use http::request::Parts;
use sha2::{Digest as _, Sha256};

/// Identity of a request with an idempotency key. Ids are made of it alone, so that a request which is
/// answered again, since the server was killed before its answer was kept, makes nothing twice.
#[derive(Debug, Clone)]
pub(crate) struct Seed(pub(crate) Arc<[u8]>);

/// Makes the ids of one request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ids {
    seed: Option<Seed>,
    made: u64,
}

impl Ids {
    pub(crate) fn of(parts: &Parts) -> Self {
        Self {
            seed: parts.extensions.get::<Seed>().cloned(),
            made: 0,
        }
    }

    /// A new id.
    pub(crate) fn make(&mut self, prefix: &str) -> String {
        self.made += 1;
        let Some(Seed(seed)) = &self.seed else {
            return format!("{prefix}{}", uuid::Uuid::new_v4().simple());
        };
        let mut hash = Sha256::new();
        hash.update(seed);
        hash.update(prefix.as_bytes());
        hash.update(self.made.to_le_bytes());
        let hash = hash.finalize();
        let digits = hash.iter().take(16).map(|byte| format!("{byte:02x}"));
        format!("{prefix}{}", digits.collect::<String>())
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    elapsed.map_or(0, |elapsed| {
        i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX)
    })
}
