//! The `[health]` table: when a part of the server counts as failed, and what follows from it.

use std::time::Duration;

use serde::Deserialize;

use super::{ConfigError, invalid};

/// Parts of the server that are checked, as `/ready` names them.
const PARTS: [&str; 8] = [
    "engine", "models", "aliases", "plugins", "store", "disk", "audit", "counters",
];

/// The table as it is written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawHealthTable {
    engine_stall_seconds: u64,
    min_free_mib: u64,
    required: Vec<String>,
}

impl Default for RawHealthTable {
    fn default() -> Self {
        Self {
            engine_stall_seconds: 120,
            min_free_mib: 256,
            required: vec!["engine".to_owned(), "audit".to_owned()],
        }
    }
}

/// Health of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthConfig {
    /// Time after which a step of an engine counts as stuck.
    pub engine_stall: Duration,
    /// Bytes that must be free where state and logs are kept.
    pub min_free_bytes: u64,
    /// Parts without which no new work is wanted.
    pub required: Vec<String>,
}

impl RawHealthTable {
    /// Time after which a step of an engine counts as stuck.
    pub(crate) fn stall(&self) -> Duration {
        Duration::from_secs(self.engine_stall_seconds)
    }

    pub(crate) fn check(self) -> Result<HealthConfig, ConfigError> {
        const DAY: u64 = 24 * 3600;
        if !(1..=DAY).contains(&self.engine_stall_seconds) {
            return Err(invalid(
                "health.engine_stall_seconds",
                format!(
                    "it must be from 1 to {DAY}; it is {}",
                    self.engine_stall_seconds
                ),
            ));
        }
        let unknown = |name: &&String| !PARTS.contains(&name.as_str());
        if let Some(name) = self.required.iter().find(unknown) {
            return Err(invalid(
                "health.required",
                format!(
                    "`{name}` is no part that is checked; those are {}",
                    PARTS.join(", ")
                ),
            ));
        }
        Ok(HealthConfig {
            engine_stall: Duration::from_secs(self.engine_stall_seconds),
            min_free_bytes: self.min_free_mib.saturating_mul(1 << 20),
            required: self.required,
        })
    }
}
