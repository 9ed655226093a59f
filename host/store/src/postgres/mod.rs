//! The store in a PostgreSQL database that several hosts share.

mod check;
mod commit;
mod config;
mod failure;
mod hosts;
mod passage_tables;
mod passages;
mod pool;
mod query;
mod schema;
#[cfg(test)]
mod tests;
mod tls;

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mortise_supervise::supervise;
use tokio::task::JoinHandle;

use self::commit::Author;
use self::pool::{ConnectionPool, Lent};
use crate::error::{OpenError, StoreError};
use crate::limits::{DATABASE_OPERATION_TIME, MAX_QUEUED_BYTES, MAX_QUEUED_COMMITS};
use crate::quota::Quota;
use crate::record::{Change, Item, Key, Page, Record, RecordKind, RecordPage};
use crate::store::{RecordFilter, Store, StoreFuture};

pub use self::check::check_database;
pub use self::config::{DatabaseError, PostgresConfig};
pub use self::passages::{
    Indexed, Occurrence, PassagePlace, PassageRow, PassageScope, Passages, Word,
};

/// Time between two signs of life.
const BEAT_EVERY: Duration = Duration::from_secs(3);

/// Time between two looks for records that have expired.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

/// For so long after a write, the database counts as one that takes writes.
const TRUSTED: Duration = Duration::from_secs(1);

/// Time that a start waits for a database that is not there yet, and the pauses between attempts.
const START_TIME: Duration = Duration::from_secs(30);
const START_PAUSE: Duration = Duration::from_millis(500);

/// The store. Clones of its `Arc` share it.
pub struct PostgresStore {
    inner: Arc<Inner>,
    tasks: Vec<JoinHandle<()>>,
}

struct Inner {
    pool: ConnectionPool,
    author: Author,
    /// Commits that have not ended, and their bytes.
    waiting: AtomicUsize,
    bytes: AtomicUsize,
    /// When the last write succeeded; `None` after one that failed.
    written: Mutex<Option<Instant>>,
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("PostgresStore")
    }
}

impl PostgresStore {
    /// Open the store of a database, make its tables if they are not there, and enter this host. Waits for a database
    /// that is not there yet.
    ///
    /// # Errors
    /// When the database does not come, refuses, or has tables of a later version or of something else.
    pub async fn open(config: &PostgresConfig) -> Result<Self, OpenError> {
        let place = config.place();
        let pool = ConnectionPool::new(config.parts());
        let mut client = first(&pool, &place).await?;
        schema::migrate(&mut client, &place).await?;
        let host = hosts::enter(&client).await;
        let host = host.map_err(|error| failure::open_failure(&place, &error))?;
        drop(client);
        let quota = Quota {
            records: config.owner_max_records,
            bytes: config.owner_max_bytes,
            evict_above: None,
        };
        let inner = Arc::new(Inner {
            pool,
            author: Author {
                host,
                quota,
                max_bytes: config.max_bytes,
            },
            waiting: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            written: Mutex::default(),
        });
        let (beating, sweeping) = (Arc::clone(&inner), Arc::clone(&inner));
        let tasks = vec![
            supervise("store-beat", move || beat(Arc::clone(&beating))),
            supervise("store-sweep", move || sweep(Arc::clone(&sweeping))),
        ];
        Ok(Self { inner, tasks })
    }

    /// Do something that goes on if nobody waits for it, within the bound of time.
    fn run<T, F>(&self, work: F) -> StoreFuture<'_, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        bounded(DATABASE_OPERATION_TIME, work)
    }
}

/// Do something that goes on if nobody waits for it, within a bound of time.
fn bounded<T, F>(time: Duration, work: F) -> StoreFuture<'static, T>
where
    T: Send + 'static,
    F: Future<Output = Result<T, StoreError>> + Send + 'static,
{
    let running = tokio::spawn(tokio::time::timeout(time, work));
    Box::pin(async move {
        match running.await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(StoreError::Unavailable(
                "PostgreSQL does not answer in time".to_owned(),
            )),
            Err(_) => Err(StoreError::Unavailable("a statement broke off".to_owned())),
        }
    })
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// The first connection of all.
async fn first(pool: &ConnectionPool, place: &str) -> Result<tokio_postgres::Client, OpenError> {
    let began = Instant::now();
    loop {
        match pool.connect().await {
            Ok(client) => return Ok(client),
            // What the database itself refuses stays refused, but for one that is still starting.
            Err(error)
                if began.elapsed() > START_TIME
                    || error
                        .code()
                        .is_some_and(|code| !code.code().starts_with("57P")) =>
            {
                return Err(failure::open_failure(place, &error));
            }
            Err(error) => {
                let error = failure::told(&error);
                tracing::warn!(place, error, "waiting for PostgreSQL");
                tokio::time::sleep(START_PAUSE).await;
            }
        }
    }
}

/// Say that this host is there for as long as it is.
async fn beat(inner: Arc<Inner>) {
    loop {
        tokio::time::sleep(BEAT_EVERY).await;
        let host = inner.author.host;
        let said = inner.with(async |lent| hosts::beat(&lent.client, host).await);
        match tokio::time::timeout(DATABASE_OPERATION_TIME, said).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "other hosts could not be told of this one"),
            Err(_) => tracing::warn!("other hosts could not be told of this one in time"),
        }
    }
}

/// Remove what has expired, for as long as the store is open.
async fn sweep(inner: Arc<Inner>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let removed = inner.with(async |lent| commit::sweep(&mut lent.client).await);
        if let Ok(Err(error)) = tokio::time::timeout(DATABASE_OPERATION_TIME, removed).await {
            tracing::warn!(%error, "expired records could not be removed");
        }
    }
}

