//! The thread that writes. Commits that wait are written together, each whole or not at all, and acknowledged
//! when the disk has them.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::limits::{MAX_GROUP, MAX_QUEUED_BYTES, MAX_QUEUED_COMMITS};
use crate::query;
use crate::quota::Quota;
use crate::record::{Change, SERVER};

/// Time between two looks for records that have expired.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

/// For so long after a write, the disk counts as one that takes writes.
const TRUSTED: Duration = Duration::from_secs(1);

/// Work of the thread.
enum Task {
    Changes(Vec<Change>),
    /// Whether this owner's state could be written.
    Promise(Arc<str>),
}

struct Job {
    task: Task,
    bytes: usize,
    done: oneshot::Sender<Result<(), StoreError>>,
}

/// Handle of the thread. The thread ends with it.
pub(crate) struct Writer {
    jobs: SyncSender<Job>,
    queued: Arc<AtomicUsize>,
}

impl Writer {
    pub(crate) fn start(connection: Arc<Mutex<Connection>>, quota: Quota) -> std::io::Result<Self> {
        let (jobs, waiting) = sync_channel(MAX_QUEUED_COMMITS);
        let queued = Arc::<AtomicUsize>::default();
        let mut thread = Thread {
            connection,
            quota,
            waiting,
            queued: Arc::clone(&queued),
            written: None,
        };
        std::thread::Builder::new()
            .name("mortise-store".to_owned())
            .spawn(move || thread.run())?;
        Ok(Self { jobs, queued })
    }

    pub(crate) async fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        let bytes = changes.iter().map(Change::bytes).sum();
        self.send(Task::Changes(changes), bytes).await
    }

    pub(crate) async fn promise(&self, owner: Arc<str>) -> Result<(), StoreError> {
        self.send(Task::Promise(owner), 0).await
    }

    async fn send(&self, task: Task, bytes: usize) -> Result<(), StoreError> {
        let queued = self.queued.fetch_add(bytes, Ordering::Relaxed);
        // One that is alone may have any size.
        if queued > 0 && queued.saturating_add(bytes) > MAX_QUEUED_BYTES {
            self.queued.fetch_sub(bytes, Ordering::Relaxed);
            return Err(StoreError::Busy);
        }
        let (done, acknowledged) = oneshot::channel();
        if let Err(error) = self.jobs.try_send(Job { task, bytes, done }) {
            self.queued.fetch_sub(bytes, Ordering::Relaxed);
            return Err(match error {
                TrySendError::Full(_) => StoreError::Busy,
                TrySendError::Disconnected(_) => ended(),
            });
        }
        acknowledged.await.unwrap_or_else(|_| Err(ended()))
    }
}

fn ended() -> StoreError {
    StoreError::Unavailable("its writer has ended".to_owned())
}

struct Thread {
    connection: Arc<Mutex<Connection>>,
    quota: Quota,
    waiting: Receiver<Job>,
    queued: Arc<AtomicUsize>,
    /// When the last write succeeded; `None` after one that failed.
    written: Option<Instant>,
}

impl Thread {
    /// Write until the handle is gone. A panic fails the commits that met it, and nothing else.
    fn run(&mut self) {
        loop {
            match catch_unwind(AssertUnwindSafe(|| self.serve())) {
                Ok(()) => return,
                Err(_) => {
                    tracing::error!("the store's writer panicked and goes on");
                    let _ = self.locked().execute_batch("ROLLBACK");
                }
            }
        }
    }

