//! Statements that read. Expired records count as absent, whether they were removed yet or not.

use std::sync::Arc;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use crate::error::StoreError;
use crate::limits::{MAX_PAGE, MAX_PIECE_BYTES, MAX_SCANNED};
use crate::record::{Item, Key, Page, Record, RecordKind, RecordPage};
use crate::store::RecordFilter;

/// Condition on a record that is there. The clock is that of the database, which all hosts share.
pub(super) const THERE: &str =
    "(expires IS NULL OR expires > extract(epoch FROM clock_timestamp())::bigint)";

/// Records that are read at once where most may be passed over.
const FILTERED: usize = 100;

/// Items that are read at once, however short they are.
const MAX_PIECES: i64 = 4096;

pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

pub(super) fn whole(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The place of a record in the order of all.
async fn sequence(client: &Client, key: &Key) -> Result<Option<i64>, StoreError> {
    let sql = format!(
        "SELECT seq FROM mortise.records WHERE owner = $1 AND kind = $2 AND id = $3 AND {THERE}"
    );
    let found = client
        .query_typed_opt(&sql, &RecordAddress::of(key).parameters())
        .await?;
    Ok(found.map(|row| row.get(0)))
}

/// A record's address, as parameters of a statement.
pub(super) struct RecordAddress<'a> {
    owner: &'a str,
    kind: &'static str,
    id: &'a str,
}

impl<'a> RecordAddress<'a> {
    pub(super) fn of(key: &'a Key) -> Self {
        Self {
            owner: &key.owner,
            kind: key.kind.name(),
            id: &key.id,
        }
    }

    /// The first three parameters of statements on one record.
    pub(super) fn parameters(&self) -> [Parameter<'_>; 3] {
        [
            (&self.owner, Type::TEXT),
            (&self.kind, Type::TEXT),
            (&self.id, Type::TEXT),
        ]
    }
}

pub(super) async fn get(client: &Client, key: &Key) -> Result<Option<Record>, StoreError> {
    let sql = format!(
        "SELECT id, created, expires, open, body FROM mortise.records
         WHERE owner = $1 AND kind = $2 AND id = $3 AND {THERE}"
    );
    let found = client
        .query_typed_opt(&sql, &RecordAddress::of(key).parameters())
        .await?;
    Ok(found.map(|row| record(&row, &key.owner, key.kind)))
}

pub(super) fn record(row: &Row, owner: &Arc<str>, kind: RecordKind) -> Record {
    Record {
        key: Key::new(owner, kind, row.get::<_, String>(0)),
        created: row.get(1),
        expires: row.get(2),
        open: row.get(3),
        body: row.get(4),
    }
}

pub(super) async fn list(
    client: &Client,
    owner: &Arc<str>,
    kind: RecordKind,
    page: &Page,
    filter: Option<&RecordFilter>,
) -> Result<RecordPage<Record>, StoreError> {
    let from = match &page.after {
        None => None,
        Some(id) => {
            let key = Key::new(owner, kind, id.clone());
            let place = sequence(client, &key).await?;
            Some(place.ok_or(StoreError::NotFound)?)
        }
    };
    let (comparison, order, mut from) = direction(page.ascending, from);
    let sql = format!(
        "SELECT id, created, expires, open, body, seq FROM mortise.records
         WHERE owner = $1 AND kind = $2 AND seq {comparison} $3 AND {THERE} ORDER BY seq {order} LIMIT $4"
    );
    let (whose, name) = (&**owner, kind.name());
    let limit = page.limit.min(MAX_PAGE);
    let (mut entries, mut scanned) = (Vec::new(), 0);
    loop {
        let wanted = match filter {
            None => limit + 1,
            Some(_) => FILTERED.min(MAX_SCANNED - scanned),
        };
        let count = whole(wanted);
        let parameters: [Parameter<'_>; 4] = [
            (&whose, Type::TEXT),
            (&name, Type::TEXT),
            (&from, Type::INT8),
            (&count, Type::INT8),
        ];
        let rows = client.query_typed(&sql, &parameters).await?;
        scanned += rows.len();
        for row in &rows {
            from = row.get(5);
            let record = record(row, owner, kind);
            if filter.is_some_and(|filter| !filter(&record)) {
                continue;
            }
            if entries.len() == limit {
                return Ok(RecordPage {
                    entries,
                    more: true,
                });
            }
            entries.push(record);
        }
        if rows.len() < wanted || filter.is_none() || scanned >= MAX_SCANNED {
            return Ok(RecordPage {
                entries,
                more: false,
            });
        }
    }
}

pub(super) async fn items(
    client: &Client,
    parent: &Key,
    page: &Page,
) -> Result<RecordPage<Item>, StoreError> {
    let record = sequence(client, parent).await?;
    let record = record.ok_or(StoreError::NotFound)?;
    let from = place(client, record, page.after.as_deref()).await?;
    let (comparison, order, from) = direction(page.ascending, from);
    let sql = format!(
        "SELECT id, body FROM mortise.items WHERE record = $1 AND seq {comparison} $2
         ORDER BY seq {order} LIMIT $3"
    );
    let limit = page.limit.min(MAX_PAGE);
    let count = whole(limit + 1);
    let parameters: [Parameter<'_>; 3] = [
        (&record, Type::INT8),
        (&from, Type::INT8),
        (&count, Type::INT8),
    ];
    let rows = client.query_typed(&sql, &parameters).await?;
    Ok(RecordPage {
        entries: rows.iter().take(limit).map(item_of).collect(),
        more: rows.len() > limit,
    })
}

