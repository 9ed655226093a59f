//! Bounds of collections, beside those of [`mortise_retrieval::limits`].

/// Documents of all collections of an owner. The store looks at no more for one page.
pub(crate) const MAX_DOCUMENTS: usize = 10_000;

/// Documents that are ingested at once; others wait.
pub(super) const MAX_INGESTS: usize = 2;

/// Small documents that are ingested in the place of one.
pub(super) const SMALL_INGESTS: u32 = 4;

/// Bytes of the file of a small document.
pub(super) const SMALL_DOCUMENT_BYTES: u64 = 64 * 1024;

/// Collections of which it is known about how many chunks they have.
pub(super) const MAX_KNOWN_SIZES: usize = 1024;

/// Chunks whose vectors are computed and stored together.
pub(super) const INGEST_BATCH: usize = 32;

/// Bytes at the beginning of a document by which a retriever is told the size of its tokens.
pub(super) const SAMPLE_BYTES: usize = 16 * 1024;

/// Bytes of the text of a search.
pub(super) const MAX_SEARCH_TEXT: usize = 16 * 1024;

/// Results that a model scores for one that is wanted.
pub(super) const RERANKED: usize = 4;

/// Attempts to change a collection that others change, or of which another server has work.
pub(super) const ATTEMPTS: usize = 16;

/// Documents that are removed at once, with their chunks and what those are found by.
pub(super) const REMOVED_TOGETHER: usize = 100;

/// Records that are read at once.
pub(super) const PAGE: usize = 500;
