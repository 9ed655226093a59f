//! The store in one SQLite file with a write-ahead log, or in memory.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;

use crate::error::{OpenError, StoreError};
use crate::limits::MAX_READERS;
use crate::query;
use crate::quota::Quota;
use crate::record::{Change, Item, Key, Page, Record, RecordKind, RecordPage};
use crate::reserve::Reserve;
use crate::store::{RecordFilter, Store, StoreFuture};
use crate::writer::{StoreWriter, WriteRules};
use crate::{check, schema};

/// Files up to this size are checked whole from the start on; `mortise store check` checks larger ones.
const CHECKED_BYTES: u64 = 256 * 1024 * 1024;

/// Time that a start waits for the check of its file. What is left of it is done while the server runs.
const CHECK_TIME: Duration = Duration::from_millis(500);

/// Time that a reader waits for a lock, as when the log is being folded into the file.
const LOCK_TIME: Duration = Duration::from_secs(5);

const PAGE_BYTES: u64 = 4096;

/// File of the state, and its size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// The file; `None` keeps state in memory, where the oldest records make room for new ones, and it ends with
    /// the process.
    pub path: Option<PathBuf>,
    /// Bytes of all of it.
    pub max_bytes: u64,
    /// Bytes of one owner.
    pub owner_max_bytes: u64,
    /// Records of one owner.
    pub owner_max_records: u64,
    /// Answers are on the disk before they are acknowledged. Without it they follow within a second: the end of the
    /// process loses none of them, that of the power may.
    pub sync_answers: bool,
}

/// The store. Clones of its `Arc` share it.
pub struct SqliteStore {
    writer: StoreWriter,
    readers: Arc<Readers>,
    slots: Arc<Semaphore>,
    /// Held for as long as the store is open, so that no second process writes.
    _lock: Option<File>,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SqliteStore")
    }
}

enum Readers {
    File {
        path: PathBuf,
        idle: Mutex<Vec<Connection>>,
    },
    /// The writer's connection, which is the only one to what is in memory.
    Memory(Arc<Mutex<Connection>>),
}

impl SqliteStore {
    /// Open a store, and make it if it is not there.
    ///
    /// # Errors
    /// When the file is damaged, of something else, of a later version, or in use; or cannot be written.
    pub fn open(config: &StoreConfig) -> Result<Self, OpenError> {
        let in_memory = config.path.is_none();
        let quota = Quota {
            records: config.owner_max_records,
            bytes: config.owner_max_bytes,
            // Pages take more than what stands in them.
            evict_above: in_memory.then_some(config.max_bytes / 2),
        };
        let damaged = Arc::<AtomicBool>::default();
        let (connection, lock) = match &config.path {
            Some(path) => {
                let lock = lock(path)?;
                create(path)?;
                (open_file(path, &damaged)?, Some(lock))
            }
            None => (open_memory()?, None),
        };
        let path = config
            .path
            .clone()
            .unwrap_or_else(|| PathBuf::from(":memory:"));
        let sqlite = |source| OpenError::Sqlite {
            path: path.clone(),
            source,
        };
        let pages = config
            .max_bytes
            .div_ceil(PAGE_BYTES)
            .min(u64::from(u32::MAX) - 1);
        connection
            .query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))
            .map_err(sqlite)?;
        let connection = Arc::new(Mutex::new(connection));
        let readers = match &config.path {
            Some(path) => Readers::File {
                path: path.clone(),
                idle: Mutex::default(),
            },
            None => Readers::Memory(Arc::clone(&connection)),
        };
        let rules = WriteRules {
            quota,
            sync_answers: config.sync_answers,
            damaged,
        };
        let writer = StoreWriter::start(
            connection,
            rules,
            config.path.as_deref().map(Reserve::beside),
        )
        .map_err(|source| OpenError::Unusable {
            path: path.clone(),
            source,
        })?;
        Ok(Self {
            writer,
            readers: Arc::new(readers),
            slots: Arc::new(Semaphore::new(MAX_READERS)),
            _lock: lock,
        })
    }

    /// Read on a thread that may block.
    fn read<T, F>(&self, query: F) -> StoreFuture<'_, T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let readers = Arc::clone(&self.readers);
        let slots = Arc::clone(&self.slots);
        Box::pin(async move {
            let slot = slots.acquire_owned().await;
            let slot = slot.map_err(|_| StoreError::Unavailable("it is closed".to_owned()))?;
            let read = tokio::task::spawn_blocking(move || {
                let _slot = slot;
                readers.with(query)
            });
            let failed = |_| StoreError::Unavailable("a read broke off".to_owned());
            read.await.map_err(failed)?
        })
    }
}

impl Readers {
    fn with<T>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let (path, idle) = match self {
            Self::Memory(connection) => {
                return query(&connection.lock().unwrap_or_else(PoisonError::into_inner));
            }
            Self::File { path, idle } => (path, idle),
        };
        let lock = || idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = lock().pop();
        let connection = match kept {
            Some(connection) => connection,
            None => reader(path)?,
        };
        let result = query(&connection);
        lock().push(connection);
        result
    }
}

