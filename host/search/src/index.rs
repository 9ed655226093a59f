//! The index of a space as the rest of the server knows it.

use std::sync::Arc;

use mortise_retrieval::{AttributeFilter, Chunk, Document, PassageQuery, Weights};
use mortise_store::{Key, Record, RecordKind, SERVER, Store, StoreError, StoreFuture};

/// A search in a space.
#[derive(Debug, Clone)]
pub struct Lookup {
    /// Text whose words are looked for.
    pub text: String,
    /// Vector of the text, of length 1.
    pub vector: Vec<f32>,
    /// Shares of the rankings.
    pub weights: Weights,
    /// Results at most.
    pub most: usize,
    /// Documents that are meant; all without one.
    pub filter: Option<AttributeFilter>,
    /// Least similarity of a result's meaning to the query's.
    pub least_similarity: Option<f32>,
    /// Share of the score against that of being different from better results.
    pub diversity: Option<f32>,
}

impl Lookup {
    pub(crate) fn query(&self) -> PassageQuery<'_> {
        PassageQuery {
            text: &self.text,
            vector: &self.vector,
            weights: self.weights,
            most: self.most,
            filter: self.filter.as_ref(),
            least_similarity: self.least_similarity,
            diversity: self.diversity,
        }
    }
}

/// A chunk that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexHit {
    /// Document of the chunk.
    pub document: Document,
    /// The chunk.
    pub chunk: Chunk,
    /// Score, from 0 to 1 with 1 the best.
    pub score: f32,
    /// Similarity of its meaning to the query's.
    pub similarity: f32,
}

/// Progress of storing a document's chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexState {
    /// All chunks are stored: searches find the document.
    Complete,
    /// Chunks are being made.
    UnderWay,
    /// Chunks cannot be made, and no search finds the document.
    Failed,
}

/// Reads a document and its state from its record; `None` where the record is none of a document.
pub type ReadRecord = fn(&Record) -> Option<(Document, IndexState)>;

/// A change of a space's documents that is stored.
#[derive(Debug)]
pub enum DocumentChange {
    /// A document is complete, with these chunks.
    Added(Document, Vec<Chunk>),
    /// A document of this id was removed.
    Removed(String),
    /// A document has other attributes.
    Attributes(Document),
}

/// An index of all spaces.
///
/// The records and items of the store are what counts: an index is made of them when it is needed, and tells at the next search of
/// what any server has stored before it.
pub trait SearchIndex: Send + Sync {
    /// Chunks of the documents of a space that a search finds, best first.
    ///
    /// # Errors
    /// When the store cannot be read; so for all.
    fn search<'a>(&'a self, space: &'a Key, lookup: Lookup) -> StoreFuture<'a, Vec<IndexHit>>;

    /// Take up what was stored. The next search does it where this was not called.
    fn changed<'a>(&'a self, space: &'a Key, change: DocumentChange) -> StoreFuture<'a, ()>;

    /// Make the index of a space that is going to be searched, as far as that is of use before the first search.
    fn prepare<'a>(&'a self, space: &'a Key) -> StoreFuture<'a, ()>;

    /// Whether the index outlives the process, so that it is worth making before anything is searched.
    fn outlives(&self) -> bool;

    /// Forget a space that is no longer searched.
    fn forget(&self, space: &Key);
}

/// Key of the record that changes with the documents of a space, where servers share a store.
pub fn revision_key(space: &Key) -> Key {
    let id = format!("vector_store\n{}\n{}", space.owner, space.id);
    Key::new(&Arc::from(SERVER), RecordKind::Revision, id)
}

/// Revision of a space; `None` where no other server could have changed it.
pub(crate) async fn revision(
    store: &dyn Store,
    space: &Key,
) -> Result<Option<Vec<u8>>, StoreError> {
    if !store.is_shared() {
        return Ok(None);
    }
    let record = store.get(revision_key(space)).await?;
    Ok(record.map(|record| record.body))
}

/// Key of a document of a space.
pub(crate) fn key_of(space: &Key, document: &str) -> Key {
    let id = format!("{}/{document}", space.id);
    Key::new(&space.owner, RecordKind::VectorStoreFile, id)
}
