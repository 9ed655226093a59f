//! Set of the lines of a batch that have been answered.

use std::sync::Arc;

use mortise_store::{Store, StoreError};

use super::record::Batch;
use crate::contents::key_of;

/// Places of lines, one bit each.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Done(Vec<u64>);

impl Done {
    /// The lines of which the files of a batch tell.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(super) async fn read(store: &Arc<dyn Store>, batch: &Batch) -> Result<Self, StoreError> {
        let mut done = Self::default();
        for (output, _, _) in batch.outputs() {
            let mut after = None;
            loop {
                let key = key_of(&batch.key.owner, &output.id);
                let listing = store.pieces(key, after).await?;
                let places = listing.entries.iter().map(|item| item.id.parse());
                places.flatten().for_each(|place| done.add(place));
                after = listing.entries.last().map(|item| item.id.clone());
                if !listing.more {
                    break;
                }
            }
        }
        Ok(done)
    }

    pub(super) fn add(&mut self, place: u64) {
        let (word, bit) = Self::bit(place);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        if let Some(bits) = self.0.get_mut(word) {
            *bits |= bit;
        }
    }

    pub(super) fn has(&self, place: u64) -> bool {
        let (word, bit) = Self::bit(place);
        self.0.get(word).is_some_and(|bits| bits & bit != 0)
    }

    fn bit(place: u64) -> (usize, u64) {
        (
            usize::try_from(place / 64).unwrap_or(usize::MAX),
            1 << (place % 64),
        )
    }
}

/// Id of a line among the items of a file.
pub(super) fn id_of(place: u64) -> String {
    format!("{place:06}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_remembered() {
        let mut done = Done::default();
        for place in [1, 63, 64, 50_000] {
            assert!(!done.has(place));
            done.add(place);
            assert!(done.has(place) && !done.has(place + 1) && !done.has(place - 1 + 200));
        }
    }
}
