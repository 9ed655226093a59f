//! Hosts that share a database: each says that it is there, and takes up the work of those that are not.
//!
//! An open record belongs to the host that wrote it last. While that host is there, no other changes it; when it has been
//! silent for too long, any other may take it over, and from then on the former owner's changes are refused.

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::query::{Parameter, THERE, record};
use crate::error::StoreError;
use crate::limits::MAX_SCANNED;
use crate::record::{Record, RecordKind};

/// Time after which a host that has said nothing is gone. The clock is that of the database.
const GONE: &str = "interval '15 seconds'";

/// Condition: the host of a record is another one, and is there.
pub(super) fn elsewhere(host: &str) -> String {
    format!(
        "(records.open AND records.kind <> 'file' AND records.host <> {host} AND EXISTS (
             SELECT FROM mortise.hosts
             WHERE hosts.id = records.host AND hosts.seen > clock_timestamp() - {GONE}))"
    )
}

/// Enter a host. Returns its number, which no other ever gets.
pub(super) async fn enter(client: &Client) -> Result<i64, tokio_postgres::Error> {
    // Nobody needs the names of those that went long ago.
    client
        .execute(
            "DELETE FROM mortise.hosts WHERE seen < clock_timestamp() - interval '1 day'",
            &[],
        )
        .await?;
    let row = client
        .query_one(
            "INSERT INTO mortise.hosts (seen, steady) VALUES (clock_timestamp(), clock_timestamp()) RETURNING id",
            &[],
        )
        .await?;
    Ok(row.get(0))
}

/// Say that a host is there. A host that could not say so for a while is steady only from now on: others may have been
/// kept from it by the same outage.
pub(super) async fn beat(client: &Client, host: i64) -> Result<(), StoreError> {
    let sql = format!(
        "INSERT INTO mortise.hosts AS known VALUES ($1, clock_timestamp(), clock_timestamp())
         ON CONFLICT (id) DO UPDATE SET seen = clock_timestamp(), steady = CASE
             WHEN known.seen < clock_timestamp() - {GONE} THEN clock_timestamp() ELSE known.steady END"
    );
    client.execute_typed(&sql, &[(&host, Type::INT8)]).await?;
    Ok(())
}

/// Say that a host has gone, and leaves its work to others.
pub(super) async fn leave(client: &Client, host: i64) -> Result<(), StoreError> {
    let sql = "DELETE FROM mortise.hosts WHERE id = $1";
    client.execute_typed(sql, &[(&host, Type::INT8)]).await?;
    Ok(())
}

/// Take over the open records of hosts that are gone, and return all that this host has, the oldest first.
pub(super) async fn unfinished(
    client: &Client,
    host: i64,
    kind: RecordKind,
) -> Result<Vec<Record>, StoreError> {
    let limit = i64::try_from(MAX_SCANNED).unwrap_or(i64::MAX);
    let name = kind.name();
    let parameters: [Parameter<'_>; 3] = [
        (&host, Type::INT8),
        (&name, Type::TEXT),
        (&limit, Type::INT8),
    ];
    // The row of a host that went in order is not there: its work is taken at once. That of one that is silent waits until
    // this host has been there for as long itself.
    let sql = format!(
        "UPDATE mortise.records SET host = $1
         WHERE open AND kind = $2 AND host IS DISTINCT FROM $1 AND seq IN (
             SELECT seq FROM mortise.records AS one LEFT JOIN mortise.hosts ON hosts.id = one.host
             WHERE open AND kind = $2 AND {THERE} AND one.host IS DISTINCT FROM $1
             AND (hosts.id IS NULL OR (hosts.seen < clock_timestamp() - {GONE} AND EXISTS (
                 SELECT FROM mortise.hosts WHERE id = $1 AND steady < clock_timestamp() - {GONE})))
             ORDER BY seq LIMIT $3 FOR UPDATE OF one SKIP LOCKED)"
    );
    client.execute_typed(&sql, &parameters).await?;
    let sql = format!(
        "SELECT id, created, expires, open, body, owner FROM mortise.records
         WHERE host = $1 AND open AND kind = $2 AND {THERE} ORDER BY seq LIMIT $3"
    );
    let rows = client.query_typed(&sql, &parameters).await?;
    let records = rows.iter().map(|row| {
        let owner = std::sync::Arc::from(row.get::<_, String>(5));
        record(row, &owner, kind)
    });
    Ok(records.collect())
}
