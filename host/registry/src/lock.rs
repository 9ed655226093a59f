//! The lock file `mortise-plugins.lock`: where each file of a plugin folder came from, by digests.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::RegistryError;
use crate::layout::{read, write};
use crate::limits::MAX_ANSWER_BYTES;

/// Name of the lock file in a plugin folder.
pub const LOCK_FILE: &str = "mortise-plugins.lock";

/// Version of the format.
const VERSION: u32 = 1;

const HEAD: &str = "# Written by `mortise plugin pull`. Keep it with the configuration: it pins what is installed.\n";

/// Plugins of a folder, pinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    version: u32,
    /// Plugins by the names of their files.
    #[serde(default, rename = "plugin")]
    pub plugins: Vec<LockedPlugin>,
}

/// Plugin of a lock file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedPlugin {
    /// Name of the file in the folder.
    pub file: String,
    /// Reference that it was pulled by, without a digest.
    pub source: String,
    /// Digest of the manifest.
    pub manifest: Digest,
    /// Digest of the file.
    pub content: Digest,
}

impl Default for Lock {
    fn default() -> Self {
        Self {
            version: VERSION,
            plugins: Vec::new(),
        }
    }
}

impl Lock {
    /// The lock file of a folder; empty if there is none.
    ///
    /// # Errors
    /// When it cannot be read, or is none.
    pub fn of(folder: &Path) -> Result<Self, RegistryError> {
        let path = folder.join(LOCK_FILE);
        let bytes = match read(&path, MAX_ANSWER_BYTES) {
            Err(RegistryError::File { cause, .. })
                if cause.kind() == std::io::ErrorKind::NotFound =>
            {
                return Ok(Self::default());
            }
            read => read?,
        };
        let wrong = |problem: String| RegistryError::Content {
            path: path.clone(),
            problem,
        };
        let text = String::from_utf8(bytes).map_err(|_| wrong("is not UTF-8".to_owned()))?;
        let lock: Self =
            toml::from_str(&text).map_err(|error| wrong(format!("is no lock file: {error}")))?;
        if lock.version != VERSION {
            let problem = format!("has version {}, and {VERSION} is known", lock.version);
            return Err(wrong(problem));
        }
        match lock
            .plugins
            .iter()
            .find(|plugin| !is_file_name(&plugin.file))
        {
            Some(plugin) => {
                let name = plugin.file.escape_default();
                Err(wrong(format!(
                    "names the file `{name}`, which is no plugin of a folder"
                )))
            }
            None => Ok(lock),
        }
    }

    /// Write the lock file of a folder.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), RegistryError> {
        let path: PathBuf = folder.join(LOCK_FILE);
        let text = toml::to_string(self).map_err(|error| RegistryError::Content {
            path: path.clone(),
            problem: error.to_string(),
        })?;
        write(&path, format!("{HEAD}{text}").as_bytes())
    }

    /// The entry of a file.
    pub fn entry(&self, file: &str) -> Option<&LockedPlugin> {
        self.plugins.iter().find(|plugin| plugin.file == file)
    }

    /// Put an entry in the place of that of the same file.
    pub fn set(&mut self, plugin: LockedPlugin) {
        self.plugins.retain(|known| known.file != plugin.file);
        self.plugins.push(plugin);
        self.plugins.sort_by(|one, other| one.file.cmp(&other.file));
    }
}

/// True if the text names a plugin file of the folder itself.
pub fn is_file_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    name.ends_with(".wasm")
        && !name.starts_with('.')
        && name.len() <= 200
        && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(file: &str) -> LockedPlugin {
        LockedPlugin {
            file: file.to_owned(),
            source: "registry.example/a:1".to_owned(),
            manifest: Digest::of(b"manifest"),
            content: Digest::of(b"content"),
        }
    }

    #[test]
    fn a_lock_file_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Lock::of(folder.path()).unwrap(), Lock::default());
        let mut lock = Lock::default();
        lock.set(plugin("b.wasm"));
        lock.set(plugin("a.wasm"));
        lock.set(plugin("b.wasm"));
        lock.write(folder.path()).unwrap();
        let again = Lock::of(folder.path()).unwrap();
        assert_eq!(again, lock);
        assert_eq!(again.plugins.len(), 2);
        assert!(again.entry("a.wasm").is_some() && again.entry("c.wasm").is_none());
    }

    #[test]
    fn a_lock_file_names_files_of_its_folder_only() {
        let folder = tempfile::tempdir().unwrap();
        for file in [
            "../a.wasm",
            "/a.wasm",
            "a/b.wasm",
            ".wasm",
            "a.sig",
            "a\\b.wasm",
        ] {
            let lock = Lock {
                plugins: vec![plugin(file)],
                ..Lock::default()
            };
            lock.write(folder.path()).unwrap();
            let error = Lock::of(folder.path()).unwrap_err().to_string();
            assert!(error.contains("no plugin of a folder"), "{file}: {error}");
        }
        for text in ["version = 2", "plugin = 1", "versin = 1", "\u{0}"] {
            std::fs::write(folder.path().join(LOCK_FILE), text).unwrap();
            assert!(Lock::of(folder.path()).is_err(), "{text:?}");
        }
    }
}
