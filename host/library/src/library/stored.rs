//! Models that are kept in an object store as well, so that other servers, and this one with an empty disk, have them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mortise_object_store::{BucketConfig, ObjectStore, ObjectStoreError};
use tokio::sync::Semaphore;

use super::{Library, blocking};
use crate::contents::{ReceivedFile, received};
use crate::entries::{EntrySource, LibraryEntry};
use crate::error::LibraryError;
use crate::limits::{
    COPY_PAUSE, MAX_COPY_PAUSE, MAX_ENTRIES, MAX_ENTRY_BYTES, MAX_FILE_DEPTH, MAX_STORED_FILES,
};
use crate::record::{ENTRIES, ModelRecord};

/// The object store of a library, and what is known of it.
#[derive(Debug)]
pub(crate) struct StoredModels {
    pub(super) store: ObjectStore,
    known: Mutex<Known>,
    /// Copies that are to be made: the reason why the last attempt at each failed.
    copies: Mutex<BTreeMap<String, Option<String>>>,
    turn: Arc<Semaphore>,
    /// Held while files of one model are brought: loads of the same model wait for each other.
    pub(super) bringing: Mutex<()>,
}

/// Descriptions in the store.
#[derive(Debug, Default)]
struct Known {
    /// By the name of the model.
    records: BTreeMap<String, ModelRecord>,
    /// By object: the content that was read, and the model that it describes, if it does.
    seen: BTreeMap<String, (String, Option<String>)>,
}

/// Places of a model of the library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// Its files are on the disk of this server.
    pub on_disk: bool,
    /// `local` without an object store; with one `replicated` once it is there, and until then `pending`, or `failed` after
    /// an attempt that failed and is made again.
    pub replication: &'static str,
    /// Failure of the last attempt.
    pub error: Option<String>,
}

