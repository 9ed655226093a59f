//! Bounds of retrieval.

/// Bytes of a document's file.
pub const MAX_DOCUMENT_BYTES: usize = 16 * 1024 * 1024;
/// Chunks of one document.
pub const MAX_DOCUMENT_CHUNKS: usize = 50_000;
/// Chunks of one collection.
pub const MAX_COLLECTION_CHUNKS: usize = 200_000;
/// Attributes of a document.
pub const MAX_ATTRIBUTES: usize = 16;
/// Characters of an attribute's name.
pub const MAX_ATTRIBUTE_NAME: usize = 64;
/// Characters of an attribute that is a text.
pub const MAX_ATTRIBUTE_TEXT: usize = 512;
/// Comparisons of a filter, and the groups around them.
pub const MAX_FILTER_PARTS: usize = 64;
/// Groups in groups of a filter.
pub const MAX_FILTER_DEPTH: usize = 8;
/// Values of a comparison with a list.
pub const MAX_FILTER_VALUES: usize = 256;
/// Chunks that a search finds.
pub const MAX_RESULTS: usize = 50;
/// Words of a query that are looked up.
pub const MAX_QUERY_TERMS: usize = 128;
