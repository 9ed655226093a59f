//! Statements that write. Commits of one owner happen one after the other, whichever hosts they come from, so that items
//! and lists have one order and quotas hold.

use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Transaction};

use super::failure::passes;
use super::hosts::elsewhere;
use super::query::{self, Parameter, RecordAddress, THERE};
use crate::error::StoreError;
use crate::limits::{MAX_BODY_BYTES, MAX_ID_BYTES, MAX_SWEPT};
use crate::quota::Quota;
use crate::record::{Change, Item, Key, Record, RecordKind, SERVER};

/// Attempts where transactions of several hosts were in each other's way.
const ATTEMPTS: usize = 4;

/// The writing side of one host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Author {
    pub(super) host: i64,
    pub(super) quota: Quota,
    /// Bytes of all owners.
    pub(super) max_bytes: u64,
}

/// A failure, and whether the same again may succeed.
enum Failure {
    Passes(StoreError),
    Stays(StoreError),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        match passes(&error) {
            true => Self::Passes(error.into()),
            false => Self::Stays(error.into()),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Stays(error)
    }
}

impl Author {
    /// Make changes, all or none.
    pub(super) async fn commit(
        &self,
        client: &mut Client,
        changes: &[Change],
    ) -> Result<(), StoreError> {
        let mut attempt = 1;
        loop {
            match self.attempt(client, changes).await {
                Ok(()) => return Ok(()),
                Err(Failure::Passes(_)) if attempt < ATTEMPTS => attempt += 1,
                Err(Failure::Passes(error) | Failure::Stays(error)) => return Err(error),
            }
        }
    }

    async fn attempt(&self, client: &mut Client, changes: &[Change]) -> Result<(), Failure> {
        let transaction = client.transaction().await?;
        lock(&transaction, changes.iter().map(key_of)).await?;
        for change in changes {
            self.apply(&transaction, change).await?;
        }
        let owners = changes.iter().filter(|change| adds(change)).map(key_of);
        let owners: BTreeSet<&str> = owners.map(|key| &*key.owner).collect();
        for owner in owners.into_iter().filter(|owner| *owner != SERVER) {
            let used = query::used(transaction.client(), owner).await?;
            self.quota.check(used)?;
            if query::total(transaction.client()).await? > self.max_bytes {
                return Err(StoreError::Full.into());
            }
        }
        Ok(transaction.commit().await?)
    }