impl StoredModels {
    pub(crate) fn new(config: &BucketConfig) -> Result<Self, ObjectStoreError> {
        Ok(Self {
            store: ObjectStore::new(config)?,
            known: Mutex::default(),
            copies: Mutex::default(),
            turn: Arc::new(Semaphore::new(1)),
            bringing: Mutex::default(),
        })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn copies(&self) -> MutexGuard<'_, BTreeMap<String, Option<String>>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The description of a model, as it was found last.
    pub(crate) fn record(&self, name: &str) -> Option<ModelRecord> {
        self.known().records.get(name).cloned()
    }

    /// All descriptions, as they were found last.
    pub(crate) fn records(&self) -> Vec<ModelRecord> {
        self.known().records.values().cloned().collect()
    }

    /// Look what is in the store. One that does not answer leaves what is known. Blocks.
    pub(crate) fn refresh(&self) {
        if let Err(error) = self.look() {
            tracing::warn!(%error, "the models in the object store cannot be listed; the next scan tries again");
        }
    }

    fn look(&self) -> Result<(), ObjectStoreError> {
        let listed = self.store.list(ENTRIES)?;
        for (object, tag) in listed.iter().take(MAX_ENTRIES) {
            let seen = self.known().seen.get(object).map(|(tag, _)| tag.clone());
            if seen.as_ref() != Some(tag) {
                match self.store.read(object, MAX_ENTRY_BYTES) {
                    Ok(text) => self.take(object, tag, &text),
                    // It went in the meantime.
                    Err(ObjectStoreError::NotFound { .. }) => {}
                    Err(error @ ObjectStoreError::Answer { .. }) => {
                        self.leave_out(object, tag, &error)
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        let mut known = self.known();
        known.seen.retain(|object, _| listed.contains_key(object));
        let there: BTreeSet<String> = known
            .seen
            .values()
            .filter_map(|(_, name)| name.clone())
            .collect();
        known.records.retain(|name, _| there.contains(name));
        Ok(())
    }

    fn take(&self, object: &str, tag: &str, text: &[u8]) {
        match ModelRecord::read(text) {
            Ok(record) if ModelRecord::object(&record.name) == object => {
                let mut known = self.known();
                let seen = (tag.to_owned(), Some(record.name.clone()));
                known.seen.insert(object.to_owned(), seen);
                known.records.insert(record.name.clone(), record);
            }
            Ok(_) => self.leave_out(object, tag, &"it has the name of another model"),
            Err(reason) => self.leave_out(object, tag, &reason),
        }
    }

    fn leave_out(&self, object: &str, tag: &str, reason: &dyn std::fmt::Display) {
        tracing::error!(object, %reason, "a model in the object store cannot be read");
        let seen = (tag.to_owned(), None);
        self.known().seen.insert(object.to_owned(), seen);
    }

    /// Remember what was written; its content is read anew by the next look.
    fn remember(&self, record: ModelRecord) {
        let mut known = self.known();
        let seen = (String::new(), Some(record.name.clone()));
        known.seen.insert(ModelRecord::object(&record.name), seen);
        known.records.insert(record.name.clone(), record);
    }

    fn forget(&self, name: &str) {
        let mut known = self.known();
        known.seen.remove(&ModelRecord::object(name));
        known.records.remove(name);
        drop(known);
        self.copies().remove(name);
    }

    /// Note the end of an attempt at a copy. True if there is to be no other.
    fn ends(&self, name: &str, copied: Result<(), LibraryError>) -> bool {
        let mut copies = self.copies();
        match copied {
            Ok(()) => {
                copies.remove(name);
                true
            }
            // It was removed meanwhile.
            Err(_) if !copies.contains_key(name) => true,
            Err(error) => {
                tracing::warn!(model = name, %error, "a model was not copied to the object store");
                copies.insert(name.to_owned(), Some(error.to_string()));
                matches!(error, LibraryError::NameInUse(_))
            }
        }
    }

    /// Remove a model from the store: first what describes it. Blocks.
    pub(crate) fn remove(&self, name: &str) -> Result<(), ObjectStoreError> {
        let record = self.record(name);
        self.store.remove(&ModelRecord::object(name))?;
        self.forget(name);
        if let Some(record) = record {
            self.remove_files(&record);
        }
        Ok(())
    }

    /// Remove files that nothing describes any more. Those that stay cost room, and nothing else.
    fn remove_files(&self, record: &ModelRecord) {
        for file in &record.files {
            if let Err(error) = self.store.remove(&record.object_of(file)) {
                let object = record.object_of(file);
                tracing::warn!(%error, object, "an object that nothing needs is left in the object store");
            }
        }
    }
}

impl Library {
    /// True if an object store keeps every model, too.
    pub fn replicates(&self) -> bool {
        self.stored.is_some()
    }

    /// Places of a model.
    pub fn places(&self, entry: &LibraryEntry) -> Places {
        let on_disk = self.config.folder.join(&entry.path).exists();
        let Some(stored) = &self.stored else {
            return Places {
                on_disk,
                replication: "local",
                error: None,
            };
        };
        let error = stored.copies().get(&entry.name).cloned().flatten();
        let there = stored.record(&entry.name).is_some();
        let waits = stored.copies().contains_key(&entry.name);
        Places {
            on_disk,
            replication: match (there && !waits, &error) {
                (true, _) => "replicated",
                (false, Some(_)) => "failed",
                (false, None) => "pending",
            },
            error,
        }
    }

    /// Copy all models that are on this disk alone to the object store, if there is one.
    pub fn copy_all(self: &Arc<Self>) {
        if let Some(stored) = &self.stored {
            for entry in self.entries.all() {
                if stored.record(&entry.name).is_none() {
                    self.copy_soon(entry.name);
                }
            }
        }
    }

    /// Copy a model to the object store, if there is one, in the background and as often as it takes.
    pub(crate) fn copy_soon(self: &Arc<Self>, name: String) {
        let Some(stored) = &self.stored else {
            return;
        };
        if stored.copies().insert(name.clone(), None).is_none() {
            let this = Arc::clone(self);
            tokio::spawn(async move { this.copy_until_done(name).await });
        }
    }

    async fn copy_until_done(self: Arc<Self>, name: String) {
        let Some(stored) = &self.stored else {
            return;
        };
        let mut pause = COPY_PAUSE;
        loop {
            let turn = Arc::clone(&stored.turn).acquire_owned().await;
            let (this, model) = (Arc::clone(&self), name.clone());
            let copied = blocking(move || this.copy(&model)).await;
            drop(turn);
            if stored.ends(&name, copied) {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(MAX_COPY_PAUSE);
        }
    }

    /// Copy a model to the object store. Blocks.
    fn copy(&self, name: &str) -> Result<(), LibraryError> {
        let (Some(stored), Some(entry)) = (&self.stored, self.entries.get(name)) else {
            return Ok(());
        };
        let wanted = || self.entries.get(name).is_some_and(|now| now == entry);
        let (folder, names) = files_of(&self.config.folder, &entry)?;
        let mut files = Vec::with_capacity(names.len());
        for name in names {
            let file = received(&folder.join(&name))?;
            files.push(ReceivedFile { name, ..file });
        }
        let folder_itself = self.config.folder.join(&entry.path) == folder;
        let file = (!folder_itself).then(|| entry.path.file_name());
        let file = file
            .flatten()
            .map(|name| name.to_string_lossy().into_owned());
        let record = ModelRecord::of(&entry, &files, file);
        let before = stored.record(name);
        if before.as_ref() == Some(&record) {
            return Ok(());
        }
        for file in &record.files {
            let path = folder.join(&file.name);
            stored
                .store
                .put(&record.object_of(file), &path, &|_| wanted())?;
        }
        // A pull brings newer files under the same name; an upload never does.
        let only_new = entry.source == EntrySource::Upload || before.is_none();
        let object = ModelRecord::object(name);
        let text = serde_json::to_vec_pretty(&record).unwrap_or_default();
        match stored.store.write(&object, &text, only_new) {
            Err(ObjectStoreError::Exists { .. }) => {
                let there = stored.store.read(&object, MAX_ENTRY_BYTES)?;
                if ModelRecord::read(&there).ok().as_ref() != Some(&record) {
                    stored.remove_files(&record);
                    return Err(LibraryError::NameInUse(name.to_owned()));
                }
            }
            written => written?,
        }
        stored.remember(record.clone());
        if !wanted() {
            return Ok(stored.remove(name)?);
        }
        if let Some(before) = before.filter(|before| before.id != record.id) {
            stored.remove_files(&before);
        }
        tracing::info!(model = name, "a model was copied to the object store");
        Ok(())
    }
}

impl From<ObjectStoreError> for LibraryError {
    fn from(error: ObjectStoreError) -> Self {
        Self::Store(error)
    }
}

/// The folder of a model's files, and their paths in it.
fn files_of(library: &Path, entry: &LibraryEntry) -> Result<(PathBuf, Vec<String>), LibraryError> {
    let path = library.join(&entry.path);
    let mut names = Vec::new();
    if path.is_dir() {
        walk(&path, "", &mut names);
        names.sort_unstable();
        return match names.len() <= MAX_STORED_FILES {
            true => Ok((path, names)),
            false => Err(LibraryError::NoModel(format!(
                "it has more than {MAX_STORED_FILES} files"
            ))),
        };
    }
    let folder = path.parent().unwrap_or(library).to_owned();
    let name = path.file_name().map(|name| name.to_string_lossy());
    let first = name.unwrap_or_default().into_owned();
    // `NAME-00001-of-00003.gguf` is the first of several.
    let stem = first.rsplit_once("-00001-of-");
    match stem {
        Some((stem, count)) => {
            let end = format!("-of-{count}");
            let is_part = |name: &String| name.starts_with(stem) && name.ends_with(&end);
            walk(&folder, "", &mut names);
            names.retain(is_part);
            names.sort_unstable();
        }
        None => names.push(first),
    }
    Ok((folder, names))
}

/// Files below a folder, by their paths in it. Links are followed: the cache of the hub has nothing else.
fn walk(folder: &Path, before: &str, names: &mut Vec<String>) {
    for found in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = format!("{before}{}", found.file_name().to_string_lossy());
        match fs::metadata(found.path()) {
            Ok(data) if data.is_file() => names.push(name),
            Ok(data) if data.is_dir() && name.matches('/').count() + 1 < MAX_FILE_DEPTH => {
                walk(&found.path(), &format!("{name}/"), names);
            }
            _ => {}
        }
    }
}