impl Store for SqliteStore {
    fn commit(&self, changes: Vec<Change>) -> StoreFuture<'_, ()> {
        Box::pin(self.writer.commit(changes))
    }

    fn promise(&self, owner: &Arc<str>) -> StoreFuture<'_, ()> {
        Box::pin(self.writer.promise(Arc::clone(owner)))
    }

    fn get(&self, key: Key) -> StoreFuture<'_, Option<Record>> {
        self.read(move |connection| query::get(connection, &key))
    }

    fn list(
        &self,
        owner: &Arc<str>,
        kind: RecordKind,
        page: Page,
        filter: Option<RecordFilter>,
    ) -> StoreFuture<'_, RecordPage<Record>> {
        let owner = Arc::clone(owner);
        self.read(move |connection| query::list(connection, &owner, kind, &page, filter.as_ref()))
    }

    fn items(&self, parent: Key, page: Page) -> StoreFuture<'_, RecordPage<Item>> {
        self.read(move |connection| query::items(connection, &parent, &page))
    }

    fn pieces(&self, parent: Key, after: Option<String>) -> StoreFuture<'_, RecordPage<Item>> {
        self.read(move |connection| query::pieces(connection, &parent, after.as_deref()))
    }

    fn item(&self, parent: Key, id: String) -> StoreFuture<'_, Option<Item>> {
        self.read(move |connection| query::item(connection, &parent, &id))
    }

    fn unfinished(&self, kind: RecordKind) -> StoreFuture<'_, Vec<Record>> {
        self.read(move |connection| query::unfinished(connection, kind))
    }

    fn owners(&self, kind: RecordKind) -> StoreFuture<'_, Vec<Arc<str>>> {
        self.read(move |connection| query::owners(connection, kind))
    }
}

/// The file beside a store that its only writer holds.
pub(crate) fn lock(path: &Path) -> Result<File, OpenError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let unusable = |source| OpenError::Unusable {
        path: path.to_owned(),
        source,
    };
    let file = private().open(PathBuf::from(name)).map_err(unusable)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse(path.to_owned())),
        Err(TryLockError::Error(source)) => Err(unusable(source)),
    }
}

/// Make the file, for its owner only; SQLite gives its log the same rights.
fn create(path: &Path) -> Result<(), OpenError> {
    let opened = private().open(path);
    opened.map(drop).map_err(|source| OpenError::Unusable {
        path: path.to_owned(),
        source,
    })
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    options
}

fn open_file(path: &Path, damage: &Arc<AtomicBool>) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let sqlite = |source| OpenError::Sqlite {
        path: path.to_owned(),
        source,
    };
    let mut connection = Connection::open_with_flags(path, flags).map_err(sqlite)?;
    connection.busy_timeout(LOCK_TIME).map_err(sqlite)?;
    let version = check::version(&connection, path)?;
    if std::fs::metadata(path).is_ok_and(|file| file.len() <= CHECKED_BYTES) {
        if !check::integrity_within(&mut connection, path, CHECK_TIME)? {
            go_on_checking(path.to_owned(), Arc::clone(damage));
        }
    } else {
        tracing::info!(path = %path.display(), "the store is large; `mortise store check` checks it");
    }
    // The writer says `synchronous` anew with each transaction.
    let settings = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; \
                    PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 67108864; \
                    PRAGMA trusted_schema = OFF;";
    connection.execute_batch(settings).map_err(sqlite)?;
    schema::migrate(&connection, version).map_err(sqlite)?;
    Ok(connection)
}

/// Check a file while the server runs. One that is damaged takes no writes from then on.
fn go_on_checking(path: PathBuf, damaged: Arc<AtomicBool>) {
    tracing::info!(path = %path.display(), "the check of the store takes long and goes on beside requests");
    let check = move || {
        let sqlite = |source| OpenError::Sqlite {
            path: path.clone(),
            source,
        };
        let opened = reader(&path).map_err(sqlite);
        match opened.and_then(|reader| check::integrity(&reader, &path, false)) {
            Ok(()) => tracing::info!("the store is whole"),
            Err(error) => {
                tracing::error!(%error, "the store takes no writes any more");
                damaged.store(true, Ordering::Relaxed);
            }
        }
    };
    let thread = std::thread::Builder::new().name("mortise-check".to_owned());
    if let Err(error) = thread.spawn(check) {
        tracing::warn!(%error, "the store is not checked");
    }
}

fn open_memory() -> Result<Connection, OpenError> {
    let sqlite = |source| OpenError::Sqlite {
        path: PathBuf::from(":memory:"),
        source,
    };
    let connection = Connection::open_in_memory().map_err(sqlite)?;
    let settings =
        "PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF;";
    connection.execute_batch(settings).map_err(sqlite)?;
    schema::migrate(&connection, 0).map_err(sqlite)?;
    Ok(connection)
}

/// A connection that only reads.
pub(crate) fn reader(path: &Path) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(LOCK_TIME)?;
    Ok(connection)
}
