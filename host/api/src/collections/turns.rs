//! Turns of owners whose documents are ingested: one of each at a time, so that many documents of one leave a place for
//! those of another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Semaphore;

/// All owners who have documents that wait.
#[derive(Default)]
pub(super) struct Turns(Mutex<HashMap<Arc<str>, Weak<Semaphore>>>);

impl Turns {
    /// The turn of an owner, known for as long as somebody holds it.
    pub(super) fn of(&self, owner: &Arc<str>) -> Arc<Semaphore> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = all.get(owner).and_then(Weak::upgrade) {
            return turn;
        }
        all.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(Semaphore::new(1));
        all.insert(Arc::clone(owner), Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_one_turn_and_is_forgotten_behind_the_last() {
        let turns = Turns::default();
        let (one, other) = (Arc::from("a"), Arc::from("b"));
        let (first, second) = (turns.of(&one), turns.of(&one));
        let held = first.try_acquire();
        assert!(held.is_ok() && second.try_acquire().is_err());
        assert!(turns.of(&other).try_acquire().is_ok());
        drop(held);
        drop((first, second));
        turns.of(&other);
        let all = turns.0.lock().expect("no panic");
        assert!(!all.contains_key(&one));
    }
}
