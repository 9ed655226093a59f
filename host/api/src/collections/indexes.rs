//! Indexes of the collections that are searched. Each is made of the stored chunks when it is first needed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use mortise_http::Problem;
use mortise_retrieval::{Chunk, Document, Index};
use mortise_store::Key;
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use super::limits::{MAX_INDEX_BYTES, PAGE};
use super::stored::members;
use crate::state::ApiState;
use crate::stored::store_problem;

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
pub(super) struct Indexes {
    slots: Mutex<HashMap<Key, Arc<Slot>>>,
    /// Number of searches.
    clock: AtomicU64,
}

/// An index while it is searched.
pub(super) type Searched = OwnedRwLockReadGuard<Option<Index>, Index>;

impl Indexes {
    /// The index of a collection, read from the store if it is not in memory.
    pub(super) async fn of(
        &self,
        state: &ApiState,
        collection: &Key,
        dimensions: usize,
    ) -> Result<Searched, Problem> {
        let slot = self.slot(collection);
        slot.used.store(self.clock.fetch_add(1, Relaxed), Relaxed);
        let revision = super::revision(state, collection).await?;
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
                let index = read(state, collection, dimensions).await?;
                slot.bytes.store(index.bytes(), Relaxed);
                let known = slot.revision.lock();
                known
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone_from(&revision);
                *guard = Some(index);
            }
            drop(guard);
            self.make_room(collection);
        }
    }

    /// Add a document, or replace it, if the collection's index is in memory.
    pub(super) async fn add(&self, collection: &Key, document: Document, chunks: Vec<Chunk>) {
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
    pub(super) async fn remove(&self, collection: &Key, file: &str) {
        if let Some(slot) = self.known(collection)
            && let Some(index) = slot.index.write().await.as_mut()
        {
            index.remove(file);
            slot.bytes.store(index.bytes(), Relaxed);
        }
    }

    /// Change the attributes of a document.
    pub(super) async fn set_attributes(&self, collection: &Key, document: Document) {
        if let Some(slot) = self.known(collection)
            && let Some(index) = slot.index.write().await.as_mut()
        {
            index.set_attributes(&document.id, document.attributes);
        }
    }

    /// Give up the index of a collection.
    pub(super) fn forget(&self, collection: &Key) {
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

/// Make the index of a collection from what is stored.
async fn read(state: &ApiState, collection: &Key, dimensions: usize) -> Result<Index, Problem> {
    let mut index = Index::new(dimensions);
    let mut after = None;
    loop {
        let some = members(state, collection, after, PAGE, true).await?;
        after = some.entries.last().map(super::Member::file);
        for member in some.entries {
            if member.status() == "completed" {
                let chunks = chunks(state, &member.key).await?;
                index.add(member.document(), chunks);
            }
        }
        if !some.more {
            return Ok(index);
        }
    }
}

/// All chunks of a document, in order.
pub(super) async fn chunks(state: &ApiState, document: &Key) -> Result<Vec<Chunk>, Problem> {
    let (mut chunks, mut after) = (Vec::new(), None);
    loop {
        let some = state.store.pieces(document.clone(), after).await;
        let some = some.map_err(store_problem)?;
        chunks.extend(
            some.entries
                .iter()
                .filter_map(|item| Chunk::decode(&item.body)),
        );
        after = some.entries.last().map(|item| item.id.clone());
        if !some.more {
            return Ok(chunks);
        }
    }
}
