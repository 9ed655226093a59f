//! Tables, and how a file of an earlier version becomes one of this.

use rusqlite::Connection;

/// Marks a file as a store of mortise: `mort`.
pub(crate) const APPLICATION_ID: i64 = 0x6d6f_7274;

/// The steps from each version to the next; a new step is appended, and none is ever changed.
const MIGRATIONS: [&str; 1] = [VERSION_1];

/// Sums by owner are kept by triggers, so that no statement can forget them.
const VERSION_1: &str = "
CREATE TABLE records (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER,
    open INTEGER NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (owner, kind, id)
) STRICT;
CREATE INDEX records_in_order ON records (owner, kind, seq);
CREATE INDEX records_by_expiry ON records (expires) WHERE expires IS NOT NULL;
CREATE INDEX records_unfinished ON records (kind, seq) WHERE open = 1;

CREATE TABLE items (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    record INTEGER NOT NULL REFERENCES records (seq) ON DELETE CASCADE,
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (record, id)
) STRICT;
CREATE INDEX items_in_order ON items (record, seq);

CREATE TABLE usage (
    owner TEXT PRIMARY KEY,
    records INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE probe (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    at INTEGER NOT NULL
) STRICT;
INSERT INTO probe VALUES (1, 0);

CREATE TRIGGER records_added AFTER INSERT ON records BEGIN
    INSERT INTO usage VALUES (new.owner, 1, length(new.body))
    ON CONFLICT (owner) DO UPDATE SET records = records + 1, bytes = bytes + length(new.body);
END;
CREATE TRIGGER records_changed AFTER UPDATE OF body ON records BEGIN
    UPDATE usage SET bytes = bytes + length(new.body) - length(old.body) WHERE owner = new.owner;
END;
CREATE TRIGGER records_removed AFTER DELETE ON records BEGIN
    UPDATE usage SET records = records - 1, bytes = bytes - length(old.body) WHERE owner = old.owner;
    DELETE FROM usage WHERE owner = old.owner AND records <= 0;
END;
CREATE TRIGGER items_added AFTER INSERT ON items BEGIN
    UPDATE usage SET bytes = bytes + length(new.body) WHERE owner = new.owner;
END;
CREATE TRIGGER items_removed AFTER DELETE ON items BEGIN
    UPDATE usage SET bytes = bytes - length(old.body) WHERE owner = old.owner;
END;
";

/// The version that this program writes.
pub(crate) fn known() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

/// The version of a file, and the mark of the program that made it. Both are 0 in an empty one.
pub(crate) fn version(connection: &Connection) -> rusqlite::Result<(i64, i64)> {
    let read = |name: &str| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0));
    Ok((read("user_version")?, read("application_id")?))
}

/// Bring a file to this version. Each step is a transaction of its own.
pub(crate) fn migrate(connection: &Connection, from: i64) -> rusqlite::Result<()> {
    let done = usize::try_from(from).unwrap_or(0);
    for (index, step) in MIGRATIONS.iter().enumerate().skip(done) {
        let version = index + 1;
        connection.execute_batch(&format!(
            "BEGIN IMMEDIATE; {step} PRAGMA application_id = {APPLICATION_ID}; \
             PRAGMA user_version = {version}; COMMIT;"
        ))?;
    }
    Ok(())
}
