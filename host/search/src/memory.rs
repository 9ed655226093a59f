//! Indexes in memory of the spaces that are searched. Each is made of the stored chunks when it is first needed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use mortise_retrieval::{Chunk, Index};
use mortise_store::{Key, Page, RecordFilter, RecordKind, Store, StoreError, StoreFuture};
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use crate::chunks::{chunk_id, chunks};
use crate::index::{
    DocumentChange, IndexHit, IndexState, Lookup, ReadRecord, SearchIndex, key_of, revision,
};
use crate::limits::{MAX_INDEX_BYTES, PAGE};

/// Place of one index.
#[derive(Default)]
struct Slot {
    index: Arc<RwLock<Option<Index>>>,
    bytes: AtomicUsize,
    used: AtomicU64,
    /// Mark of what is stored, as it was before the index was read.
    revision: Mutex<Option<Vec<u8>>>,
}

impl Slot {
    fn is_of(&self, revision: Option<&[u8]>) -> bool {
        let known = self.revision.lock();
        known.unwrap_or_else(PoisonError::into_inner).as_deref() == revision
    }
}

/// Indexes of the spaces that are searched.
pub struct MemoryIndex {
    store: Arc<dyn Store>,
    read: ReadRecord,
    slots: Mutex<HashMap<Key, Arc<Slot>>>,
    /// Number of searches.
    clock: AtomicU64,
}

/// An index while it is searched.
type Searched = OwnedRwLockReadGuard<Option<Index>, Index>;

impl MemoryIndex {
    /// Indexes of what is in a store.
    pub fn new(store: Arc<dyn Store>, read: ReadRecord) -> Self {
        Self {
            store,
            read,
            slots: Mutex::default(),
            clock: AtomicU64::default(),
        }
    }

    /// The index of a space, which is read from the store if it is not in memory, or was read at another revision of what is
    /// stored.
    async fn of(&self, space: &Key, dimensions: usize) -> Result<Searched, StoreError> {
        let revision = revision(&*self.store, space).await?;
        let slot = self.slot(space);
        slot.used.store(self.clock.fetch_add(1, Relaxed), Relaxed);
        loop {
            let guard = Arc::clone(&slot.index).read_owned().await;
            let fits =
                |index: &Index| index.dimensions() == dimensions && slot.is_of(revision.as_deref());
            if guard.as_ref().is_some_and(fits) {
                let mapped = OwnedRwLockReadGuard::try_map(guard, Option::as_ref);
                if let Ok(searched) = mapped {
                    return Ok(searched);
                }
                continue;
            }
            drop(guard);
            let mut guard = slot.index.write().await;
            if !guard.as_ref().is_some_and(fits) {
                let index = self.made(space, dimensions).await?;
                slot.bytes.store(index.bytes(), Relaxed);
                let known = slot.revision.lock();
                known
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone_from(&revision);
                *guard = Some(index);
            }
            drop(guard);
            self.make_room(space);
        }
    }

    /// Make the index of a space from what is stored.
    async fn made(&self, space: &Key, dimensions: usize) -> Result<Index, StoreError> {
        let mut index = Index::new(dimensions);
        let mut after = None;
        loop {
            let prefix = format!("{}/", space.id);
            let filter: RecordFilter = Box::new(move |record| record.key.id.starts_with(&prefix));
            let page = Page {
                after,
                limit: PAGE,
                ascending: true,
            };
            let owner = &space.owner;
            let some = self
                .store
                .list(owner, RecordKind::VectorStoreFile, page, Some(filter))
                .await?;
            after = some.entries.last().map(|record| record.key.id.clone());
            for record in some.entries {
                let Some((document, IndexState::Complete)) = (self.read)(&record) else {
                    continue;
                };
                match chunks(&*self.store, &record.key).await {
                    // It was removed meanwhile.
                    Err(StoreError::NotFound) => {}
                    chunks => index.add(document, chunks?),
                }
            }
            if !some.more {
                return Ok(index);
            }
        }
    }

    async fn found(&self, space: &Key, lookup: Lookup) -> Result<Vec<IndexHit>, StoreError> {
        let index = self.of(space, lookup.vector.len()).await?;
        let hits = tokio::task::spawn_blocking(move || {
            let hits = index.search(&lookup.query()).into_iter();
            let hits = hits.map(|hit| (hit.document.clone(), hit.chunk, hit.score, hit.similarity));
            hits.collect::<Vec<_>>()
        });
        let failed = |_| StoreError::Unavailable("the search broke off".to_owned());
        let mut found = Vec::new();
        for (document, number, score, similarity) in hits.await.map_err(failed)? {
            let parent = key_of(space, &document.id);
            let item = self.store.item(parent, chunk_id(number as usize)).await?;
            // A document may be removed meanwhile.
            if let Some(chunk) = item.and_then(|item| Chunk::decode(&item.body)) {
                found.push(IndexHit {
                    document,
                    chunk,
                    score,
                    similarity,
                });
            }
        }
        Ok(found)
    }

    /// Change the index of a space, if it is in memory.
    async fn change(&self, space: &Key, change: DocumentChange) {
        let Some(slot) = self.known(space) else {
            return;
        };
        if let Some(index) = slot.index.write().await.as_mut() {
            match change {
                DocumentChange::Added(document, chunks) => index.add(document, chunks),
                DocumentChange::Removed(document) => index.remove(&document),
                DocumentChange::Attributes(document) => {
                    index.set_attributes(&document.id, document.attributes);
                }
            }
            slot.bytes.store(index.bytes(), Relaxed);
        }
        self.make_room(space);
    }

    fn slot(&self, space: &Key) -> Arc<Slot> {
        Arc::clone(self.lock().entry(space.clone()).or_default())
    }

    fn known(&self, space: &Key) -> Option<Arc<Slot>> {
        self.lock().get(space).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Evict the indexes that were not searched for longest, until the others have room.
    fn make_room(&self, kept: &Key) {
        let mut slots = self.lock();
        loop {
            let bytes: usize = slots.values().map(|slot| slot.bytes.load(Relaxed)).sum();
            if bytes <= MAX_INDEX_BYTES {
                return;
            }
            let others = slots.iter().filter(|(key, _)| *key != kept);
            let oldest = others.min_by_key(|(_, slot)| slot.used.load(Relaxed));
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                return;
            };
            slots.remove(&oldest);
        }
    }
}

impl SearchIndex for MemoryIndex {
    fn search<'a>(&'a self, space: &'a Key, lookup: Lookup) -> StoreFuture<'a, Vec<IndexHit>> {
        Box::pin(self.found(space, lookup))
    }

    fn changed<'a>(&'a self, space: &'a Key, change: DocumentChange) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.change(space, change).await;
            Ok(())
        })
    }

    /// Do nothing: a space that is not searched takes no memory.
    fn prepare<'a>(&'a self, _space: &'a Key) -> StoreFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn outlives(&self) -> bool {
        false
    }

    fn forget(&self, space: &Key) {
        self.lock().remove(space);
    }
}
