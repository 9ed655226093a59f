//! Files of models that come from the object store when they are needed, and go again where room is short.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use mortise_hub::DownloadProgress;
use mortise_object_store::Expected;

use super::{Library, StoredModels, now};
use crate::contents::{remove_folder, settle};
use crate::entries::LibraryEntry;
use crate::error::{LibraryError, disk};
use crate::record::ModelRecord;
use crate::room::Promise;

/// Times at which models were needed last, in seconds since 1970.
#[derive(Debug, Default)]
pub(crate) struct Uses(Mutex<BTreeMap<String, u64>>);

impl Uses {
    fn note(&self, name: &str) {
        let mut uses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        uses.insert(name.to_owned(), now());
    }

    /// When a model was needed last, or came.
    fn last(&self, entry: &LibraryEntry) -> u64 {
        let uses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        uses.get(&entry.name).copied().unwrap_or(entry.added_at)
    }
}

/// Folder of files that are coming.
const FETCHING: &str = "fetching";
/// File that is locked while files come.
const FETCHING_LOCK: &str = "fetching.lock";

impl Library {
    /// The model of the object store whose files belong at a path, if they are not there.
    fn missing(&self, path: &Path) -> Option<(&StoredModels, ModelRecord)> {
        let stored = self.stored.as_ref()?;
        let inside = path.strip_prefix(&self.config.folder).ok()?;
        let mut records = stored.records().into_iter();
        let record = records.find(|record| record.path() == inside)?;
        (!path.exists()).then_some((stored, record))
    }

    /// Bytes that would come if files at this path were needed.
    pub fn absent_bytes(&self, path: &Path) -> Option<u64> {
        let (_, record) = self.missing(path)?;
        Some(record.size_bytes())
    }

    /// Have the files at a path here that the object store has; others are left to whoever opens them. True if they came.
    /// Blocks.
    ///
    /// # Errors
    /// When there is no room, the store fails, or what it has is not what it should be.
    pub fn bring_files(
        &self,
        path: &Path,
        progress: &dyn DownloadProgress,
    ) -> Result<bool, LibraryError> {
        let inside = path.strip_prefix(&self.config.folder).ok();
        let of_library = |entry: &LibraryEntry| Some(&*entry.path) == inside;
        if let Some(entry) = self.entries().into_iter().find(of_library) {
            self.uses.note(&entry.name);
        }
        let Some((stored, _)) = self.missing(path) else {
            return Ok(false);
        };
        let _alone = stored
            .bringing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // A server that this one takes over from may bring some too.
        let fetching = self.config.folder.join(FETCHING_LOCK);
        let lock = File::create(&fetching).map_err(disk(&fetching))?;
        lock.lock().map_err(disk(&fetching))?;
        // Another load may have brought them meanwhile.
        let Some((stored, record)) = self.missing(path) else {
            return Ok(false);
        };
        tracing::info!(
            model = record.name,
            "a model is fetched from the object store"
        );
        let coming = self.config.folder.join(FETCHING).join(&record.id);
        fs::create_dir_all(&coming).map_err(disk(&coming))?;
        let present = |name: &str| fs::metadata(coming.join(name)).map_or(0, |data| data.len());
        let there: u64 = record.files.iter().map(|file| present(&file.name)).sum();
        let promise = self.make_room(record.size_bytes().saturating_sub(there))?;
        let promise = Mutex::new(promise);
        for file in &record.files {
            let path = coming.join(&file.name);
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).map_err(disk(folder))?;
            }
            progress.begin(&file.name, file.size_bytes, present(&file.name));
            let expected = Expected {
                bytes: file.size_bytes,
                sha256: &file.sha256,
            };
            let more = |bytes| {
                let mut promise = promise.lock().unwrap_or_else(PoisonError::into_inner);
                promise.arrived(bytes);
                progress.advance(bytes);
                !progress.cancelled()
            };
            (stored.store).fetch(&record.object_of(file), &path, &expected, &more)?;
            progress.end();
        }
        let place = self.config.folder.join(record.folder());
        // What is left of files that went incompletely.
        remove_folder(&place);
        settle(&coming, &place)?;
        self.entries.put(record.entry(), true)?;
        tracing::info!(
            model = record.name,
            "a model was fetched from the object store"
        );
        Ok(true)
    }

    /// Promise room for files that come; copies of models that nothing uses go for them, those that were not needed for
    /// longest first.
    fn make_room(&self, bytes: u64) -> Result<Promise, LibraryError> {
        loop {
            match self.room.promise(bytes) {
                Err(LibraryError::NoRoom(reason)) => match self.least_needed() {
                    Some(entry) => {
                        self.entries.remove(&entry.name)?;
                        let folder: PathBuf = entry.path.components().take(2).collect();
                        remove_folder(&self.config.folder.join(folder));
                        tracing::info!(
                            model = entry.name,
                            "a model left the disk; the object store has it"
                        );
                    }
                    None => return Err(LibraryError::NoRoom(reason)),
                },
                promised => return promised,
            }
        }
    }

    /// The copy that was not needed for longest, of those that the object store has and nothing uses.
    fn least_needed(&self) -> Option<LibraryEntry> {
        let (stored, ties) = (self.stored.as_ref()?, self.ties.get()?);
        let spare = |entry: &LibraryEntry| {
            let record = stored.record(&entry.name);
            record.is_some_and(|record| record.path() == entry.path) && !(ties.in_use)(&entry.name)
        };
        let entries = self.entries.all().into_iter().filter(spare);
        entries.min_by_key(|entry| self.uses.last(entry))
    }

    /// Remove what came of transfers that were left long ago.
    pub(super) fn sweep_fetched(&self) {
        let fetching = self.config.folder.join(FETCHING);
        for folder in fs::read_dir(&fetching).into_iter().flatten().flatten() {
            if super::is_old(&folder.path()) {
                remove_folder(&folder.path());
            }
        }
    }
}
