//! Checks of a store's database, for operators.

use std::time::{Duration, Instant};

use super::config::PostgresConfig;
use super::failure::open_failure;
use super::pool::ConnectionPool;
use super::schema;
use crate::error::OpenError;
use crate::maintenance::StoreReport;
use crate::record::RecordKind;

/// Time that one statement of a check may take.
const CHECK_TIME: Duration = Duration::from_secs(3600);

/// Check the tables of a database, beside running servers or without them: their version, and that sums by owner are
/// those of what is there. Returns what they hold, and the time of one question and its answer.
///
/// # Errors
/// When the database does not answer, or its tables are of something else, of a later version, or wrong.
pub async fn check_database(config: &PostgresConfig) -> Result<(StoreReport, Duration), OpenError> {
    let place = config.place();
    let failed = |error| open_failure(&place, &error);
    let client = ConnectionPool::new(config.parts())
        .connect()
        .await
        .map_err(failed)?;
    let asked = Instant::now();
    client.query_one("SELECT 1", &[]).await.map_err(failed)?;
    let time = asked.elapsed();
    let version = schema::version(&client, &place).await?;
    let version = version.ok_or_else(|| OpenError::NoTables(place.clone()))?;
    schema::check(version, &place)?;
    let settings = format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = {}",
        CHECK_TIME.as_millis()
    );
    client.batch_execute(&settings).await.map_err(failed)?;
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    let sql = "SELECT count(*) FROM (
            SELECT owner, count(*) AS records, sum(octet_length(body) + coalesce((
                SELECT sum(octet_length(items.body)) FROM mortise.items WHERE items.record = records.seq), 0)) AS bytes
            FROM mortise.records WHERE owner <> 'server' GROUP BY owner) AS found
        FULL JOIN mortise.usage USING (owner)
        WHERE found.records IS DISTINCT FROM usage.records OR found.bytes IS DISTINCT FROM usage.bytes";
    let wrong = client.query_one(sql, &[]).await.map_err(failed)?;
    let wrong: i64 = wrong.get(0);
    if wrong > 0 {
        return Err(OpenError::Damaged {
            path: place.into(),
            problem: format!("the sums of {wrong} owners are wrong"),
        });
    }
    let sql = "SELECT kind, count(*) FROM mortise.records GROUP BY kind";
    let rows = client.query(sql, &[]).await.map_err(failed)?;
    let of = |kind: RecordKind| {
        let row = rows.iter().find(|row| row.get::<_, &str>(0) == kind.name());
        row.map(|row| (kind, count(row.get(1))))
    };
    let records = RecordKind::ALL.into_iter().filter_map(of).collect();
    let sql = "SELECT (SELECT count(*) FROM mortise.items), (SELECT count(DISTINCT owner) FROM mortise.records),
               (SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
                WHERE relnamespace = 'mortise'::regnamespace AND relkind = 'r')";
    let row = client.query_one(sql, &[]).await.map_err(failed)?;
    let report = StoreReport {
        version,
        bytes: count(row.get(2)),
        records,
        items: count(row.get(0)),
        owners: count(row.get(1)),
    };
    Ok((report, time))
}
