//! An audit log in the store: items of one record, whose body is the head.

use std::path::Path;
use std::sync::Arc;

use rusqlite::OptionalExtension as _;

use super::chain::{AuditHead, Checker, seal};
use super::error::AuditError;
use crate::check::version;
use crate::error::StoreError;
use crate::maintenance::{failed, open};
use crate::query::now;
use crate::record::{Change, Item, Key, Record, RecordKind};
use crate::store::Store;

/// Owner of the log, which no caller can be: theirs say first whether they are a tenant.
pub(crate) const OWNER: &str = "audit";

/// Id of the record.
pub(crate) const ID: &str = "log";

/// Attempts to append behind what other hosts append.
const ATTEMPTS: usize = 100;

/// The chain in a store.
pub(super) struct StoreHome {
    store: Arc<dyn Store>,
    head: AuditHead,
}

fn key() -> Key {
    Key::new(&Arc::from(OWNER), RecordKind::Audit, ID)
}

fn record(head: &AuditHead) -> Record {
    Record {
        key: key(),
        created: now(),
        expires: None,
        open: false,
        body: head.to_string().into_bytes(),
    }
}

impl StoreHome {
    /// Take up the log of a store, or begin one.
    pub(super) async fn open(store: Arc<dyn Store>) -> Result<Self, AuditError> {
        let begun = AuditHead::default();
        match store.commit(vec![Change::Create(record(&begun))]).await {
            Ok(()) => Ok(Self { store, head: begun }),
            Err(StoreError::Conflict) => {
                let mut home = Self { store, head: begun };
                home.take_up().await?;
                Ok(home)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn take_up(&mut self) -> Result<(), AuditError> {
        let record = self.store.get(key()).await?;
        self.head = head_of(&record.ok_or(StoreError::NotFound)?.body)?;
        Ok(())
    }

    /// True if the store keeps a log.
    pub(super) async fn is_in(store: &Arc<dyn Store>) -> Result<bool, AuditError> {
        Ok(store.get(key()).await?.is_some())
    }

    /// Append an entry, which is JSON, and wait until the disk has it.
    pub(super) async fn append(&mut self, entry: &str) -> Result<AuditHead, AuditError> {
        let mut attempt = 1;
        loop {
            match self.append_behind(entry).await {
                // Another host that shares the store has appended meanwhile.
                Err(AuditError::Store(StoreError::Conflict)) if attempt < ATTEMPTS => {
                    attempt += 1;
                    self.take_up().await?;
                }
                result => return result,
            }
        }
    }

    async fn append_behind(&mut self, entry: &str) -> Result<AuditHead, AuditError> {
        let (line, head) = seal(&self.head, entry);
        let item = Item {
            id: format!("{:020}", head.number),
            body: line.into_bytes(),
        };
        let changes = vec![
            Change::Append {
                parent: key(),
                items: vec![item],
            },
            Change::Replace {
                record: record(&head),
                before: self.head.to_string().into_bytes(),
            },
        ];
        self.store.commit(changes).await?;
        self.head = head.clone();
        Ok(head)
    }
}

fn head_of(body: &[u8]) -> Result<AuditHead, AuditError> {
    let text = std::str::from_utf8(body).unwrap_or_default();
    let head = text.parse();
    head.map_err(|error| AuditError::Store(StoreError::Unavailable(error)))
}

/// Read the log of a store that is open and check it; `each` gets every entry.
///
/// # Errors
/// When it cannot be read, or its chain is broken or does not hold `known`.
pub async fn read_log(
    store: &dyn Store,
    known: Option<AuditHead>,
    each: &mut (dyn FnMut(&str) + Send),
) -> Result<AuditHead, AuditError> {
    let noted = store.get(key()).await?;
    let noted = head_of(&noted.ok_or(StoreError::NotFound)?.body)?;
    let (mut checker, mut second) = (Checker::new(Some(noted)), Checker::new(known));
    let mut after = None;
    loop {
        let some = store.pieces(key(), after.take()).await?;
        for item in &some.entries {
            let line = std::str::from_utf8(&item.body).unwrap_or_default();
            each(checker.line(line)?);
            second.line(line)?;
        }
        after = some.entries.last().map(|item| item.id.clone());
        if !some.more {
            break;
        }
    }
    second.end()?;
    Ok(checker.end()?)
}

/// Read the log of a store file and check it, beside a running server or without one; `each` gets every entry.
/// Blocks.
///
/// # Errors
/// When it cannot be read, or its chain is broken or does not hold `known`.
pub fn read_store(
    path: &Path,
    known: Option<AuditHead>,
    each: &mut dyn FnMut(&str),
) -> Result<AuditHead, AuditError> {
    let connection = open(path)?;
    version(&connection, path)?;
    let sqlite = |source| AuditError::from(failed(path, source));
    // One view of all of it, whatever a running server appends meanwhile.
    connection.execute_batch("BEGIN").map_err(sqlite)?;
    let record: Option<(i64, Vec<u8>)> = connection
        .query_row(
            "SELECT seq, body FROM records WHERE owner = ?1 AND kind = ?2 AND id = ?3",
            [OWNER, RecordKind::Audit.name(), ID],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()
        .map_err(sqlite)?;
    let Some((record, noted)) = record else {
        return Err(AuditError::Store(StoreError::NotFound));
    };
    let (mut checker, mut second) = (Checker::new(Some(head_of(&noted)?)), Checker::new(known));
    let mut statement = connection
        .prepare("SELECT body FROM items WHERE record = ?1 ORDER BY seq")
        .map_err(sqlite)?;
    let mut rows = statement.query([record]).map_err(sqlite)?;
    while let Some(row) = rows.next().map_err(sqlite)? {
        let body: Vec<u8> = row.get(0).map_err(sqlite)?;
        let line = std::str::from_utf8(&body).unwrap_or_default();
        let checked = checker.line(line).and_then(|entry| {
            second.line(line)?;
            Ok(entry)
        });
        each(checked.map_err(|broken| AuditError::from(broken).at(path))?);
    }
    let ended = second.end().and_then(|_| checker.end());
    ended.map_err(|broken| AuditError::from(broken).at(path))
}
