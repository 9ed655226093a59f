//! Checks of a file: that it is a store, of a version that is known, and whole.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

use crate::error::OpenError;
use crate::schema;

/// The version of a store.
///
/// # Errors
/// When it is a file of something else, or of a later version.
pub(crate) fn version(connection: &Connection, path: &Path) -> Result<i64, OpenError> {
    let (version, application) =
        schema::version(connection).map_err(|error| damaged(path, &error))?;
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(|error| damaged(path, &error))?;
    let empty = version == 0 && application == 0 && tables == 0;
    if !empty && application != schema::APPLICATION_ID {
        return Err(OpenError::Foreign(path.to_owned()));
    }
    let known = schema::known();
    if version > known {
        return Err(OpenError::TooNew {
            path: path.to_owned(),
            found: version,
            known,
        });
    }
    Ok(version)
}

/// Check the integrity of the file by SQLite. `thorough` compares indexes with tables as well.
///
/// # Errors
/// When SQLite finds damage.
pub(crate) fn integrity(
    connection: &Connection,
    path: &Path,
    thorough: bool,
) -> Result<(), OpenError> {
    let pragma = match thorough {
        true => "PRAGMA integrity_check(1)",
        false => QUICK,
    };
    judged(path, found(connection, pragma))
}

/// Quick integrity check of a file within `limit`: false if the check has not come to its end.
pub(crate) fn integrity_within(
    connection: &mut Connection,
    path: &Path,
    limit: Duration,
) -> Result<bool, OpenError> {
    let (begun, clear) = (Instant::now(), None::<fn() -> bool>);
    let too_long = move || begun.elapsed() >= limit;
    let found = connection
        .progress_handler(STEPS, Some(too_long))
        .and_then(|()| found(connection, QUICK));
    connection
        .progress_handler(STEPS, clear)
        .map_err(|error| damaged(path, &error))?;
    match found {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            Ok(false)
        }
        found => judged(path, found).map(|()| true),
    }
}

/// Steps of SQLite between two looks at the clock.
const STEPS: i32 = 1000;

/// Every page and every row, without a comparison of indexes with tables.
const QUICK: &str = "PRAGMA quick_check(1)";

fn found(connection: &Connection, pragma: &str) -> rusqlite::Result<String> {
    connection.query_row(pragma, [], |row| row.get(0))
}

fn judged(path: &Path, found: rusqlite::Result<String>) -> Result<(), OpenError> {
    let found = found.map_err(|error| damaged(path, &error))?;
    match found.as_str() {
        "ok" => Ok(()),
        problem => Err(OpenError::Damaged {
            path: path.to_owned(),
            problem: problem.lines().next().unwrap_or_default().to_owned(),
        }),
    }
}

/// Error of a file that SQLite cannot read: not a database, or damaged.
fn damaged(path: &Path, error: &rusqlite::Error) -> OpenError {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::Foreign(path.to_owned()),
        _ => OpenError::Damaged {
            path: path.to_owned(),
            problem: error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_ends_at_its_limit() {
        let mut connection = Connection::open_in_memory().expect("opens");
        schema::migrate(&connection, 0).expect("tables");
        let fill = "WITH RECURSIVE all_of (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM all_of WHERE n < 20000)
                    INSERT INTO records SELECT n, 'a', 'response', n, 0, NULL, 0, x'00' FROM all_of";
        connection.execute_batch(fill).expect("filled");
        let path = Path::new("state.db");
        let mut within = |limit| integrity_within(&mut connection, path, limit).expect("whole");
        assert!(!within(Duration::ZERO));
        assert!(within(Duration::MAX));
        // The handler is gone afterwards.
        integrity(&connection, path, true).expect("whole");
    }
}
