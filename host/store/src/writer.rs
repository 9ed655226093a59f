//! The thread that writes. Commits that wait are written together, each whole or not at all, and acknowledged when the
//! operating system has them, which the end of this process cannot undo, or the disk, which the end of the power cannot
//! undo either. Answers are of the first kind unless the operator says otherwise: the disk has them within a second.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::limits::{MAX_GROUP, MAX_QUEUED_BYTES, MAX_QUEUED_COMMITS};
use crate::query;
use crate::quota::Quota;
use crate::record::{Change, RecordKind, SERVER};
use crate::reserve::Reserve;

/// Time between two looks for records that have expired.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

/// For so long after a write, the disk counts as one that takes writes.
const TRUSTED: Duration = Duration::from_secs(1);

/// Time after which the disk has what was acknowledged before.
const SYNC_AFTER: Duration = Duration::from_secs(1);

/// Rules of writing.
pub(crate) struct WriteRules {
    pub(crate) quota: Quota,
    /// Answers are on the disk before they are acknowledged.
    pub(crate) sync_answers: bool,
    /// The file was found to be damaged.
    pub(crate) damaged: Arc<AtomicBool>,
}

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

impl Job {
    fn only_deletes(&self) -> bool {
        let deletes =
            |change: &Change| matches!(change, Change::Delete(_) | Change::DeleteItem { .. });
        match &self.task {
            Task::Changes(changes) => changes.iter().all(deletes),
            Task::Promise(_) => false,
        }
    }
}

/// Handle of the thread. The thread ends with it.
pub(crate) struct StoreWriter {
    jobs: SyncSender<Job>,
    queued: Arc<AtomicUsize>,
}

