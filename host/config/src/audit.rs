//! The `[audit]` table: where it is recorded who did what.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{ConfigError, invalid};

/// The `[audit]` table as it is written.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawAudit {
    file: Option<PathBuf>,
    store: bool,
    required: bool,
    reads: bool,
}

/// The audit log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditConfig {
    /// A file of lines.
    pub file: Option<PathBuf>,
    /// The store keeps the audit log, too.
    pub store: bool,
    /// Admin requests, logins, reloads and starts that cannot be recorded are refused.
    pub required: bool,
    /// Admin requests that change nothing are recorded too.
    pub reads: bool,
}

impl AuditConfig {
    /// True if there is an audit log.
    pub fn is_kept(&self) -> bool {
        self.store || self.file.is_some()
    }
}

impl RawAudit {
    /// Settings of the log. A store that does not outlive the server would keep nothing.
    pub(crate) fn check(self, base: &Path, outlives: bool) -> Result<AuditConfig, ConfigError> {
        if self.store && !outlives {
            return Err(invalid(
                "audit.store",
                "the store is in memory and ends with the server; give it a file with `store.path`, or the log one with \
                 `audit.file`",
            ));
        }
        let config = AuditConfig {
            file: self.file.map(|file| base.join(file)),
            store: self.store,
            required: self.required,
            reads: self.reads,
        };
        for (key, asked) in [("required", config.required), ("reads", config.reads)] {
            if asked && !config.is_kept() {
                return Err(invalid(
                    &format!("audit.{key}"),
                    "there is no audit log; give it a place with `audit.file` or `audit.store`",
                ));
            }
        }
        Ok(config)
    }
}
