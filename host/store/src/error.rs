//! Failures of the store.

use std::path::PathBuf;

/// A failure to read or write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The record that a change needs is not there.
    #[error("there is no such record")]
    NotFound,
    /// The record is there already, is not as it was read, or is being worked on by another host.
    #[error(
        "it was changed meanwhile, or another server is working on it; read it again and retry"
    )]
    Conflict,
    /// The owner has reached its quota.
    #[error(
        "{limit} {unit} may be stored, and this would be more; delete some, or wait until they expire"
    )]
    Quota {
        /// Records or bytes that an owner may store.
        limit: u64,
        /// Unit of the limit: `records` or `bytes`.
        unit: &'static str,
    },
    /// A body or an id is too long.
    #[error("{bytes} bytes are too long to be stored; the limit is {limit}")]
    TooLarge {
        /// Bytes of the body, or of the id.
        bytes: usize,
        /// Bytes that one may have.
        limit: usize,
    },
    /// The store as a whole is full.
    #[error("the server's store is full")]
    Full,
    /// Too much waits to be written.
    #[error("too much waits to be written to the server's store; retry shortly")]
    Busy,
    /// The disk or the file fails.
    #[error("the server's store cannot be used: {0}")]
    Unavailable(String),
}

impl StoreError {
    /// Name of the kind of error, fit for a label.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::NotFound => "not_found",
            Self::Quota { .. } => "quota",
            Self::TooLarge { .. } => "too_large",
            Self::Full => "full",
            Self::Busy => "busy",
            Self::Unavailable(_) => "unavailable",
        }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => Self::Full,
            _ => Self::Unavailable(error.to_string()),
        }
    }
}

/// A file that cannot be used as a store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file, or its folder, cannot be read or written.
    #[error("the store `{}` cannot be opened", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Another process writes to the store.
    #[error("the store `{}` is in use by another process; stop that one first", .0.display())]
    InUse(PathBuf),
    /// The file is not a store of mortise.
    #[error("`{}` is not a store of mortise", .0.display())]
    Foreign(PathBuf),
    /// The store was written by a later version.
    #[error(
        "the store `{}` has version {found}, and this program knows versions up to {known}; use a newer mortise",
        path.display()
    )]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Version of the store.
        found: i64,
        /// The latest that is known.
        known: i64,
    },
    /// The file is damaged.
    #[error("the store `{}` is damaged: {problem}; restore a backup", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The first thing that is wrong.
        problem: String,
    },
    /// SQLite fails.
    #[error("the store `{}`: {source}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// PostgreSQL fails or refuses.
    #[error("the store in PostgreSQL ({place}): {problem}")]
    Database {
        /// The database and its host.
        place: String,
        /// Message of PostgreSQL.
        problem: String,
    },
    /// The schema belongs to something else.
    #[error(
        "the schema `mortise` in PostgreSQL ({0}) holds no tables of mortise; give this server a database of its own"
    )]
    ForeignSchema(String),
    /// The extension of vectors is not there.
    #[error(
        "retrieval.index is \"pgvector\", and the extension `vector` in PostgreSQL ({place}) cannot be used: {problem}"
    )]
    NoVectors {
        /// The database and its host.
        place: String,
        /// Problem, and the remedy.
        problem: String,
    },
    /// No server has used the database yet.
    #[error(
        "PostgreSQL ({0}) has no tables of mortise yet; the first server that starts makes them"
    )]
    NoTables(String),
}