impl StoreWriter {
    pub(crate) fn start(
        connection: Arc<Mutex<Connection>>,
        rules: WriteRules,
        reserve: Option<Reserve>,
    ) -> std::io::Result<Self> {
        let (jobs, waiting) = sync_channel(MAX_QUEUED_COMMITS);
        let queued = Arc::<AtomicUsize>::default();
        let mut thread = Thread {
            connection,
            rules,
            reserve,
            waiting,
            queued: Arc::clone(&queued),
            written: None,
            unsynced: None,
            failing: false,
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
    rules: WriteRules,
    /// Room for deletes; `None` of a store in memory.
    reserve: Option<Reserve>,
    waiting: Receiver<Job>,
    queued: Arc<AtomicUsize>,
    /// When the last write succeeded; `None` after one that failed.
    written: Option<Instant>,
    /// When the first commit was acknowledged that the disk may not have yet.
    unsynced: Option<Instant>,
    /// The disk failed last: until it has taken something, it must have all that is acknowledged.
    failing: bool,
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
            let due = self
                .unsynced
                .map(|since| SYNC_AFTER.saturating_sub(since.elapsed()));
            match self.waiting.recv_timeout(due.unwrap_or(SWEEP_EVERY)) {
                Ok(first) => {
                    let mut group = vec![first];
                    group.extend(self.waiting.try_iter().take(MAX_GROUP - 1));
                    self.write(group);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.unsynced.is_some_and(|at| at.elapsed() >= SYNC_AFTER) {
                self.sync();
            }
            if swept.elapsed() >= SWEEP_EVERY {
                let removed = query::sweep(&self.locked());
                if let Err(error) = removed {
                    tracing::warn!(%error, "expired records could not be removed");
                }
                if self.written.is_some()
                    && let Some(reserve) = &mut self.reserve
                {
                    reserve.hold();
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

    /// Bring all that was acknowledged to the disk: a commit of something that means nothing takes the log before it
    /// along.
    fn sync(&mut self) {
        self.unsynced = None;
        let connection = self.locked();
        let written = connection
            .execute_batch("PRAGMA synchronous = FULL")
            .and_then(|()| probe(&connection));
        drop(connection);
        if let Err(error) = written {
            tracing::error!(%error, "answers that were acknowledged may not be on the disk");
            self.written = None;
            self.failing = true;
        }
    }

    /// Write a group, and tell each commit how it went.
    fn write(&mut self, group: Vec<Job>) {
        let bytes: usize = group.iter().map(|job| job.bytes).sum();
        let synced = self.failing || group.iter().any(|job| self.must_be_synced(job));
        let jobs: Vec<&Job> = group.iter().collect();
        let (mut results, wrote) = match self.rules.damaged.load(Ordering::Relaxed) {
            true => (vec![Err(damaged()); group.len()], Err(())),
            false => self.transaction(&jobs, synced),
        };
        self.delete_all_the_same(&jobs, &mut results);
        self.queued.fetch_sub(bytes, Ordering::Relaxed);
        match wrote {
            Ok(true) => self.written = Some(Instant::now()),
            Ok(false) => {}
            Err(()) => self.written = None,
        }
        match wrote {
            Ok(true) if synced => self.failing = false,
            Ok(_) => {}
            Err(()) => self.failing = true,
        }
        if wrote == Ok(true) {
            self.unsynced = match synced {
                true => None,
                false => self.unsynced.or(self.written),
            };
        }
        for (job, result) in group.into_iter().zip(results) {
            if let Err(error @ (StoreError::Full | StoreError::Unavailable(_))) = &result {
                tracing::error!(%error, "state could not be written");
            }
            let _ = job.done.send(result);
        }
    }

    /// Make room where there is none: deletes that failed with what they were written with, or for want of room, are
    /// written by themselves, in the room that is kept back for them.
    fn delete_all_the_same(&mut self, jobs: &[&Job], results: &mut [Result<(), StoreError>]) {
        let failed = |result: &&mut Result<(), StoreError>| **result == Err(StoreError::Full);
        let (deletes, results): (Vec<&Job>, Vec<_>) = jobs
            .iter()
            .copied()
            .zip(results.iter_mut())
            .filter(|(job, result)| job.only_deletes() && failed(result))
            .unzip();
        if deletes.is_empty() {
            return;
        }
        let (mut again, wrote) = self.transaction(&deletes, true);
        let released = wrote.is_err() && self.reserve.as_mut().is_some_and(Reserve::release);
        if released {
            tracing::warn!("the disk is full: the room that was kept back for deletes is used");
            (again, _) = self.transaction(&deletes, true);
            // The log begins anew, so that what follows needs no further room.
            let checkpoint = "PRAGMA wal_checkpoint(PASSIVE)";
            let _ = self.locked().query_row(checkpoint, [], |_| Ok(()));
        }
        for (result, again) in results.into_iter().zip(again) {
            *result = again;
        }
    }

    /// True if the disk must have a job before it is acknowledged.
    fn must_be_synced(&self, job: &Job) -> bool {
        match &job.task {
            Task::Changes(changes) => {
                self.rules.sync_answers || !changes.iter().all(may_be_synced_later)
            }
            Task::Promise(_) => false,
        }
    }

    /// The result of each job, and whether anything was written.
    fn transaction(
        &self,
        group: &[&Job],
        synced: bool,
    ) -> (Vec<Result<(), StoreError>>, Result<bool, ()>) {
        let connection = self.locked();
        let trusted = self.written.is_some_and(|at| at.elapsed() < TRUSTED);
        let writes = |job: &&Job| matches!(job.task, Task::Changes(_)) || !trusted;
        let any = group.iter().any(writes);
        let all = |error: StoreError| vec![Err(error); group.len()];
        let begin = match synced {
            true => "PRAGMA synchronous = FULL; BEGIN IMMEDIATE",
            false => "PRAGMA synchronous = NORMAL; BEGIN IMMEDIATE",
        };
        if any && let Err(error) = connection.execute_batch(begin) {
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
                    query::evict(connection, owner, self.rules.quota)?;
                    self.rules.quota.check(query::used(connection, owner)?)
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
        let quota = self.rules.quota;
        if quota.evict_above.is_some() {
            return Ok(());
        }
        quota.check_room(query::used(connection, owner)?)?;
        if !trusted {
            probe(connection)?;
        }
        Ok(())
    }
}

/// Write something that means nothing.
fn probe(connection: &Connection) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached("UPDATE probe SET at = ?1")?;
    statement.execute([query::now()]).map(drop)
}

/// True if a change may reach the disk after it was acknowledged: an answer that has ended, what it adds to a
/// conversation, and a count. Work that is yet to be done, keys and files may not.
fn may_be_synced_later(change: &Change) -> bool {
    match change {
        Change::Put(record) | Change::Update(record) => {
            let kind = record.key.kind;
            !record.open && (is_of_answer(kind) || kind == RecordKind::Counter)
        }
        Change::Append { parent, .. } => {
            is_of_answer(parent.kind) || parent.kind == RecordKind::Conversation
        }
        Change::Create(_)
        | Change::Replace { .. }
        | Change::Delete(_)
        | Change::DeleteItem { .. } => false,
    }
}

fn is_of_answer(kind: RecordKind) -> bool {
    matches!(
        kind,
        RecordKind::Response
            | RecordKind::ResponseEvents
            | RecordKind::ChatCompletion
            | RecordKind::Idempotency
    )
}

fn damaged() -> StoreError {
    StoreError::Unavailable("the file is damaged".to_owned())
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::record::{Key, Record};
    use crate::schema;

    fn put(kind: RecordKind, open: bool) -> Change {
        Change::Put(Record {
            key: Key::new(&Arc::from("a"), kind, "one"),
            created: 0,
            expires: None,
            open,
            body: b"x".to_vec(),
        })
    }

    fn writer(sync_answers: bool, damaged: bool) -> (Arc<Mutex<Connection>>, StoreWriter) {
        let connection = Connection::open_in_memory().expect("opens");
        schema::migrate(&connection, 0).expect("tables");
        let connection = Arc::new(Mutex::new(connection));
        let rules = WriteRules {
            quota: Quota {
                records: 100,
                bytes: 1 << 20,
                evict_above: None,
            },
            sync_answers,
            damaged: Arc::new(AtomicBool::new(damaged)),
        };
        let writer = StoreWriter::start(Arc::clone(&connection), rules, None).expect("a thread");
        (connection, writer)
    }

    #[test]
    fn only_what_has_ended_may_be_synced_later() {
        for kind in RecordKind::ALL {
            let may = is_of_answer(kind) || kind == RecordKind::Counter;
            assert_eq!(may_be_synced_later(&put(kind, false)), may, "{kind:?}");
            assert!(!may_be_synced_later(&put(kind, true)), "{kind:?}");
            let key = Key::new(&Arc::from("a"), kind, "one");
            assert!(!may_be_synced_later(&Change::Delete(key)), "{kind:?}");
        }
        for kind in [
            RecordKind::ApiKey,
            RecordKind::File,
            RecordKind::Batch,
            RecordKind::Audit,
            RecordKind::VectorStore,
        ] {
            assert!(!may_be_synced_later(&put(kind, false)), "{kind:?}");
        }
    }

    #[tokio::test]
    async fn answers_are_synced_within_a_moment_after_they_are_acknowledged() {
        let (connection, writer) = writer(false, false);
        let probed = || -> i64 {
            let connection = connection.lock().expect("not poisoned");
            let read = connection.query_row("SELECT at FROM probe", [], |row| row.get(0));
            read.expect("a row")
        };
        let answer = vec![put(RecordKind::Response, false)];
        writer.commit(answer).await.expect("written");
        let begun = Instant::now();
        while probed() == 0 {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "it is not synced"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    #[tokio::test]
    async fn a_delete_does_not_fail_with_what_finds_no_room() {
        let (connection, writer) = writer(true, false);
        let key = |id: &str| Key::new(&Arc::from(SERVER), RecordKind::Response, id);
        let put = |id: &str, bytes: usize| {
            let record = Record {
                key: key(id),
                body: vec![b'x'; bytes],
                created: 0,
                expires: None,
                open: false,
            };
            vec![Change::Put(record)]
        };
        writer.commit(put("old", 100_000)).await.expect("written");
        let (new, delete) = (put("new", 200_000), vec![Change::Delete(key("old"))]);
        let mut commits = Box::pin(async {
            tokio::join!(
                writer.commit(put("first", 1)),
                writer.commit(new),
                writer.commit(delete)
            )
        });
        {
            let held = connection.lock().expect("not poisoned");
            held.query_row("PRAGMA max_page_count = 1", [], |_| Ok(()))
                .expect("as few pages as there are");
            // The thread waits for the connection, and then writes all that has come together.
            assert!(commits.as_mut().now_or_never().is_none(), "all wait");
        }
        let (_, new, delete) = commits.await;
        assert_eq!((new, delete), (Err(StoreError::Full), Ok(())));
        writer.commit(put("new", 50_000)).await.expect("room");
    }

    #[tokio::test]
    async fn a_damaged_file_takes_no_writes() {
        let (_, writer) = writer(true, true);
        let refused = writer.commit(vec![put(RecordKind::Response, false)]).await;
        assert!(
            matches!(refused, Err(StoreError::Unavailable(_))),
            "{refused:?}"
        );
        let refused = writer.promise(Arc::from("a")).await;
        assert!(
            matches!(refused, Err(StoreError::Unavailable(_))),
            "{refused:?}"
        );
    }
}
