//! The `[store]` table: where state is kept, how much of it and for how long.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mortise_api::Retention;
use mortise_store::StoreConfig;
use serde::Deserialize;

use super::{ConfigError, invalid, within};

/// Most that may be configured, in MiB: 16 TiB.
const MIB_MAX: usize = 16 << 20;
/// Most days that may be configured: ten years.
const DAYS_MAX: u64 = 3660;

/// The table as it is written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawStore {
    path: Option<PathBuf>,
    max_mib: usize,
    memory_mib: usize,
    tenant_max_mib: usize,
    tenant_max_records: usize,
    max_file_mib: usize,
    retention_days: u64,
    idempotency_hours: u64,
}

impl Default for RawStore {
    fn default() -> Self {
        Self {
            path: None,
            max_mib: 4096,
            memory_mib: 64,
            tenant_max_mib: 1024,
            tenant_max_records: 100_000,
            max_file_mib: 200,
            retention_days: 30,
            idempotency_hours: 24,
        }
    }
}

/// Store of the state, and times after which it is gone.
#[derive(Debug, Clone)]
pub struct StateConfig {
    /// The store.
    pub store: StoreConfig,
    /// Bytes of a file that is uploaded.
    pub max_file_bytes: u64,
    /// Times after which records are gone.
    pub retention: Retention,
}

impl RawStore {
    /// Settings of the store. `path` is that of the command line.
    pub(crate) fn check(
        self,
        base: &Path,
        path: Option<PathBuf>,
    ) -> Result<StateConfig, ConfigError> {
        let mib = |key: &str, mib: usize| within(key, mib, MIB_MAX).map(|mib| (mib as u64) << 20);
        let path = path.or_else(|| self.path.map(|path| base.join(path)));
        if path.as_deref().is_some_and(Path::is_dir) {
            return Err(invalid(
                "store.path",
                "it is a folder; name a file, which need not be there yet",
            ));
        }
        let (file, memory) = (
            mib("store.max_mib", self.max_mib)?,
            mib("store.memory_mib", self.memory_mib)?,
        );
        let records = within("store.tenant_max_records", self.tenant_max_records, 1 << 31)?;
        Ok(StateConfig {
            store: StoreConfig {
                max_bytes: if path.is_some() { file } else { memory },
                owner_max_bytes: mib("store.tenant_max_mib", self.tenant_max_mib)?,
                owner_max_records: records as u64,
                path,
            },
            max_file_bytes: mib("store.max_file_mib", self.max_file_mib)?,
            retention: Retention {
                answers: time("store.retention_days", self.retention_days, 24)?,
                idempotency: time("store.idempotency_hours", self.idempotency_hours, 1)?
                    .unwrap_or_default(),
            },
        })
    }
}

/// A time of so many hours each; 0 is none.
fn time(key: &str, count: u64, hours: u64) -> Result<Option<Duration>, ConfigError> {
    let most = DAYS_MAX * 24 / hours;
    match count {
        0 => Ok(None),
        count if count <= most => Ok(Some(Duration::from_secs(count * hours * 3600))),
        count => Err(invalid(
            key,
            format!("it must be from 0 to {most}; it is {count}"),
        )),
    }
}
