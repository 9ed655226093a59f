//! Maintenance of a store's file: a check, a backup while a server runs, and the return of free space.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use crate::check::{integrity, version};
use crate::error::OpenError;
use crate::record::RecordKind;
use crate::sqlite::{lock, reader};

/// Contents of a store: version, size, and numbers of records, items and owners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreReport {
    /// Version of the tables.
    pub version: i64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Records by kind, without kinds that have none.
    pub records: Vec<(RecordKind, u64)>,
    /// Items of all records.
    pub items: u64,
    /// Number of owners.
    pub owners: u64,
}

/// Check a store, beside a running server or without one.
///
/// # Errors
/// When it is damaged, of something else, of a later version, or cannot be read.
pub fn check(path: &Path) -> Result<StoreReport, OpenError> {
    let connection = open(path)?;
    let version = version(&connection, path)?;
    integrity(&connection, path, true)?;
    let sqlite = |source| failed(path, source);
    let count = |sql: &str, kind: &[&str]| -> Result<u64, OpenError> {
        let parameters = rusqlite::params_from_iter(kind);
        let found = connection.query_row(sql, parameters, |row| row.get::<_, i64>(0));
        found
            .map(|count| u64::try_from(count).unwrap_or(0))
            .map_err(sqlite)
    };
    let mut records = Vec::new();
    for kind in RecordKind::ALL {
        let found = count(
            "SELECT count(*) FROM records WHERE kind = ?1",
            &[kind.name()],
        )?;
        if found > 0 {
            records.push((kind, found));
        }
    }
    let wrong = count(
        "SELECT count(*) FROM usage WHERE records <>
         (SELECT count(*) FROM records WHERE records.owner = usage.owner)",
        &[],
    )?;
    if wrong > 0 {
        return Err(OpenError::Damaged {
            path: path.to_owned(),
            problem: format!("the sums of {wrong} owners are wrong"),
        });
    }
    Ok(StoreReport {
        version,
        bytes: std::fs::metadata(path).map_or(0, |file| file.len()),
        records,
        items: count("SELECT count(*) FROM items", &[])?,
        owners: count("SELECT count(*) FROM usage", &[])?,
    })
}

/// Copy a store to a file that is not there yet, beside a running server or without one.
///
/// # Errors
/// When it cannot be read, or the copy cannot be written.
pub fn backup(path: &Path, target: &Path) -> Result<(), OpenError> {
    let connection = open(path)?;
    version(&connection, path)?;
    // Made first, so that nothing that is there is written over.
    let made = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(target);
    made.map_err(|source| OpenError::Unusable {
        path: target.to_owned(),
        source,
    })?;
    connection
        .backup("main", target, None::<fn(rusqlite::backup::Progress)>)
        .map_err(|source| failed(target, source))
}

/// Give free space back to the disk. Nothing else may use the store meanwhile.
///
/// # Errors
/// When a server runs, or the file cannot be written.
pub fn vacuum(path: &Path) -> Result<(), OpenError> {
    drop(open(path)?);
    let _lock = lock(path)?;
    let sqlite = |source| failed(path, source);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(sqlite)?;
    version(&connection, path)?;
    connection
        .execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE);")
        .map_err(sqlite)
}

/// A store that is there, for reading.
pub(crate) fn open(path: &Path) -> Result<Connection, OpenError> {
    let file = std::fs::File::open(path);
    file.map_err(|source| OpenError::Unusable {
        path: path.to_owned(),
        source,
    })?;
    reader(path).map_err(|source| failed(path, source))
}

pub(crate) fn failed(path: &Path, source: rusqlite::Error) -> OpenError {
    OpenError::Sqlite {
        path: path.to_owned(),
        source,
    }
}
