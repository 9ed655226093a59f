//! The store as the rest of the server knows it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::error::StoreError;
use crate::record::{Change, Item, Key, Page, Record, RecordKind, RecordPage};

/// A future of a store.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Condition on the records of a list.
pub type RecordFilter = Box<dyn Fn(&Record) -> bool + Send + Sync>;

/// Durable state. What a commit has acknowledged is there after the process was killed.
pub trait Store: Send + Sync {
    /// Make changes, all or none.
    ///
    /// # Errors
    /// When a record that must be there is not, a quota is used up, or nothing can be written.
    fn commit(&self, changes: Vec<Change>) -> StoreFuture<'_, ()>;

    /// Make sure, before work begins, that its result could be written for this owner as far as anyone can tell:
    /// the disk takes writes, and the owner's quota is not used up.
    ///
    /// # Errors
    /// When it could not.
    fn promise(&self, owner: &Arc<str>) -> StoreFuture<'_, ()>;

    /// A record.
    ///
    /// # Errors
    /// When nothing can be read; so for all that read.
    fn get(&self, key: Key) -> StoreFuture<'_, Option<Record>>;

    /// Records of one owner and kind, in the order in which they were made. A page whose `after` is not there
    /// is `NotFound`.
    fn list(
        &self,
        owner: &Arc<str>,
        kind: RecordKind,
        page: Page,
        filter: Option<RecordFilter>,
    ) -> StoreFuture<'_, RecordPage<Record>>;

    /// Items of a record, in the order in which they were appended.
    fn items(&self, parent: Key, page: Page) -> StoreFuture<'_, RecordPage<Item>>;

    /// Items of a record behind `after`, as many as one may hold at once: the first, and further ones up to
    /// [`MAX_PIECE_BYTES`](crate::limits::MAX_PIECE_BYTES) in all.
    fn pieces(&self, parent: Key, after: Option<String>) -> StoreFuture<'_, RecordPage<Item>>;

    /// An item of a record.
    fn item(&self, parent: Key, id: String) -> StoreFuture<'_, Option<Item>>;

    /// Open records of all owners on which this host works or is to work, the oldest first. Where several hosts share
    /// the store, those of hosts that are gone come to this one and to no other.
    fn unfinished(&self, kind: RecordKind) -> StoreFuture<'_, Vec<Record>>;

    /// Owners of records of a kind, in the order of their names, as many as
    /// [`MAX_SCANNED`](crate::limits::MAX_SCANNED).
    fn owners(&self, kind: RecordKind) -> StoreFuture<'_, Vec<Arc<str>>>;

    /// True if other hosts may write to it, and what is kept in memory may be of yesterday.
    fn is_shared(&self) -> bool {
        false
    }

    /// Leave open records to other hosts, at the end of this one.
    fn leave(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}
