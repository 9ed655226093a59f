//! Collections of documents in which callers search: a record for each collection, one for each of its documents with
//! the chunks as its items, and an index in which they are searched.

mod chunking;
mod embedding;
mod find;
mod ingest;
mod limits;
mod passages;
mod ranking;
mod reembed;
mod retriever;
mod search_tool;
mod sizes;
mod stored;
mod turns;

use std::fmt;
use std::sync::Arc;

use mortise_http::Problem;
use mortise_retrieval::Chunk;
use mortise_search::{
    DatabaseIndex, DocumentChange, MemoryIndex, SearchIndex, chunks, revision_key,
};
use mortise_service::Principal;
use mortise_store::{Change, Key, Page, Passages, Record, RecordKind, Store, StoreError};
use tokio::sync::Semaphore;

use self::sizes::Sizes;
use self::stored::document_of;
use crate::held::HeldFiles;
use crate::ids::now;
use crate::owner_turns::OwnerTurns;
use crate::state::ApiState;
use crate::stored::store_problem;

pub(crate) use self::chunking::chunking_of;
pub(crate) use self::embedding::{embedder_of, room_for_documents};
pub(crate) use self::find::{ChunkSearch, FoundChunk, find, on_page, shown_attributes};
pub(crate) use self::limits::MAX_DOCUMENTS;
pub(crate) use self::passages::{DocumentBudget, add_distinct, between, numbered};
pub(crate) use self::ranking::{RankingFields, RankingOptions, RankingRules};
pub(crate) use self::retriever::{Retrieval, RetrieverCaller, candidates};
pub use self::search_tool::SearchTool;
pub(crate) use self::search_tool::{FILE_SEARCH, FileSearch, HEADER, Searched};
pub(crate) use self::stored::{
    Collection, StoredDocument, change, collection, collections, count, member, members, named,
};

/// State of all collections.
pub struct Collections {
    pub(crate) api: Arc<ApiState>,
    /// Documents that are being ingested here.
    under_way: HeldFiles,
    /// Shares of the documents that are ingested at once.
    slots: Semaphore,
    turns: OwnerTurns,
    sizes: Sizes,
}

impl fmt::Debug for Collections {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Collections")
    }
}

impl Collections {
    /// The collections in the store of `api`.
    pub fn new(api: Arc<ApiState>) -> Arc<Self> {
        Arc::new(Self {
            api,
            under_way: HeldFiles::default(),
            slots: Semaphore::new(limits::MAX_INGESTS * limits::SMALL_INGESTS as usize),
            turns: OwnerTurns::of_shares(limits::SMALL_INGESTS),
            sizes: Sizes::default(),
        })
    }

    /// Begin to ingest a document whose record is stored.
    pub(crate) fn ingest(self: &Arc<Self>, member: StoredDocument, principal: Principal) {
        ingest::begin(self, member, principal);
    }

    /// Remove a document of a collection, which must be as it was read.
    pub(crate) async fn remove(
        &self,
        of: &Collection,
        member: &StoredDocument,
    ) -> Result<(), StoreError> {
        let changes = vec![of.unchanged(), Change::Delete(member.key.clone())];
        let changes = revised(&self.api, &member.space(), changes);
        self.api.store.commit(changes).await?;
        let removed = DocumentChange::Removed(member.file());
        indexed(&self.api, &member.space(), removed).await;
        Ok(())
    }

    /// Remove a collection with its documents.
    pub(crate) async fn drop_collection(&self, collection: &Collection) -> Result<(), Problem> {
        let state = &self.api;
        let spaces = collection.spaces();
        for space in &spaces {
            clear(state, space).await.map_err(store_problem)?;
        }
        let changes = vec![Change::Delete(collection.key.clone())];
        state.store.commit(changes).await.map_err(store_problem)?;
        // What was added in between; from now on nothing is.
        for space in &spaces {
            clear(state, space).await.map_err(store_problem)?;
            state.index.forget(space);
        }
        Ok(())
    }

    /// The chunks of a document, in order.
    pub(crate) async fn chunks(&self, member: &StoredDocument) -> Result<Vec<Chunk>, Problem> {
        chunks(&*self.api.store, &member.key)
            .await
            .map_err(store_problem)
    }

    /// Store the attributes of a document of a collection, which must be as it was read.
    pub(crate) async fn set_attributes(
        &self,
        of: &Collection,
        member: &StoredDocument,
    ) -> Result<(), StoreError> {
        let changes = vec![of.unchanged(), Change::Update(member.record())];
        let changes = revised(&self.api, &member.space(), changes);
        self.api.store.commit(changes).await?;
        let changed = DocumentChange::Attributes(member.document());
        indexed(&self.api, &member.space(), changed).await;
        Ok(())
    }
}

