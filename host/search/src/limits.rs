//! Bounds of searches.

/// Bytes of all indexes in memory. Those that were not searched for longest are given up first.
pub const MAX_INDEX_BYTES: usize = 1024 * 1024 * 1024;

/// Spaces whose index in the database is known to be complete.
pub(crate) const MAX_KNOWN_SPACES: usize = 10_000;

/// Bytes of a word in the database; a longer one is known by its hash.
pub(crate) const MAX_WORD_BYTES: usize = 128;

/// Words of a query that the database is asked for at once.
pub(crate) const WORDS_TOGETHER: usize = 8;

/// Records that are read at once.
pub(crate) const PAGE: usize = 500;
