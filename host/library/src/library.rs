//! The library: its folder, and what is done with the models in it.

mod brought;
mod pulls;
mod receive;
mod stored;
mod uploads;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mortise_hub::{HubConfig, ModelReference};
use mortise_object_store::BucketConfig;
use tokio::sync::{Semaphore, broadcast};

use crate::contents::remove_folder;
use crate::entries::{EntrySource, LibraryEntries, LibraryEntry};
use crate::error::{LibraryError, disk};
use crate::limits::{MAX_FORMS_AT_ONCE, MAX_PARTIAL_AGE};
use crate::room::LibraryRoom;

use self::brought::Uses;
use self::pulls::Pulls;
pub use self::pulls::{PullState, PullStatus};
pub use self::receive::{Receiving, UploadInfo};
pub use self::stored::Places;
use self::stored::StoredModels;
use self::uploads::Uploads;
pub use self::uploads::{Appending, UploadFile, UploadOrder, UploadStatus};

/// Callers who may pull and delete models on the routes of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LibraryCallers {
    /// No caller: only the admin side has such routes.
    #[default]
    Off,
    /// Holders of the key of the admin side.
    Operators,
    /// Every caller that may ask for models.
    Callers,
}

/// Settings of a library.
#[derive(Debug, Clone)]
pub struct LibraryConfig {
    /// Folder that keeps the models.
    pub folder: PathBuf,
    /// Bytes that the library may hold; 0 is no bound.
    pub max_bytes: u64,
    /// Bytes of one file that is uploaded.
    pub max_file_bytes: u64,
    /// Bytes of the disk that stay free.
    pub min_free_bytes: u64,
    /// Callers who may pull and delete on the routes of the API.
    pub access: LibraryCallers,
    /// The hub. Its cache is the one of the library.
    pub hub: HubConfig,
    /// Bucket that has the models as well.
    pub object_store: Option<BucketConfig>,
}

impl LibraryConfig {
    /// Cache of the hub in the folder of a library.
    pub fn hub_cache(folder: &Path) -> PathBuf {
        folder.join("hub")
    }
}

/// Outcome of listing the models anew.
pub type RescanReport = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Functions of the server around a library.
pub struct Ties {
    /// Function that tells whether a model, an alias or an adapter has a name.
    pub taken: Box<dyn Fn(&str) -> bool + Send + Sync>,
    /// Function that tells whether a model is loaded, or about to be.
    pub in_use: Box<dyn Fn(&str) -> bool + Send + Sync>,
    /// Function that lists the models anew, after a model was added or removed.
    pub changed: Box<dyn Fn() -> RescanReport + Send + Sync>,
}

/// Models that come over the network.
pub struct Library {
    config: LibraryConfig,
    entries: LibraryEntries,
    room: Arc<LibraryRoom>,
    pulls: Pulls,
    uploads: Uploads,
    forms: Arc<Semaphore>,
    stored: Option<StoredModels>,
    uses: Uses,
    ties: OnceLock<Ties>,
    /// Held while the folder is used.
    lock: OnceLock<File>,
}

impl std::fmt::Debug for Library {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Library")
    }
}

/// Times that the models are listed anew before it is left to the next change.
const LISTINGS: u32 = 10;
const LISTING_PAUSE: Duration = Duration::from_millis(200);

impl Library {
    /// Open the library, and remove what an earlier process left half done. Blocks.
    ///
    /// # Errors
    /// When the folder cannot be used, or another server uses it.
    pub fn open(config: LibraryConfig) -> Result<Arc<Self>, LibraryError> {
        let library = Self::read(config)?;
        library.take()?;
        Ok(library)
    }

    /// Read which models a library has, while another server may use its folder. Until it is [taken](Self::take) nothing may
    /// come or go, but for files that the object store has. Blocks.
    ///
    /// # Errors
    /// When there can be no client of the object store.
    pub fn read(config: LibraryConfig) -> Result<Arc<Self>, LibraryError> {
        let folder = config.folder.clone();
        let room = LibraryRoom::new(folder.clone(), config.max_bytes, config.min_free_bytes);
        let stored = config.object_store.as_ref().map(StoredModels::new);
        Ok(Arc::new(Self {
            stored: stored.transpose()?,
            uses: Uses::default(),
            config,
            entries: LibraryEntries::read(folder.join("entries")),
            room,
            pulls: Pulls::default(),
            uploads: Uploads::new(folder.join("incoming")),
            forms: Arc::new(Semaphore::new(MAX_FORMS_AT_ONCE)),
            ties: OnceLock::new(),
            lock: OnceLock::new(),
        }))
    }

