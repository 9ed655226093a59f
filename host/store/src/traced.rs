//! A store whose operations are parts of the trace of the request that asks for them.

use std::future::Future;
use std::sync::Arc;

use mortise_trace::{Span, Value, traced};

use crate::error::StoreError;
use crate::record::{Change, Item, Key, Page, Record, RecordKind, RecordPage};
use crate::store::{RecordFilter, Store, StoreFuture};

/// Records the operations of another store. Owners, keys and contents stand in no span.
pub struct TracedStore<S> {
    store: S,
    system: &'static str,
}

impl<S: Store> TracedStore<S> {
    /// A store and the name of its kind in OpenTelemetry's conventions, such as `postgresql`.
    pub fn new(store: S, system: &'static str) -> Self {
        Self { store, system }
    }
}

/// An operation as a part of the current span. Work of no request is in no trace.
pub(crate) fn operation<'a, T: Send + 'a>(
    (name, system): (&'static str, &'static str),
    work: impl Future<Output = Result<T, StoreError>> + Send + 'a,
) -> StoreFuture<'a, T> {
    if !Span::current().is_sampled() {
        return Box::pin(work);
    }
    let attributes = vec![
        ("db.operation.name", Value::from(name)),
        ("db.system.name", Value::from(system)),
    ];
    Box::pin(traced("store", attributes, StoreError::kind, work))
}

impl<S: Store> Store for TracedStore<S> {
    fn commit(&self, changes: Vec<Change>) -> StoreFuture<'_, ()> {
        operation(("commit", self.system), self.store.commit(changes))
    }

    fn promise(&self, owner: &Arc<str>) -> StoreFuture<'_, ()> {
        operation(("promise", self.system), self.store.promise(owner))
    }

    fn get(&self, key: Key) -> StoreFuture<'_, Option<Record>> {
        operation(("get", self.system), self.store.get(key))
    }

    fn list(
        &self,
        owner: &Arc<str>,
        kind: RecordKind,
        page: Page,
        filter: Option<RecordFilter>,
    ) -> StoreFuture<'_, RecordPage<Record>> {
        operation(
            ("list", self.system),
            self.store.list(owner, kind, page, filter),
        )
    }

    fn items(&self, parent: Key, page: Page) -> StoreFuture<'_, RecordPage<Item>> {
        operation(("items", self.system), self.store.items(parent, page))
    }

    fn pieces(&self, parent: Key, after: Option<String>) -> StoreFuture<'_, RecordPage<Item>> {
        operation(("pieces", self.system), self.store.pieces(parent, after))
    }

    fn item(&self, parent: Key, id: String) -> StoreFuture<'_, Option<Item>> {
        operation(("item", self.system), self.store.item(parent, id))
    }

    fn unfinished(&self, kind: RecordKind) -> StoreFuture<'_, Vec<Record>> {
        operation(("unfinished", self.system), self.store.unfinished(kind))
    }

    fn owners(&self, kind: RecordKind) -> StoreFuture<'_, Vec<Arc<str>>> {
        operation(("owners", self.system), self.store.owners(kind))
    }

    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    fn leave(&self) -> StoreFuture<'_, ()> {
        operation(("leave", self.system), self.store.leave())
    }
}
