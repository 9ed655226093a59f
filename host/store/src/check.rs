//! Checks of a file: that it is a store, of a version that is known, and whole.

use std::path::Path;

use rusqlite::Connection;

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

/// Whether SQLite finds the file whole. `thorough` compares indexes with tables as well.
///
/// # Errors
/// When it does not.
pub(crate) fn integrity(
    connection: &Connection,
    path: &Path,
    thorough: bool,
) -> Result<(), OpenError> {
    let pragma = match thorough {
        true => "PRAGMA integrity_check(1)",
        false => "PRAGMA quick_check(1)",
    };
    let found: String = connection
        .query_row(pragma, [], |row| row.get(0))
        .map_err(|error| damaged(path, &error))?;
    match found.as_str() {
        "ok" => Ok(()),
        problem => Err(OpenError::Damaged {
            path: path.to_owned(),
            problem: problem.lines().next().unwrap_or_default().to_owned(),
        }),
    }
}

/// What SQLite says of a file that it cannot read.
fn damaged(path: &Path, error: &rusqlite::Error) -> OpenError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => OpenError::Foreign(path.to_owned()),
        _ => OpenError::Damaged {
            path: path.to_owned(),
            problem: error.to_string(),
        },
    }
}