    async fn apply(&self, transaction: &Transaction<'_>, change: &Change) -> Result<(), Failure> {
        match change {
            Change::Put(record) => self.put(transaction, record).await,
            Change::Update(record) => match sequence(transaction, &record.key).await? {
                Some(_) => self.put(transaction, record).await,
                None => Err(StoreError::NotFound.into()),
            },
            Change::Create(record) => {
                let sql = format!(
                    "SELECT {} FROM mortise.records
                     WHERE owner = $1 AND kind = $2 AND id = $3 AND {THERE}",
                    elsewhere("$4")
                );
                let address = RecordAddress::of(&record.key);
                let [owner, kind, id] = address.parameters();
                let all = [owner, kind, id, (&self.host as _, Type::INT8)];
                match transaction.query_typed_opt(&sql, &all).await? {
                    // What a host that is gone has left open is made anew.
                    Some(row) if !self.left(transaction, record, row.get(0)).await? => {
                        Err(StoreError::Conflict.into())
                    }
                    _ => self.put(transaction, record).await,
                }
            }
            Change::Replace { record, before } => {
                let sql = format!(
                    "SELECT body = $4 FROM mortise.records
                     WHERE owner = $1 AND kind = $2 AND id = $3 AND {THERE}"
                );
                let address = RecordAddress::of(&record.key);
                let [owner, kind, id] = address.parameters();
                let all = [owner, kind, id, (before as _, Type::BYTEA)];
                match transaction.query_typed_opt(&sql, &all).await? {
                    Some(row) if row.get(0) => self.put(transaction, record).await,
                    _ => Err(StoreError::Conflict.into()),
                }
            }
            Change::Delete(key) => {
                let sql = "DELETE FROM mortise.records WHERE owner = $1 AND kind = $2 AND id = $3";
                transaction
                    .execute_typed(sql, &RecordAddress::of(key).parameters())
                    .await?;
                Ok(())
            }
            Change::Append { parent, items } => append(transaction, parent, items).await,
            Change::DeleteItem { parent, id } => {
                if let Some(record) = sequence(transaction, parent).await? {
                    let sql = "DELETE FROM mortise.items WHERE record = $1 AND id = $2";
                    let all: [Parameter<'_>; 2] = [(&record, Type::INT8), (id, Type::TEXT)];
                    transaction.execute_typed(sql, &all).await?;
                }
                Ok(())
            }
        }
    }

    /// True if the record that is there is open, and its host is gone.
    async fn left(
        &self,
        transaction: &Transaction<'_>,
        record: &Record,
        elsewhere: bool,
    ) -> Result<bool, Failure> {
        if elsewhere {
            return Ok(false);
        }
        let sql = "SELECT open AND host IS DISTINCT FROM $4 FROM mortise.records
                   WHERE owner = $1 AND kind = $2 AND id = $3";
        let address = RecordAddress::of(&record.key);
        let [owner, kind, id] = address.parameters();
        let all = [owner, kind, id, (&self.host as _, Type::INT8)];
        Ok(transaction.query_typed_one(sql, &all).await?.get(0))
    }

    async fn put(&self, transaction: &Transaction<'_>, record: &Record) -> Result<(), Failure> {
        check_size(&record.key.id, &record.body)?;
        let sql = format!(
            "INSERT INTO mortise.records (owner, kind, id, created, expires, open, body, host)
             VALUES ($1, $2, $3, $4, $5, $6, $7, CASE WHEN $6 THEN $8 END)
             ON CONFLICT (owner, kind, id) DO UPDATE SET
                 created = excluded.created, expires = excluded.expires, open = excluded.open,
                 body = excluded.body, host = excluded.host
             WHERE NOT {}",
            elsewhere("$8")
        );
        let address = RecordAddress::of(&record.key);
        let [owner, kind, id] = address.parameters();
        let all: [Parameter<'_>; 8] = [
            owner,
            kind,
            id,
            (&record.created, Type::INT8),
            (&record.expires, Type::INT8),
            (&record.open, Type::BOOL),
            (&record.body, Type::BYTEA),
            (&self.host, Type::INT8),
        ];
        match transaction.execute_typed(&sql, &all).await? {
            0 => Err(StoreError::Conflict.into()),
            _ => Ok(()),
        }
    }
}

/// Make the transaction wait for others that write what it writes.
async fn lock(
    transaction: &Transaction<'_>,
    keys: impl Iterator<Item = &Key>,
) -> Result<(), tokio_postgres::Error> {
    let locks: BTreeSet<i64> = keys.map(lock_of).collect();
    // In one order, so that no two wait for each other.
    let locks: Vec<i64> = locks.into_iter().collect();
    let sql = "SELECT pg_advisory_xact_lock(lock) FROM unnest($1::bigint[]) AS lock";
    let all: [Parameter<'_>; 1] = [(&locks, Type::INT8_ARRAY)];
    transaction.query_typed(sql, &all).await.map(drop)
}

/// A number for a key, which another key has by accident only.
pub(super) fn number_of(key: &Key) -> i64 {
    let mut hash = Sha256::new();
    for part in [key.owner.as_bytes(), key.kind.name().as_bytes()] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.update(key.id.as_bytes());
    first_of(hash)
}

fn first_of(hash: Sha256) -> i64 {
    let digest: [u8; 32] = hash.finalize().into();
    digest
        .first_chunk()
        .map_or(0, |bytes| i64::from_le_bytes(*bytes))
}

/// The lock of an owner; of the server's own records, which belong to nobody who could wait, each has its own.
fn lock_of(key: &Key) -> i64 {
    let mut hash = Sha256::new();
    hash.update(key.owner.as_bytes());
    if &*key.owner == SERVER {
        hash.update([0]);
        hash.update(key.kind.name());
        hash.update([0]);
        hash.update(key.id.as_bytes());
    }
    first_of(hash)
}

fn key_of(change: &Change) -> &Key {
    match change {
        Change::Put(record) | Change::Update(record) | Change::Create(record) => &record.key,
        Change::Replace { record, .. } => &record.key,
        Change::Delete(key) => key,
        Change::Append { parent, .. } | Change::DeleteItem { parent, .. } => parent,
    }
}

/// True if a change may take room.
fn adds(change: &Change) -> bool {
    !matches!(change, Change::Delete(_) | Change::DeleteItem { .. })
}

async fn sequence(
    transaction: &Transaction<'_>,
    key: &Key,
) -> Result<Option<i64>, tokio_postgres::Error> {
    let sql = format!(
        "SELECT seq FROM mortise.records WHERE owner = $1 AND kind = $2 AND id = $3 AND {THERE}"
    );
    let found = transaction
        .query_typed_opt(&sql, &RecordAddress::of(key).parameters())
        .await?;
    Ok(found.map(|row| row.get(0)))
}

async fn append(
    transaction: &Transaction<'_>,
    parent: &Key,
    items: &[Item],
) -> Result<(), Failure> {
    let record = sequence(transaction, parent).await?;
    let record = record.ok_or(StoreError::NotFound)?;
    let (mut ids, mut bodies) = (Vec::new(), Vec::new());
    for item in items {
        check_size(&item.id, &item.body)?;
        ids.push(&*item.id);
        bodies.push(&*item.body);
    }
    let sql = "INSERT INTO mortise.items (record, owner, id, body)
               SELECT $1, $2, id, body
               FROM unnest($3::text[], $4::bytea[]) WITH ORDINALITY AS given (id, body, place) ORDER BY place
               ON CONFLICT (record, id) DO NOTHING";
    let owner = &*parent.owner;
    let all: [Parameter<'_>; 4] = [
        (&record, Type::INT8),
        (&owner, Type::TEXT),
        (&ids, Type::TEXT_ARRAY),
        (&bodies, Type::BYTEA_ARRAY),
    ];
    transaction.execute_typed(sql, &all).await?;
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

/// Remove some of the records that have expired, of one owner after the other. Returns how many.
pub(super) async fn sweep(client: &mut Client) -> Result<u64, StoreError> {
    let gone = format!("NOT {THERE}");
    let sql = format!(
        "SELECT DISTINCT owner FROM (SELECT owner FROM mortise.records WHERE {gone} ORDER BY expires LIMIT $1) AS expired"
    );
    let limit = i64::try_from(MAX_SWEPT).unwrap_or(i64::MAX);
    let limited: [Parameter<'_>; 1] = [(&limit, Type::INT8)];
    let owners = client.query_typed(&sql, &limited).await?;
    let mut removed = 0;
    for row in owners {
        let owner: String = row.get(0);
        let transaction = client.transaction().await?;
        let any = Key::new(&owner.as_str().into(), RecordKind::Response, "");
        lock(&transaction, std::iter::once(&any)).await?;
        let sql = format!(
            "DELETE FROM mortise.records WHERE seq IN (
                 SELECT seq FROM mortise.records WHERE owner = $1 AND {gone} ORDER BY expires LIMIT $2)"
        );
        let all: [Parameter<'_>; 2] = [(&owner, Type::TEXT), (&limit, Type::INT8)];
        removed += transaction.execute_typed(&sql, &all).await?;
        transaction.commit().await?;
    }
    Ok(removed)
}

/// Write something that means nothing, to see whether anything can be written.
pub(super) async fn probe(client: &Client) -> Result<(), StoreError> {
    let sql = "UPDATE mortise.probe SET at = clock_timestamp()";
    client.execute_typed(sql, &[]).await?;
    Ok(())
}
