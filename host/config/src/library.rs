//! The `[library]` table: models that are pulled and uploaded while the server runs.

use std::path::{Path, PathBuf};

use mortise_library::{LibraryCallers, LibraryConfig};
use serde::Deserialize;

use super::hub::hub_config_with;
use super::object_store::RawObjectStore;
use super::{ConfigError, invalid};

/// The table as it is written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawLibrary {
    folder: Option<PathBuf>,
    max_mib: u64,
    max_file_mib: u64,
    min_free_mib: u64,
    api: RawAccess,
    object_store: Option<RawObjectStore>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawAccess {
    #[default]
    Off,
    Operators,
    Callers,
}

impl Default for RawLibrary {
    fn default() -> Self {
        Self {
            folder: None,
            max_mib: 0,
            max_file_mib: 65_536,
            min_free_mib: 1024,
            api: RawAccess::Off,
            object_store: None,
        }
    }
}

impl RawLibrary {
    /// True if models may come while the server runs.
    pub(super) fn is_enabled(&self) -> bool {
        self.folder.is_some()
    }

    pub(super) fn check(
        self,
        base: &Path,
        has_admin: bool,
    ) -> Result<Option<LibraryConfig>, ConfigError> {
        if self.max_file_mib == 0 {
            let problem = "it must be at least 1; it is 0";
            return Err(invalid("library.max_file_mib", problem));
        }
        let Some(folder) = self.folder else {
            if self.object_store.is_some() {
                let problem =
                    "the models of the library are kept there as well; give `library.folder`";
                return Err(invalid("library.object_store", problem));
            }
            return match self.api {
                RawAccess::Off => Ok(None),
                _ => Err(invalid(
                    "library.api",
                    "there is no library; give `library.folder`",
                )),
            };
        };
        if self.api == RawAccess::Operators && !has_admin {
            let problem = "operators are known by the key of the admin side; configure [admin]";
            return Err(invalid("library.api", problem));
        }
        let folder = base.join(folder);
        let mib = |value: u64| value.saturating_mul(1 << 20);
        Ok(Some(LibraryConfig {
            hub: hub_config_with(&LibraryConfig::hub_cache(&folder))?,
            object_store: self
                .object_store
                .map(|store| store.check(base))
                .transpose()?,
            folder,
            max_bytes: mib(self.max_mib),
            max_file_bytes: mib(self.max_file_mib),
            min_free_bytes: mib(self.min_free_mib),
            access: match self.api {
                RawAccess::Off => LibraryCallers::Off,
                RawAccess::Operators => LibraryCallers::Operators,
                RawAccess::Callers => LibraryCallers::Callers,
            },
        }))
    }
}
