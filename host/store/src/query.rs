//! The statements. Expired records count as absent, whether they were removed yet or not.

use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::error::StoreError;
use crate::limits::{
    MAX_BODY_BYTES, MAX_ID_BYTES, MAX_PAGE, MAX_PIECE_BYTES, MAX_SCANNED, MAX_SWEPT,
};
use crate::quota::Quota;
use crate::record::{Change, Item, Key, Page, Record, RecordKind, RecordPage, SERVER};
use crate::store::RecordFilter;

/// Seconds since 1970.
pub(crate) fn now() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    elapsed.map_or(0, |elapsed| {
        i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX)
    })
}

/// Make one change.
pub(crate) fn apply(connection: &Connection, change: &Change) -> Result<(), StoreError> {
    match change {
        Change::Put(record) => put(connection, record),
        Change::Update(record) => match sequence(connection, &record.key)? {
            Some(_) => put(connection, record),
            None => Err(StoreError::NotFound),
        },
        Change::Create(record) => match sequence(connection, &record.key)? {
            Some(_) => Err(StoreError::Conflict),
            None => put(connection, record),
        },
        Change::Replace { record, before } => match get(connection, &record.key)? {
            Some(there) if there.body == *before => put(connection, record),
            _ => Err(StoreError::Conflict),
        },
        Change::Delete(key) => {
            connection
                .prepare_cached("DELETE FROM records WHERE owner = ?1 AND kind = ?2 AND id = ?3")?
                .execute(params![&*key.owner, key.kind.name(), key.id])?;
            Ok(())
        }
        Change::Append { parent, items } => append(connection, parent, items),
        Change::DeleteItem { parent, id } => {
            if let Some(record) = sequence(connection, parent)? {
                connection
                    .prepare_cached("DELETE FROM items WHERE record = ?1 AND id = ?2")?
                    .execute(params![record, id])?;
            }
            Ok(())
        }
    }
}

fn put(connection: &Connection, record: &Record) -> Result<(), StoreError> {
    let key = &record.key;
    check_size(&key.id, &record.body)?;
    connection
        .prepare_cached(
            "INSERT INTO records (owner, kind, id, created, expires, open, body)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (owner, kind, id) DO UPDATE SET
             created = excluded.created, expires = excluded.expires, open = excluded.open,
             body = excluded.body",
        )?
        .execute(params![
            &*key.owner,
            key.kind.name(),
            key.id,
            record.created,
            record.expires,
            record.open,
            record.body
        ])?;
    Ok(())
}

fn append(connection: &Connection, parent: &Key, items: &[Item]) -> Result<(), StoreError> {
    let record = sequence(connection, parent)?.ok_or(StoreError::NotFound)?;
    let mut statement = connection.prepare_cached(
        "INSERT INTO items (record, owner, id, body) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (record, id) DO NOTHING",
    )?;
    for item in items {
        check_size(&item.id, &item.body)?;
        statement.execute(params![record, &*parent.owner, item.id, item.body])?;
    }
    Ok(())
}

fn check_size(id: &str, body: &[u8]) -> Result<(), StoreError> {
    for (bytes, limit) in [(body.len(), MAX_BODY_BYTES), (id.len(), MAX_ID_BYTES)] {
        if bytes > limit {
            return Err(StoreError::TooLarge { bytes, limit });
        }
    }
    Ok(())
}

/// The place of a record in the order of all.
fn sequence(connection: &Connection, key: &Key) -> Result<Option<i64>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT seq FROM records WHERE owner = ?1 AND kind = ?2 AND id = ?3
         AND (expires IS NULL OR expires > ?4)",
    )?;
    let found = statement.query_row(
        params![&*key.owner, key.kind.name(), key.id, now()],
        |row| row.get(0),
    );
    Ok(found.optional()?)
}

