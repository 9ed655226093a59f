//! Durable state: responses, conversations, stored completions, answers to repeated requests, files, batches, issued
//! keys and counters, as records and ordered items that belong to an owner.
//!
//! [`Store`] is what the rest of the server knows. [`SqliteStore`] keeps all of it in one SQLite file, or in
//! memory; [`PostgresStore`] in a database that several hosts share. What stands in a record is its writer's business; nothing of HTTP or of models is known in here.

mod audit;
mod check;
mod error;
pub mod limits;
mod maintenance;
mod postgres;
mod query;
mod quota;
mod record;
mod reserve;
mod schema;
mod sqlite;
mod store;
#[cfg(test)]
mod tests;
mod traced;
mod writer;

pub use audit::{
    AuditError, AuditFile, AuditHead, AuditHomes, AuditLog, BrokenChain, Checker, read_file,
    read_log, read_store,
};
pub use error::{OpenError, StoreError};
pub use maintenance::{StoreReport, backup, check, vacuum};
pub use postgres::{
    DatabaseError, Indexed, Occurrence, PassagePlace, PassageRow, PassageScope, Passages,
    PostgresConfig, PostgresStore, Word, check_database,
};
pub use record::{Change, Item, Key, Page, Record, RecordKind, RecordPage, SERVER};
pub use sqlite::{SqliteStore, StoreConfig};
pub use store::{RecordFilter, Store, StoreFuture};
pub use traced::TracedStore;