/// Remove the documents that are under a key.
async fn clear(state: &ApiState, space: &Key) -> Result<(), StoreError> {
    loop {
        let some = stored::keys(state, space).await?;
        let mut changes: Vec<Change> = some.entries.into_iter().map(Change::Delete).collect();
        if !some.more {
            changes.push(Change::Delete(revision_key(space)));
        }
        state.store.commit(changes).await?;
        if !some.more {
            return Ok(());
        }
    }
}

/// Take up the documents that were being ingested when the server ended, or another that shares the store, and the
/// collections whose vectors were being made anew.
pub async fn resume(collections: Arc<Collections>) {
    match collections
        .api
        .store
        .unfinished(RecordKind::VectorStore)
        .await
    {
        Ok(open) => {
            for record in open {
                tracing::info!(id = record.key.id, "a vector store is gone on with");
                reembed::begin(&collections, record.key);
            }
        }
        Err(error) => {
            tracing::error!(%error, "vector stores whose vectors are made anew cannot be read")
        }
    }
    let open = match collections
        .api
        .store
        .unfinished(RecordKind::VectorStoreFile)
        .await
    {
        Ok(open) => open,
        Err(error) => {
            tracing::error!(%error, "documents that are not ingested cannot be read");
            return;
        }
    };
    for record in open {
        if collections.under_way.is_held(&record.key) {
            continue;
        }
        // It may have come to its end since the list was read.
        let record = match collections.api.store.get(record.key).await {
            Ok(Some(record)) if record.open => record,
            _ => continue,
        };
        match StoredDocument::of(&record) {
            Some(member) => {
                tracing::info!(id = member.file(), "a document is ingested after a restart");
                let principal = member.principal();
                collections.ingest(member, principal);
            }
            None => tracing::error!(id = record.key.id, "a document's record cannot be read"),
        }
    }
}

/// Changes of a collection's documents, with a mark by which other hosts that share the store learn of them.
fn revised(state: &ApiState, collection: &Key, mut changes: Vec<Change>) -> Vec<Change> {
    if state.store.is_shared() {
        changes.push(Change::Put(Record {
            key: revision_key(collection),
            created: now(),
            expires: None,
            open: false,
            body: uuid::Uuid::new_v4().as_bytes().to_vec(),
        }));
    }
    changes
}

/// The index of the collections in a store: in the database that is the store, if `passages` of it are given, and else in memory.
pub fn index_of(store: &Arc<dyn Store>, passages: Option<Passages>) -> Box<dyn SearchIndex> {
    let store = Arc::clone(store);
    match passages {
        Some(passages) => Box::new(DatabaseIndex::new(store, passages, document_of)),
        None => Box::new(MemoryIndex::new(store, document_of)),
    }
}

/// Have the index take up a change that is stored. If it cannot, the next search does.
async fn indexed(state: &ApiState, space: &Key, change: DocumentChange) {
    if let Err(error) = state.index.changed(space, change).await {
        tracing::warn!(id = space.id, %error, "a vector store's index is completed by its next search");
    }
}

/// Make the indexes of all collections, if that is of use before they are searched.
pub async fn prepare(collections: Arc<Collections>) {
    if !collections.api.index.outlives() {
        return;
    }
    if let Err(error) = prepare_all(&collections.api).await {
        tracing::warn!(%error, "indexes of vector stores are completed by their next searches");
    }
}

async fn prepare_all(state: &ApiState) -> Result<(), StoreError> {
    for owner in state.store.owners(RecordKind::VectorStore).await? {
        let mut after = None;
        loop {
            let page = Page {
                after,
                limit: limits::PAGE,
                ascending: true,
            };
            let some = state
                .store
                .list(&owner, RecordKind::VectorStore, page, None);
            let some = some.await?;
            for record in &some.entries {
                if let Some(of) = Collection::of(record) {
                    state.index.prepare(&of.space()).await?;
                }
            }
            after = some.entries.last().map(|record| record.key.id.clone());
            if !some.more {
                break;
            }
        }
    }
    Ok(())
}

/// Key of a document of a collection.
pub(crate) fn member_key(collection: &Key, file: &str) -> Key {
    let id = format!("{}/{file}", collection.id);
    Key::new(&collection.owner, RecordKind::VectorStoreFile, id)
}