/// Evict the oldest records of an owner above its quota, and of the largest owner where all owners together are above
/// the limit. Open records stay.
pub(crate) fn evict(connection: &Connection, owner: &str, quota: Quota) -> Result<(), StoreError> {
    let Some(most) = quota.evict_above else {
        return Ok(());
    };
    loop {
        let (records, bytes) = used(connection, owner)?;
        let total: i64 = connection
            .prepare_cached("SELECT ifnull(sum(bytes), 0) FROM usage WHERE owner <> ?1")?
            .query_row([SERVER], |row| row.get(0))?;
        let crowded = u64::try_from(total).unwrap_or(0) > most;
        if records <= quota.records && bytes <= quota.bytes && !crowded {
            return Ok(());
        }
        let removed = connection.prepare_cached("DELETE FROM records WHERE seq IN
             (SELECT seq FROM records WHERE open = 0
              AND owner = iif(?2, (SELECT owner FROM usage WHERE owner <> ?3 ORDER BY bytes DESC LIMIT 1), ?1)
              AND seq < (SELECT max(seq) FROM records) ORDER BY seq LIMIT 16)")?.execute(
            params![owner, crowded, SERVER],
        )?;
        if removed == 0 {
            return Ok(());
        }
    }
}

/// Records and bytes of an owner.
pub(crate) fn used(connection: &Connection, owner: &str) -> Result<(u64, u64), StoreError> {
    let found = connection
        .prepare_cached("SELECT records, bytes FROM usage WHERE owner = ?1")?
        .query_row([owner], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        })
        .optional()?;
    let (records, bytes) = found.unwrap_or_default();
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    Ok((count(records), count(bytes)))
}

/// Remove some of the records that have expired. Returns how many.
pub(crate) fn sweep(connection: &Connection) -> Result<usize, StoreError> {
    let limit = i64::try_from(MAX_SWEPT).unwrap_or(i64::MAX);
    Ok(connection
        .prepare_cached(
            "DELETE FROM records WHERE seq IN
         (SELECT seq FROM records WHERE expires <= ?1 ORDER BY expires LIMIT ?2)",
        )?
        .execute(params![now(), limit])?)
}

pub(crate) fn get(connection: &Connection, key: &Key) -> Result<Option<Record>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT id, created, expires, open, body FROM records
         WHERE owner = ?1 AND kind = ?2 AND id = ?3 AND (expires IS NULL OR expires > ?4)",
    )?;
    let found = statement.query_row(
        params![&*key.owner, key.kind.name(), key.id, now()],
        |row| record(row, &key.owner, key.kind),
    );
    Ok(found.optional()?)
}

fn record(
    row: &Row<'_>,
    owner: &std::sync::Arc<str>,
    kind: RecordKind,
) -> rusqlite::Result<Record> {
    Ok(Record {
        key: Key::new(owner, kind, row.get::<_, String>(0)?),
        created: row.get(1)?,
        expires: row.get(2)?,
        open: row.get(3)?,
        body: row.get(4)?,
    })
}

pub(crate) fn list(
    connection: &Connection,
    owner: &std::sync::Arc<str>,
    kind: RecordKind,
    page: &Page,
    filter: Option<&RecordFilter>,
) -> Result<RecordPage<Record>, StoreError> {
    let from = match &page.after {
        None => None,
        Some(id) => {
            let key = Key::new(owner, kind, id.clone());
            Some(sequence(connection, &key)?.ok_or(StoreError::NotFound)?)
        }
    };
    let (comparison, order, from) = direction(page.ascending, from);
    let mut statement = connection.prepare_cached(&format!(
        "SELECT id, created, expires, open, body FROM records
         WHERE owner = ?1 AND kind = ?2 AND seq {comparison} ?3
         AND (expires IS NULL OR expires > ?4) ORDER BY seq {order} LIMIT ?5"
    ))?;
    let scanned = i64::try_from(MAX_SCANNED).unwrap_or(i64::MAX);
    let rows = statement.query_map(
        params![&**owner, kind.name(), from, now(), scanned],
        |row| record(row, owner, kind),
    )?;
    let rows = rows.filter(|row| match (row, filter) {
        (Ok(record), Some(filter)) => filter(record),
        _ => true,
    });
    collect(rows, page.limit)
}

pub(crate) fn items(
    connection: &Connection,
    parent: &Key,
    page: &Page,
) -> Result<RecordPage<Item>, StoreError> {
    let record = sequence(connection, parent)?.ok_or(StoreError::NotFound)?;
    let from = place(connection, record, page.after.as_deref())?;
    let (comparison, order, from) = direction(page.ascending, from);
    let mut statement = connection.prepare_cached(&format!(
        "SELECT id, body FROM items WHERE record = ?1 AND seq {comparison} ?2
         ORDER BY seq {order} LIMIT ?3"
    ))?;
    let limit = i64::try_from(page.limit.min(MAX_PAGE) + 1).unwrap_or(i64::MAX);
    let rows = statement.query_map(params![record, from, limit], |row| {
        Ok(Item {
            id: row.get(0)?,
            body: row.get(1)?,
        })
    })?;
    collect(rows, page.limit)
}

