//! Sizes of collections, as far as they are known: to count the chunks of all documents for each new one takes longer the more there
//! are.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mortise_retrieval::limits::MAX_COLLECTION_CHUNKS;
use mortise_store::Key;

use super::limits::MAX_KNOWN_SIZES;

/// Time after which documents that other hosts have added are counted.
const TRUSTED: Duration = Duration::from_secs(60);

/// Chunks of collections: as many as they have, or more, since nothing is taken off when documents are removed.
#[derive(Debug, Default)]
pub(super) struct Sizes(Mutex<HashMap<Key, Size>>);

#[derive(Debug)]
struct Size {
    chunks: u64,
    counted: Instant,
}

impl Sizes {
    /// True if a collection surely has room for so many chunks more, which it is then known to have.
    pub(super) fn takes(&self, key: &Key, more: u64, shared: bool) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(size) = known.get_mut(key) else {
            return false;
        };
        let chunks = size.chunks.saturating_add(more);
        let stale = shared && size.counted.elapsed() > TRUSTED;
        if stale || chunks > MAX_COLLECTION_CHUNKS as u64 {
            return false;
        }
        size.chunks = chunks;
        true
    }

    /// Remember how many chunks a collection has.
    pub(super) fn know(&self, key: Key, chunks: u64) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN_SIZES {
            known.clear();
        }
        let counted = Instant::now();
        known.insert(key, Size { chunks, counted });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mortise_store::RecordKind;

    use super::*;

    #[test]
    fn what_may_be_too_much_is_counted_anew() {
        let (sizes, owner) = (Sizes::default(), Arc::from("tenant a"));
        let key = |id: &str| Key::new(&owner, RecordKind::VectorStoreFile, id);
        assert!(!sizes.takes(&key("a"), 1, false));
        let most = MAX_COLLECTION_CHUNKS as u64;
        sizes.know(key("a"), most - 10);
        assert!(sizes.takes(&key("a"), 4, false) && sizes.takes(&key("a"), 6, true));
        assert!(!sizes.takes(&key("a"), 1, false) && !sizes.takes(&key("b"), 1, false));
        sizes.know(key("a"), 0);
        assert!(sizes.takes(&key("a"), most, false));
        (0..MAX_KNOWN_SIZES).for_each(|at| sizes.know(key(&at.to_string()), 0));
        assert!(!sizes.takes(&key("a"), 1, false));
    }
}
