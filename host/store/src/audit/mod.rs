//! Audit log: entries that are only ever appended, each sealed with a hash over itself and the entry before it.
//!
//! Entries go to a file, to the store, or to both, each with a chain of its own. A chain shows what was changed,
//! taken out or put elsewhere; who can write to it can also make all of it anew, which the head shows to whoever has
//! noted an earlier one elsewhere.

mod chain;
mod error;
mod file;
mod home;
mod log;
#[cfg(test)]
mod tests;

pub use chain::{AuditHead, BrokenChain, Checker};
pub use error::AuditError;
pub use file::{AuditFile, read_file};
pub use home::{read_log, read_store};
pub use log::{AuditHomes, AuditLog};
