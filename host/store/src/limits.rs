//! Bounds of the store. Those of an owner, and of all of it, are configured.

use std::time::Duration;

/// Longest body of a record or an item, in bytes.
pub const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;
/// Longest id of a record, an item or an owner, in bytes.
pub const MAX_ID_BYTES: usize = 512;
/// Commits that wait for the writer.
pub const MAX_QUEUED_COMMITS: usize = 1024;
/// Bytes of the commits that wait for the writer.
pub const MAX_QUEUED_BYTES: usize = 256 * 1024 * 1024;
/// Commits that are written together.
pub const MAX_GROUP: usize = 128;
/// Connections that read at once.
pub const MAX_READERS: usize = 4;
/// Connections to PostgreSQL.
pub const MAX_DATABASE_CONNECTIONS: usize = 8;
/// Time in which a connection to PostgreSQL must come about.
pub const DATABASE_CONNECT_TIME: Duration = Duration::from_secs(5);
/// Time that PostgreSQL may be silent for before a connection counts as lost.
pub const DATABASE_SILENCE: Duration = Duration::from_secs(10);
/// Time that anything may take that is asked of PostgreSQL, waiting for a connection included.
pub const DATABASE_OPERATION_TIME: Duration = Duration::from_secs(20);
/// Time in which PostgreSQL must have taken what the items of one record are found by.
pub const DATABASE_INDEX_TIME: Duration = Duration::from_secs(300);
/// Items whose vectors PostgreSQL is given at once.
pub const INDEXED_TOGETHER: usize = 256;
/// Records that one page of a list looks at.
pub const MAX_SCANNED: usize = 10_000;
/// Bytes on the disk that are kept back beside a store, for deletes when the disk is full.
pub const RESERVE_BYTES: usize = 4 << 20;
/// Records and items of a page.
pub const MAX_PAGE: usize = 1000;
/// Bytes of items that are read at once, unless the first of them has more.
pub const MAX_PIECE_BYTES: usize = 256 * 1024;
/// Records that have expired and are removed at once.
pub const MAX_SWEPT: usize = 1000;
/// Bytes of what one entry of the audit log says.
pub const MAX_AUDIT_ENTRY_BYTES: usize = 64 * 1024;
/// Bytes of a line of the audit log.
pub const MAX_AUDIT_LINE_BYTES: usize = 65 * 1024;