    /// Take the folder for this server: read anew what is in it, and remove what an earlier process left half done. Blocks.
    ///
    /// # Errors
    /// When the folder cannot be used, or another server uses it.
    pub fn take(&self) -> Result<(), LibraryError> {
        let folder = &self.config.folder;
        fs::create_dir_all(folder).map_err(disk(folder))?;
        let lock = lock(folder)?;
        self.entries.take()?;
        sweep_files(folder, &self.entries.all());
        sweep_parts(&LibraryConfig::hub_cache(folder));
        self.uploads.take(&self.room)?;
        self.sweep_fetched();
        let _ = self.lock.set(lock);
        Ok(())
    }

    /// Connect the library to the server around it. Must be called once.
    pub fn tie(&self, ties: Ties) {
        let _ = self.ties.set(ties);
    }

    /// Callers who may pull and delete on the routes of the API.
    pub fn access(&self) -> LibraryCallers {
        self.config.access
    }

    /// Models of the library, by name, those of the object store included.
    pub fn entries(&self) -> Vec<LibraryEntry> {
        let records = self.stored.as_ref().map(StoredModels::records);
        let records = records.into_iter().flatten().map(|record| record.entry());
        let mut all: BTreeMap<String, LibraryEntry> =
            records.map(|entry| (entry.name.clone(), entry)).collect();
        // Files that are here count before those that would come.
        let own = self.entries.all().into_iter();
        all.extend(own.map(|entry| (entry.name.clone(), entry)));
        all.into_values().collect()
    }

    /// Models of the library whose files are there, or come from the object store when they are needed, with the path of
    /// each. Asks the store which it has. Blocks.
    pub fn models(&self) -> Vec<(String, PathBuf)> {
        if let Some(stored) = &self.stored {
            stored.refresh();
        }
        let folder = &self.config.folder;
        let models = self.entries().into_iter().filter_map(|entry| {
            let path = folder.join(&entry.path);
            if path.exists() {
                return Some((entry.name, path));
            }
            let record = self.stored.as_ref()?.record(&entry.name)?;
            Some((entry.name, folder.join(record.path())))
        });
        models.collect()
    }

    /// A model of the library.
    pub fn entry(&self, name: &str) -> Option<LibraryEntry> {
        let here = self.entries.get(name);
        here.or_else(|| Some(self.stored.as_ref()?.record(name)?.entry()))
    }

    /// Events of pulls from now on.
    pub fn listen(&self) -> broadcast::Receiver<PullStatus> {
        self.pulls.listen()
    }

    /// Remove a model with its files. The caller must make sure that the model is not loaded.
    ///
    /// # Errors
    /// When the library has no such model, or it is being pulled.
    pub async fn remove(self: &Arc<Self>, name: &str) -> Result<LibraryEntry, LibraryError> {
        let this = Arc::clone(self);
        let name = name.to_owned();
        let removed = blocking(move || {
            let entry = this.entry(&name);
            let entry = entry.ok_or_else(|| LibraryError::NotInLibrary(name.clone()))?;
            if entry.source == EntrySource::Pull && this.pulls.brings_repository(&name) {
                return Err(LibraryError::BeingPulled(name));
            }
            if let Some(stored) = &this.stored {
                stored.remove(&name)?;
            }
            // First the entry: files without one are removed at the next start, if not now.
            this.entries.remove(&name)?;
            this.remove_files(&entry)?;
            Ok(entry)
        })
        .await?;
        tracing::info!(model = removed.name, "a model of the library was removed");
        self.list_anew().await;
        Ok(removed)
    }

