//! Turns of owners: each has some shares at a time, however many pieces of work it has, so that much work of one leaves places
//! to that of another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Semaphore;

/// All owners who have work that waits.
pub(crate) struct OwnerTurns {
    shares: u32,
    owners: Mutex<HashMap<Arc<str>, Weak<Semaphore>>>,
}

impl OwnerTurns {
    /// Turns of so many shares.
    pub(crate) fn of_shares(shares: u32) -> Self {
        Self {
            shares,
            owners: Mutex::default(),
        }
    }

    /// The shares of an owner's turn, known for as long as somebody holds one.
    pub(crate) fn of(&self, owner: &Arc<str>) -> Arc<Semaphore> {
        let mut all = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = all.get(owner).and_then(Weak::upgrade) {
            return turn;
        }
        all.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(Semaphore::new(self.shares as usize));
        all.insert(Arc::clone(owner), Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_one_turn_and_is_forgotten_behind_the_last() {
        let turns = OwnerTurns::of_shares(4);
        let (one, other) = (Arc::from("a"), Arc::from("b"));
        let (first, second) = (turns.of(&one), turns.of(&one));
        let held = first.try_acquire_many(4);
        assert!(held.is_ok() && second.try_acquire().is_err());
        assert!(turns.of(&other).try_acquire_many(4).is_ok());
        drop(held);
        drop((first, second));
        turns.of(&other);
        let all = turns.owners.lock().expect("no panic");
        assert!(!all.contains_key(&one));
    }
}
