//! The `[store]` table: where state is kept, how much of it and for how long.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mortise_api::Retention;
use mortise_store::{PostgresConfig, StoreConfig};
use serde::Deserialize;

use super::variables::read;
use super::{ConfigError, invalid, variable_of, within};

/// Most that may be configured, in MiB: 16 TiB.
const MIB_MAX: usize = 16 << 20;
/// Most days that may be configured: ten years.
const DAYS_MAX: u64 = 3660;

/// The table as it is written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawStore {
    path: Option<PathBuf>,
    url: Option<String>,
    url_env: Option<String>,
    url_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    max_mib: usize,
    memory_mib: usize,
    tenant_max_mib: usize,
    tenant_max_records: usize,
    max_file_mib: usize,
    sync_answers: bool,
    retention_days: u64,
    idempotency_hours: u64,
}

impl Default for RawStore {
    fn default() -> Self {
        Self {
            path: None,
            url: None,
            url_env: None,
            url_file: None,
            ca_file: None,
            max_mib: 4096,
            memory_mib: 64,
            tenant_max_mib: 1024,
            tenant_max_records: 100_000,
            max_file_mib: 200,
            sync_answers: false,
            retention_days: 30,
            idempotency_hours: 24,
        }
    }
}

/// Store of the state, and times after which it is gone.
#[derive(Debug, Clone)]
pub struct StateConfig {
    /// The store, where it is a file or in memory.
    pub store: StoreConfig,
    /// The database that is the store in its place.
    pub database: Option<PostgresConfig>,
    /// Bytes of a file that is uploaded.
    pub max_file_bytes: u64,
    /// Times after which records are gone.
    pub retention: Retention,
}

impl StateConfig {
    /// True if state is there after the process.
    pub fn outlives(&self) -> bool {
        self.store.path.is_some() || self.database.is_some()
    }
}

impl RawStore {
    /// Settings of the store. `path` is that of the command line.
    pub(crate) fn check(
        self,
        base: &Path,
        path: Option<PathBuf>,
    ) -> Result<StateConfig, ConfigError> {
        let mib = |key: &str, mib: usize| within(key, mib, MIB_MAX).map(|mib| (mib as u64) << 20);
        let url = match path {
            // What the command line names is the store, whatever the file says.
            Some(_) => None,
            None => self.url(base)?,
        };
        let path = path.or_else(|| self.path.as_ref().map(|path| base.join(path)));
        if path.is_some() && url.is_some() {
            let problem = "state is in a file or in a database: give one of `path` and `url`";
            return Err(invalid("store.url", problem));
        }
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
        let owner_max_bytes = mib("store.tenant_max_mib", self.tenant_max_mib)?;
        let authorities = self.authorities(base, url.is_some())?;
        let sizes = [file, owner_max_bytes, records as u64];
        let database = url.map(|(key, url)| {
            let database = PostgresConfig::new(&url, authorities.as_deref(), sizes);
            database.map_err(|error| invalid(key, error.to_string()))
        });
        Ok(StateConfig {
            database: database.transpose()?,
            store: StoreConfig {
                max_bytes: if path.is_some() { file } else { memory },
                owner_max_bytes,
                owner_max_records: records as u64,
                sync_answers: self.sync_answers,
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

impl RawStore {
    /// The address of the database, and the key that gave it.
    fn url(&self, base: &Path) -> Result<Option<(&'static str, String)>, ConfigError> {
        match (&self.url, &self.url_env, &self.url_file) {
            (None, None, None) => Ok(None),
            (Some(url), None, None) => Ok(Some(("store.url", url.clone()))),
            (None, Some(variable), None) => {
                let url = variable_of("store.url_env", variable)?;
                Ok(Some(("store.url_env", url)))
            }
            (None, None, Some(file)) => {
                let url = read("store.url_file", &base.join(file))?;
                Ok(Some(("store.url_file", url.trim().to_owned())))
            }
            _ => {
                let problem = "give one of `url`, `url_env` and `url_file`";
                Err(invalid("store.url", problem))
            }
        }
    }

    /// The certificates of the authorities that the database's TLS is trusted by.
    fn authorities(&self, base: &Path, needed: bool) -> Result<Option<String>, ConfigError> {
        match &self.ca_file {
            None => Ok(None),
            Some(file) if needed => read("store.ca_file", &base.join(file)).map(Some),
            Some(_) => Err(invalid(
                "store.ca_file",
                "it is for the TLS of a database, and there is no `store.url`",
            )),
        }
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