fn item_of(row: &Row) -> Item {
    Item {
        id: row.get(0),
        body: row.get(1),
    }
}

/// The place of the item that others follow, if there is one.
async fn place(
    client: &Client,
    record: i64,
    after: Option<&str>,
) -> Result<Option<i64>, StoreError> {
    let Some(id) = after else {
        return Ok(None);
    };
    let sql = "SELECT seq FROM mortise.items WHERE record = $1 AND id = $2";
    let parameters: [Parameter<'_>; 2] = [(&record, Type::INT8), (&id, Type::TEXT)];
    let found = client.query_typed_opt(sql, &parameters).await?;
    let found = found.ok_or(StoreError::NotFound)?;
    Ok(Some(found.get(0)))
}

pub(super) async fn pieces(
    client: &Client,
    parent: &Key,
    after: Option<&str>,
) -> Result<RecordPage<Item>, StoreError> {
    let record = sequence(client, parent).await?;
    let record = record.ok_or(StoreError::NotFound)?;
    let from = place(client, record, after).await?.unwrap_or(i64::MIN);
    // The length of a body is known without reading it.
    let sql = "WITH sized AS (
             SELECT seq, octet_length(body) AS bytes FROM mortise.items
             WHERE record = $1 AND seq > $2 ORDER BY seq LIMIT $3
         ), summed AS (
             SELECT seq, row_number() OVER behind AS number, sum(bytes) OVER behind AS total
             FROM sized WINDOW behind AS (ORDER BY seq)
         )
         SELECT items.id, items.body, (SELECT count(*) FROM sized) FROM summed
         JOIN mortise.items ON items.seq = summed.seq
         WHERE number = 1 OR (total <= $4 AND number < $3) ORDER BY items.seq";
    let most = whole(MAX_PIECE_BYTES);
    let parameters: [Parameter<'_>; 4] = [
        (&record, Type::INT8),
        (&from, Type::INT8),
        (&MAX_PIECES, Type::INT8),
        (&most, Type::INT8),
    ];
    let rows = client.query_typed(sql, &parameters).await?;
    let there = rows.first().map_or(0, |row| row.get::<_, i64>(2));
    Ok(RecordPage {
        entries: rows.iter().map(item_of).collect(),
        more: there > whole(rows.len()),
    })
}

/// The comparison and the order of a page, and the place that it begins behind.
fn direction(ascending: bool, from: Option<i64>) -> (&'static str, &'static str, i64) {
    match ascending {
        true => (">", "ASC", from.unwrap_or(i64::MIN)),
        false => ("<", "DESC", from.unwrap_or(i64::MAX)),
    }
}

pub(super) async fn item(
    client: &Client,
    parent: &Key,
    id: &str,
) -> Result<Option<Item>, StoreError> {
    let Some(record) = sequence(client, parent).await? else {
        return Ok(None);
    };
    let sql = "SELECT id, body FROM mortise.items WHERE record = $1 AND id = $2";
    let parameters: [Parameter<'_>; 2] = [(&record, Type::INT8), (&id, Type::TEXT)];
    let found = client.query_typed_opt(sql, &parameters).await?;
    Ok(found.as_ref().map(item_of))
}

/// Records and bytes of an owner.
pub(super) async fn used(client: &Client, owner: &str) -> Result<(u64, u64), StoreError> {
    let sql = "SELECT records, bytes FROM mortise.usage WHERE owner = $1";
    let found = client.query_typed_opt(sql, &[(&owner, Type::TEXT)]).await?;
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    Ok(found.map_or((0, 0), |row| (count(row.get(0)), count(row.get(1)))))
}

/// Bytes of all owners.
pub(super) async fn total(client: &Client) -> Result<u64, StoreError> {
    let sql = "SELECT coalesce(sum(bytes), 0)::bigint FROM mortise.usage";
    let row = client.query_typed_one(sql, &[]).await?;
    Ok(u64::try_from(row.get::<_, i64>(0)).unwrap_or(0))
}

/// Owners of records of a kind, in the order of their names.
pub(super) async fn owners(client: &Client, kind: RecordKind) -> Result<Vec<Arc<str>>, StoreError> {
    let (name, limit) = (kind.name(), whole(MAX_SCANNED));
    let parameters: [Parameter<'_>; 2] = [(&name, Type::TEXT), (&limit, Type::INT8)];
    let sql = format!(
        "SELECT owner FROM mortise.usage WHERE EXISTS (SELECT FROM mortise.records AS one
         WHERE one.owner = usage.owner AND kind = $1 AND {THERE}) ORDER BY owner LIMIT $2"
    );
    let rows = client.query_typed(&sql, &parameters).await?;
    Ok(rows
        .iter()
        .map(|row| Arc::from(row.get::<_, String>(0)))
        .collect())
}
