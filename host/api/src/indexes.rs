//! Indexes of the collections that are searched. Each is made of the stored chunks when it is first needed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use mortise_retrieval::{Chunk, Document, Index};
use mortise_store::Key;
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use crate::limits::MAX_INDEX_BYTES;

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

/// All of them.
#[derive(Default)]
pub(crate) struct Indexes {
    slots: Mutex<HashMap<Key, Arc<Slot>>>,
    /// Number of searches.
    clock: AtomicU64,
}

/// An index while it is searched.
pub(crate) type Searched = OwnedRwLockReadGuard<Option<Index>, Index>;

impl Indexes {
    /// The index of a collection, which `read` reads from the store if it is not in memory, or was read at another
    /// `revision` of what is stored.
    pub(crate) async fn of<E, F: Future<Output = Result<Index, E>>>(
        &self,
        collection: &Key,
        dimensions: usize,
        revision: Option<&[u8]>,
        read: impl Fn() -> F,
    ) -> Result<Searched, E> {
        let slot = self.slot(collection);
        slot.used.store(self.clock.fetch_add(1, Relaxed), Relaxed);
        loop {
            let guard = Arc::clone(&slot.index).read_owned().await;
            let fits = |index: &Index| index.dimensions() == dimensions && slot.is_of(revision);
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
                let index = read().await?;
                slot.bytes.store(index.bytes(), Relaxed);
                let known = slot.revision.lock();
                *known.unwrap_or_else(PoisonError::into_inner) = revision.map(<[u8]>::to_vec);
                *guard = Some(index);
            }
            drop(guard);
            self.make_room(collection);
        }
    }

    /// Add a document, or replace it, if the collection's index is in memory.
    pub(crate) async fn add(&self, collection: &Key, document: Document, chunks: Vec<Chunk>) {
        let Some(slot) = self.known(collection) else {
            return;
        };
        if let Some(index) = slot.index.write().await.as_mut() {
            index.add(document, chunks);
            slot.bytes.store(index.bytes(), Relaxed);
        }
        self.make_room(collection);
    }

    /// Remove a document.
    pub(crate) async fn remove(&self, collection: &Key, file: &str) {
        if let Some(slot) = self.known(collection)
            && let Some(index) = slot.index.write().await.as_mut()
        {
            index.remove(file);
            slot.bytes.store(index.bytes(), Relaxed);
        }
    }

    /// Change the attributes of a document.
    pub(crate) async fn set_attributes(&self, collection: &Key, document: Document) {
        if let Some(slot) = self.known(collection)
            && let Some(index) = slot.index.write().await.as_mut()
        {
            index.set_attributes(&document.id, document.attributes);
        }
    }

    /// Give up the index of a collection.
    pub(crate) fn forget(&self, collection: &Key) {
        self.lock().remove(collection);
    }

    fn slot(&self, collection: &Key) -> Arc<Slot> {
        Arc::clone(self.lock().entry(collection.clone()).or_default())
    }

    fn known(&self, collection: &Key) -> Option<Arc<Slot>> {
        self.lock().get(collection).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Give up those that were not searched for longest, until the others have room.
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