/// The place of the item that others follow, if there is one.
fn place(
    connection: &Connection,
    record: i64,
    after: Option<&str>,
) -> Result<Option<i64>, StoreError> {
    let Some(id) = after else {
        return Ok(None);
    };
    let found = connection
        .prepare_cached("SELECT seq FROM items WHERE record = ?1 AND id = ?2")?
        .query_row(params![record, id], |row| row.get(0));
    found.optional()?.map(Some).ok_or(StoreError::NotFound)
}

pub(crate) fn pieces(
    connection: &Connection,
    parent: &Key,
    after: Option<&str>,
) -> Result<RecordPage<Item>, StoreError> {
    let record = sequence(connection, parent)?.ok_or(StoreError::NotFound)?;
    let from = place(connection, record, after)?.unwrap_or(i64::MIN);
    let mut statement = connection.prepare_cached(
        "SELECT id, length(body), body FROM items WHERE record = ?1 AND seq > ?2 ORDER BY seq",
    )?;
    let mut rows = statement.query(params![record, from])?;
    let (mut entries, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        bytes += usize::try_from(row.get::<_, i64>(1)?).unwrap_or(usize::MAX);
        if !entries.is_empty() && bytes > MAX_PIECE_BYTES {
            return Ok(RecordPage {
                entries,
                more: true,
            });
        }
        entries.push(Item {
            id: row.get(0)?,
            body: row.get(2)?,
        });
    }
    Ok(RecordPage {
        entries,
        more: false,
    })
}

/// The comparison and the order of a page, and the place that it begins behind.
fn direction(ascending: bool, from: Option<i64>) -> (&'static str, &'static str, i64) {
    match ascending {
        true => (">", "ASC", from.unwrap_or(i64::MIN)),
        false => ("<", "DESC", from.unwrap_or(i64::MAX)),
    }
}

/// Collect the rows of a page, and whether there is one more.
fn collect<T>(
    mut rows: impl Iterator<Item = rusqlite::Result<T>>,
    limit: usize,
) -> Result<RecordPage<T>, StoreError> {
    let limit = limit.min(MAX_PAGE);
    let mut entries = Vec::new();
    for row in rows.by_ref().take(limit) {
        entries.push(row?);
    }
    Ok(RecordPage {
        entries,
        more: rows.next().transpose()?.is_some(),
    })
}

pub(crate) fn item(
    connection: &Connection,
    parent: &Key,
    id: &str,
) -> Result<Option<Item>, StoreError> {
    let Some(record) = sequence(connection, parent)? else {
        return Ok(None);
    };
    let found = connection
        .prepare_cached("SELECT id, body FROM items WHERE record = ?1 AND id = ?2")?
        .query_row(params![record, id], |row| {
            Ok(Item {
                id: row.get(0)?,
                body: row.get(1)?,
            })
        });
    Ok(found.optional()?)
}

/// Owners of records of a kind. The sums by owner are few beside the records, which have no index by their kind alone.
pub(crate) fn owners(
    connection: &Connection,
    kind: RecordKind,
) -> Result<Vec<std::sync::Arc<str>>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT owner FROM usage WHERE EXISTS (SELECT 1 FROM records AS one WHERE one.owner = usage.owner
         AND one.kind = ?1 AND (one.expires IS NULL OR one.expires > ?2)) ORDER BY owner LIMIT ?3",
    )?;
    let limit = i64::try_from(MAX_SCANNED).unwrap_or(i64::MAX);
    let rows = statement.query_map(params![kind.name(), now(), limit], |row| {
        Ok(std::sync::Arc::from(row.get::<_, String>(0)?))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(crate) fn unfinished(
    connection: &Connection,
    kind: RecordKind,
) -> Result<Vec<Record>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT id, created, expires, open, body, owner FROM records
         WHERE kind = ?1 AND open = 1 AND (expires IS NULL OR expires > ?2) ORDER BY seq LIMIT ?3",
    )?;
    let limit = i64::try_from(MAX_SCANNED).unwrap_or(i64::MAX);
    let rows = statement.query_map(params![kind.name(), now(), limit], |row| {
        let owner = std::sync::Arc::from(row.get::<_, String>(5)?);
        record(row, &owner, kind)
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
