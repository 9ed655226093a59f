//! Record of one ledger on this host: what it last knew of the buckets, what it has under way, and what the server has
//! not been told.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mortise_plugin::Ledger;

use crate::limits::MAX_UNTOLD;

/// Record of a ledger.
pub(crate) struct Mirror {
    /// Name of the ledger, as its keys begin.
    pub(crate) name: String,
    /// Buckets as the server last told of them. They decide where it is lost.
    pub(crate) buckets: Ledger,
    held: Mutex<HashMap<String, BucketPlaces>>,
    untold: Mutex<HashMap<String, i64>>,
}

/// Places of one bucket that this host has taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BucketPlaces {
    pub(crate) count: u64,
    /// The server may know another count.
    untold: bool,
}

impl Mirror {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            buckets: Ledger::new(),
            held: Mutex::default(),
            untold: Mutex::default(),
        }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<String, BucketPlaces>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn untold(&self) -> MutexGuard<'_, HashMap<String, i64>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Places of a bucket that this host has.
    pub(crate) fn count(&self, bucket: &str) -> u64 {
        self.held().get(bucket).map_or(0, |held| held.count)
    }

    /// Change a count that the server was told of, or `untold` was not.
    pub(crate) fn change(&self, bucket: &str, delta: i64, untold: bool) {
        let mut all = self.held();
        let held = all.entry(bucket.to_owned()).or_default();
        held.count = held.count.saturating_add_signed(delta);
        held.untold |= untold;
        if held.count == 0 && !held.untold {
            all.remove(bucket);
        }
    }

    /// Take places if no more than `capacity` are taken here; the number before, and true if they were taken.
    pub(crate) fn take_untold(&self, bucket: &str, cost: u64, capacity: u64) -> (u64, bool) {
        let mut all = self.held();
        let before = all.get(bucket).map_or(0, |held| held.count);
        let wanted = before.saturating_add(cost);
        let taken = wanted <= capacity;
        if taken && cost > 0 {
            let held = all.entry(bucket.to_owned()).or_default();
            held.count = wanted;
            held.untold = true;
        }
        (before, taken)
    }

    /// The server may have a wrong count of this bucket.
    pub(crate) fn doubt(&self, bucket: &str) {
        self.change(bucket, 0, true);
    }

    /// The server has forgotten this host.
    pub(crate) fn doubt_all(&self) {
        self.held().values_mut().for_each(|held| held.untold = true);
    }

    /// Remember a change of a bucket, in microseconds of flow.
    pub(crate) fn remember(&self, bucket: &str, delta: i64) {
        let mut untold = self.untold();
        if untold.len() >= MAX_UNTOLD && !untold.contains_key(bucket) {
            return;
        }
        let change = untold.entry(bucket.to_owned()).or_default();
        *change = change.saturating_add(delta);
    }

    /// True if there is something to tell.
    pub(crate) fn has_untold(&self) -> bool {
        !self.untold().is_empty() || self.held().values().any(|held| held.untold)
    }

    /// Counts that the server is to be told of.
    pub(crate) fn untold_places(&self) -> Vec<(String, u64)> {
        let all = self.held();
        let untold = all.iter().filter(|(_, held)| held.untold);
        untold
            .map(|(bucket, held)| (bucket.clone(), held.count))
            .collect()
    }

    /// The server has been told of a count.
    pub(crate) fn told_places(&self, bucket: &str, told: u64) {
        let mut all = self.held();
        if let Some(held) = all.get_mut(bucket) {
            held.untold = held.count != told;
            if held.count == 0 && !held.untold {
                all.remove(bucket);
            }
        }
    }

    /// Changes that the server is to be told of.
    pub(crate) fn untold_changes(&self) -> Vec<(String, i64)> {
        let untold = self.untold();
        let changes = untold.iter();
        changes
            .map(|(bucket, change)| (bucket.clone(), *change))
            .collect()
    }

    /// The server has been told of a change.
    pub(crate) fn told_change(&self, bucket: &str, told: i64) {
        let mut untold = self.untold();
        if let Some(change) = untold.get_mut(bucket) {
            *change = change.saturating_sub(told);
            if *change == 0 {
                untold.remove(bucket);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_and_told_once() {
        let mirror = Mirror::new("ledger");
        mirror.change("a", 2, false);
        assert!(!mirror.has_untold());
        assert_eq!(mirror.take_untold("a", 1, 3), (2, true));
        assert_eq!(mirror.take_untold("a", 1, 3), (3, false));
        assert_eq!(mirror.untold_places(), [("a".to_owned(), 3)]);
        mirror.change("a", -1, false);
        mirror.told_places("a", 3);
        assert_eq!(
            mirror.untold_places(),
            [("a".to_owned(), 2)],
            "it changed meanwhile"
        );
        mirror.told_places("a", 2);
        assert!(!mirror.has_untold());
        mirror.change("a", -5, false);
        assert!(mirror.held().is_empty());
        mirror.change("b", 1, false);
        mirror.doubt_all();
        assert_eq!(mirror.untold_places(), [("b".to_owned(), 1)]);
    }

    #[test]
    fn changes_add_up_until_they_are_told() {
        let mirror = Mirror::new("ledger");
        mirror.remember("a", 5);
        mirror.remember("a", -2);
        assert_eq!(mirror.untold_changes(), [("a".to_owned(), 3)]);
        mirror.remember("a", 4);
        mirror.told_change("a", 3);
        assert_eq!(mirror.untold_changes(), [("a".to_owned(), 4)]);
        mirror.told_change("a", 4);
        assert!(!mirror.has_untold());
        for number in 0..MAX_UNTOLD + 5 {
            mirror.remember(&number.to_string(), 1);
        }
        assert_eq!(mirror.untold_changes().len(), MAX_UNTOLD);
    }
}
