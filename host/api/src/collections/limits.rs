//! Bounds of collections, beside those of [`mortise_retrieval::limits`].

/// Documents of all collections of an owner. The store looks at no more for one page.
pub(crate) const MAX_DOCUMENTS: usize = 10_000;

/// Documents that are ingested at once; others wait.
pub(super) const MAX_INGESTS: usize = 2;

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

/// Records that are read at once.
pub(super) const PAGE: usize = 500;