    fn remove_files(&self, entry: &LibraryEntry) -> Result<(), LibraryError> {
        let path = self.config.folder.join(&entry.path);
        match entry.path.starts_with("files") {
            // The folder of an upload, or of files from the object store, is named by the first two parts: files/ID.
            true => {
                let folder: PathBuf = entry.path.components().take(2).collect();
                remove_folder(&self.config.folder.join(folder));
                Ok(())
            }
            false => {
                let others = self.entries.all();
                let shared = |other: &LibraryEntry| other.path == entry.path;
                // Two references may mean the same files.
                if others.iter().any(shared) {
                    return Ok(());
                }
                let within = |other: &LibraryEntry| {
                    other.source == EntrySource::Pull && repository(other) == repository(entry)
                };
                let is_folder = entry.path.extension().is_none_or(|end| end != "gguf");
                if is_folder && others.iter().any(within) {
                    // Contents may be shared; they go with the last model of the repository.
                    return fs::remove_dir_all(&path).map_err(disk(&path));
                }
                Ok(mortise_hub::remove(&self.config.hub.cache, &path)?)
            }
        }
    }

    fn check_free(&self, name: &str) -> Result<(), LibraryError> {
        let taken = self.ties.get().is_some_and(|ties| (ties.taken)(name));
        match taken || self.entry(name).is_some() {
            true => Err(LibraryError::NameInUse(name.to_owned())),
            false => Ok(()),
        }
    }

    /// Have the models listed anew. A scan that a load crosses is tried again.
    async fn list_anew(&self) {
        let Some(ties) = self.ties.get() else {
            return;
        };
        for attempt in 1..=LISTINGS {
            match (ties.changed)().await {
                Ok(()) => return,
                Err(reason) if attempt == LISTINGS => {
                    tracing::warn!(
                        reason,
                        "the models were not listed anew; the next rescan does"
                    );
                }
                Err(_) => tokio::time::sleep(LISTING_PAUSE).await,
            }
        }
    }
}

/// The repository's folder of a model that was pulled.
fn repository(entry: &LibraryEntry) -> PathBuf {
    entry.path.components().take(2).collect()
}

/// The reference by which a model was pulled is its name.
fn reference_of(name: &str) -> Option<ModelReference> {
    name.parse().ok()
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |elapsed| elapsed.as_secs())
}

/// Run blocking work on a thread for blocking work.
async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, LibraryError> + Send + 'static,
) -> Result<T, LibraryError> {
    match tokio::task::spawn_blocking(act).await {
        Ok(result) => result,
        Err(panic) => Err(LibraryError::Disk {
            path: PathBuf::from("library"),
            source: std::io::Error::other(panic.to_string()),
        }),
    }
}

fn lock(folder: &Path) -> Result<File, LibraryError> {
    let path = folder.join("lock");
    let file = File::create(&path).map_err(disk(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(LibraryError::InUse(folder.to_owned())),
        Err(TryLockError::Error(error)) => Err(disk(&path)(error)),
    }
}

/// Remove files of uploads that no entry names.
fn sweep_files(folder: &Path, entries: &[LibraryEntry]) {
    let used: BTreeSet<PathBuf> = entries
        .iter()
        .map(|entry| folder.join(repository(entry)))
        .collect();
    for entry in fs::read_dir(folder.join("files"))
        .into_iter()
        .flatten()
        .flatten()
    {
        if !used.contains(&entry.path()) {
            remove_folder(&entry.path());
        }
    }
}

/// Remove parts of files that pulls left long ago.
fn sweep_parts(cache: &Path) {
    for repository in fs::read_dir(cache).into_iter().flatten().flatten() {
        let blobs = repository.path().join("blobs");
        for blob in fs::read_dir(&blobs).into_iter().flatten().flatten() {
            let path = blob.path();
            let is_part = path.extension().is_some_and(|end| end == "incomplete");
            if is_part && is_old(&path) {
                let _ = fs::remove_file(&path);
            }
        }
    }
}

/// True if nothing has been written to a file for a long time.
fn is_old(path: &Path) -> bool {
    let changed = fs::metadata(path).and_then(|data| data.modified());
    let age = changed.ok().and_then(|changed| changed.elapsed().ok());
    age.is_some_and(|age| age > MAX_PARTIAL_AGE)
}
