//! Entries of the library: one small file a model, written in one step.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::error::{LibraryError, disk};
use crate::limits::{MAX_ENTRIES, MAX_ENTRY_BYTES};

/// Origin of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntrySource {
    /// The model was pulled from the hub.
    Pull,
    /// The model was uploaded.
    Upload,
}

/// A model of the library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LibraryEntry {
    /// Public name.
    pub name: String,
    /// Origin.
    pub source: EntrySource,
    /// Folder of the model, or its GGUF file (the first of several), below the library's folder.
    pub path: PathBuf,
    /// Bytes of its files.
    pub size_bytes: u64,
    /// SHA-256 digest of its file, or of the list that `sha256sum *` writes; unknown of a model that was pulled.
    pub sha256: Option<String>,
    /// Version, as the uploader stated it.
    pub version: Option<String>,
    /// Description, as the uploader stated it.
    pub description: Option<String>,
    /// Seconds since 1970.
    pub added_at: u64,
}

/// All entries, in memory and on the disk.
#[derive(Debug)]
pub(crate) struct LibraryEntries {
    folder: PathBuf,
    known: Mutex<BTreeMap<String, LibraryEntry>>,
}

impl LibraryEntries {
    /// Read the entries of a folder, and change nothing there.
    pub(crate) fn read(folder: PathBuf) -> Self {
        let known = Mutex::new(known_in(&folder, &|_| {}));
        Self { folder, known }
    }

    /// Read the entries anew, and remove what a write left behind that did not end.
    pub(crate) fn take(&self) -> Result<(), LibraryError> {
        fs::create_dir_all(&self.folder).map_err(disk(&self.folder))?;
        fs::read_dir(&self.folder).map_err(disk(&self.folder))?;
        *self.known() = known_in(&self.folder, &|path| {
            let _ = fs::remove_file(path);
        });
        Ok(())
    }

    pub(crate) fn all(&self) -> Vec<LibraryEntry> {
        self.known().values().cloned().collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<LibraryEntry> {
        self.known().get(name).cloned()
    }

    /// Add an entry; with `replaces`, in place of one of the same name. Blocks.
    pub(crate) fn put(&self, entry: LibraryEntry, replaces: bool) -> Result<(), LibraryError> {
        let mut known = self.known();
        if known.contains_key(&entry.name) {
            if !replaces {
                return Err(LibraryError::NameInUse(entry.name));
            }
        } else if known.len() >= MAX_ENTRIES {
            let what = format!("{MAX_ENTRIES} models");
            return Err(LibraryError::NoRoom(format!("the library has {what}")));
        }
        let path = self.path_of(&entry.name);
        let text = serde_json::to_vec_pretty(&entry).unwrap_or_default();
        let beside = path.with_extension("new");
        let write = || {
            let mut file = File::create(&beside)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&beside, &path)?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(disk(&path))?;
        known.insert(entry.name.clone(), entry);
        Ok(())
    }

    /// Remove an entry. Blocks.
    pub(crate) fn remove(&self, name: &str) -> Result<(), LibraryError> {
        let mut known = self.known();
        let path = self.path_of(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(disk(&path)(error));
            }
            _ => {}
        }
        known.remove(name);
        Ok(())
    }

    /// The file of an entry. The name itself is none on the disk.
    fn path_of(&self, name: &str) -> PathBuf {
        let digest = Sha256::digest(name.as_bytes());
        self.folder.join(format!("{digest:x}.json"))
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, LibraryEntry>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Entries of a folder, by name. One that is no good is left out and told of; `other` is called for other files.
fn known_in(folder: &Path, other: &dyn Fn(&Path)) -> BTreeMap<String, LibraryEntry> {
    let mut known = BTreeMap::new();
    for file in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = file.path();
        if path.extension().is_none_or(|ending| ending != "json") {
            other(&path);
            continue;
        }
        if known.len() >= MAX_ENTRIES {
            tracing::warn!("the library has more than {MAX_ENTRIES} models; the rest is left out");
            break;
        }
        match read(&path) {
            Ok(entry) => {
                known.insert(entry.name.clone(), entry);
            }
            Err(reason) => {
                tracing::error!(path = %path.display(), reason, "an entry of the library cannot be read");
            }
        }
    }
    known
}

fn read(path: &Path) -> Result<LibraryEntry, String> {
    let text = mortise_files::read(path, MAX_ENTRY_BYTES).map_err(|error| error.to_string())?;
    let entry: LibraryEntry = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    let inside = |part: Component<'_>| matches!(part, Component::Normal(_));
    match entry.path.components().all(inside) {
        true => Ok(entry),
        false => Err("its path leaves the library".to_owned()),
    }
}