    fn serve(&mut self) {
        let mut swept = Instant::now();
        loop {
            match self.waiting.recv_timeout(SWEEP_EVERY) {
                Ok(first) => {
                    let mut group = vec![first];
                    group.extend(self.waiting.try_iter().take(MAX_GROUP - 1));
                    self.write(group);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if swept.elapsed() >= SWEEP_EVERY {
                let removed = query::sweep(&self.locked());
                if let Err(error) = removed {
                    tracing::warn!(%error, "expired records could not be removed");
                }
                swept = Instant::now();
            }
        }
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Write a group, and tell each commit how it went.
    fn write(&mut self, group: Vec<Job>) {
        let bytes: usize = group.iter().map(|job| job.bytes).sum();
        let (results, wrote) = self.transaction(&group);
        self.queued.fetch_sub(bytes, Ordering::Relaxed);
        match wrote {
            Ok(true) => self.written = Some(Instant::now()),
            Ok(false) => {}
            Err(()) => self.written = None,
        }
        for (job, result) in group.into_iter().zip(results) {
            if let Err(error @ (StoreError::Full | StoreError::Unavailable(_))) = &result {
                tracing::error!(%error, "state could not be written");
            }
            let _ = job.done.send(result);
        }
    }

    /// The result of each job, and whether anything reached the disk.
    fn transaction(&self, group: &[Job]) -> (Vec<Result<(), StoreError>>, Result<bool, ()>) {
        let connection = self.locked();
        let trusted = self.written.is_some_and(|at| at.elapsed() < TRUSTED);
        let writes = |job: &Job| matches!(job.task, Task::Changes(_)) || !trusted;
        let any = group.iter().any(writes);
        let all = |error: StoreError| vec![Err(error); group.len()];
        if any && let Err(error) = connection.execute_batch("BEGIN IMMEDIATE") {
            return (all(error.into()), Err(()));
        }
        let mut results = Vec::with_capacity(group.len());
        for job in group {
            let result = match &job.task {
                Task::Changes(changes) => self.changes(&connection, changes),
                Task::Promise(owner) => self.promised(&connection, owner, trusted),
            };
            // A full disk ends the whole transaction, and what was written before with it.
            if any && connection.is_autocommit() {
                return (all(result.err().unwrap_or(StoreError::Full)), Err(()));
            }
            results.push(result);
        }
        if any && let Err(error) = connection.execute_batch("COMMIT") {
            let _ = connection.execute_batch("ROLLBACK");
            return (all(error.into()), Err(()));
        }
        let failed = results
            .iter()
            .any(|result| matches!(result, Err(StoreError::Full | StoreError::Unavailable(_))));
        (results, if failed { Err(()) } else { Ok(any) })
    }

    /// The changes of one commit, or none of them.
    fn changes(&self, connection: &Connection, changes: &[Change]) -> Result<(), StoreError> {
        connection.execute_batch("SAVEPOINT one")?;
        let made = changes
            .iter()
            .try_for_each(|change| query::apply(connection, change))
            .and_then(|()| {
                let owners = changes.iter().filter_map(|change| match change {
                    Change::Put(record)
                    | Change::Update(record)
                    | Change::Create(record)
                    | Change::Replace { record, .. } => Some(&*record.key.owner),
                    Change::Append { parent, .. } => Some(&*parent.owner),
                    Change::Delete(_) | Change::DeleteItem { .. } => None,
                });
                let owners: BTreeSet<&str> = owners.collect();
                let mut owners = owners.into_iter().filter(|owner| *owner != SERVER);
                owners.try_for_each(|owner| {
                    query::evict(connection, owner, self.quota)?;
                    self.quota.check(query::used(connection, owner)?)
                })
            });
        if made.is_err() {
            // Without the transaction, which a full disk ends, there is no savepoint any more.
            let _ = connection.execute_batch("ROLLBACK TO one");
        }
        let released = connection.execute_batch("RELEASE one");
        made.and_then(|()| released.map_err(StoreError::from))
    }

    fn promised(
        &self,
        connection: &Connection,
        owner: &str,
        trusted: bool,
    ) -> Result<(), StoreError> {
        if self.quota.evict_above.is_some() {
            return Ok(());
        }
        self.quota.check_room(query::used(connection, owner)?)?;
        if !trusted {
            connection.execute("UPDATE probe SET at = ?1", [query::now()])?;
        }
        Ok(())
    }
}