impl Inner {
    /// Use a connection, and give it back whole.
    async fn with<T>(
        &self,
        work: impl AsyncFnOnce(&mut Lent) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut lent = self.pool.lend().await?;
        let result = work(&mut lent).await;
        self.pool.give_back(lent);
        result
    }

    fn trusts(&self) -> bool {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.is_some_and(|at| at.elapsed() < TRUSTED)
    }

    fn note(&self, result: &Result<(), StoreError>) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(()) => *written = Some(Instant::now()),
            Err(error @ (StoreError::Full | StoreError::Unavailable(_))) => {
                tracing::error!(%error, "state could not be written");
                *written = None;
            }
            Err(_) => {}
        }
    }

    /// A place among the commits that wait.
    fn admit(self: &Arc<Self>, bytes: usize) -> Result<Admitted, StoreError> {
        let admitted = Admitted {
            inner: Arc::clone(self),
            bytes,
        };
        let commits = self.waiting.fetch_add(1, Ordering::Relaxed);
        let queued = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        // One that is alone may have any size.
        let crowded = queued > 0 && queued.saturating_add(bytes) > MAX_QUEUED_BYTES;
        match crowded || commits >= MAX_QUEUED_COMMITS {
            true => Err(StoreError::Busy),
            false => Ok(admitted),
        }
    }
}

/// A commit that has not ended.
struct Admitted {
    inner: Arc<Inner>,
    bytes: usize,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.inner.waiting.fetch_sub(1, Ordering::Relaxed);
        self.inner.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Store for PostgresStore {
    fn commit(&self, changes: Vec<Change>) -> StoreFuture<'_, ()> {
        let bytes = changes.iter().map(Change::bytes).sum();
        let admitted = match self.inner.admit(bytes) {
            Ok(admitted) => admitted,
            Err(error) => return Box::pin(async move { Err(error) }),
        };
        self.run(async move {
            let inner = Arc::clone(&admitted.inner);
            let author = inner.author;
            let made = inner
                .with(async |lent| author.commit(&mut lent.client, &changes).await)
                .await;
            inner.note(&made);
            made
        })
    }

    fn promise(&self, owner: &Arc<str>) -> StoreFuture<'_, ()> {
        let (inner, owner) = (Arc::clone(&self.inner), Arc::clone(owner));
        self.run(async move {
            let (trusted, author) = (inner.trusts(), inner.author);
            let probed = inner
                .with(async |lent| {
                    let used = query::used(&lent.client, &owner).await?;
                    author.quota.check_room(used)?;
                    if query::total(&lent.client).await? >= author.max_bytes {
                        return Err(StoreError::Full);
                    }
                    match trusted {
                        true => Ok(()),
                        false => commit::probe(&lent.client).await,
                    }
                })
                .await;
            if !trusted || probed.is_err() {
                inner.note(&probed);
            }
            probed
        })
    }

    fn get(&self, key: Key) -> StoreFuture<'_, Option<Record>> {
        let inner = Arc::clone(&self.inner);
        self.run(async move {
            inner
                .with(async |lent| query::get(&lent.client, &key).await)
                .await
        })
    }

    fn list(
        &self,
        owner: &Arc<str>,
        kind: RecordKind,
        page: Page,
        filter: Option<RecordFilter>,
    ) -> StoreFuture<'_, RecordPage<Record>> {
        let (inner, owner) = (Arc::clone(&self.inner), Arc::clone(owner));
        self.run(async move {
            inner
                .with(async |lent| {
                    query::list(&lent.client, &owner, kind, &page, filter.as_ref()).await
                })
                .await
        })
    }

    fn items(&self, parent: Key, page: Page) -> StoreFuture<'_, RecordPage<Item>> {
        let inner = Arc::clone(&self.inner);
        self.run(async move {
            inner
                .with(async |lent| query::items(&lent.client, &parent, &page).await)
                .await
        })
    }

    fn pieces(&self, parent: Key, after: Option<String>) -> StoreFuture<'_, RecordPage<Item>> {
        let inner = Arc::clone(&self.inner);
        self.run(async move {
            inner
                .with(async |lent| query::pieces(&lent.client, &parent, after.as_deref()).await)
                .await
        })
    }

    fn item(&self, parent: Key, id: String) -> StoreFuture<'_, Option<Item>> {
        let inner = Arc::clone(&self.inner);
        self.run(async move {
            inner
                .with(async |lent| query::item(&lent.client, &parent, &id).await)
                .await
        })
    }

    fn unfinished(&self, kind: RecordKind) -> StoreFuture<'_, Vec<Record>> {
        let inner = Arc::clone(&self.inner);
        self.run(async move {
            let host = inner.author.host;
            inner
                .with(async |lent| hosts::unfinished(&lent.client, host, kind).await)
                .await
        })
    }

    fn owners(&self, kind: RecordKind) -> StoreFuture<'_, Vec<Arc<str>>> {
        let inner = Arc::clone(&self.inner);
        self.run(async move {
            inner
                .with(async |lent| query::owners(&lent.client, kind).await)
                .await
        })
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn leave(&self) -> StoreFuture<'_, ()> {
        for task in &self.tasks {
            task.abort();
        }
        let inner = Arc::clone(&self.inner);
        self.run(async move {
            let host = inner.author.host;
            inner
                .with(async |lent| hosts::leave(&lent.client, host).await)
                .await
        })
    }
}
