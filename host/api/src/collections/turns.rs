//! Turns of owners whose documents are ingested: one of each at a time, or some small ones, so that many documents of one leave a
//! place for those of another. Pauses of work that the store has no room for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use mortise_store::StoreError;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::sleep;

use super::Collections;
use super::limits::SMALL_INGESTS;

/// First pause of work that the store does not take. Each is twice as long as the one before, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Pauses of one piece of work.
pub(super) struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(FIRST_PAUSE)
    }
}

impl Pauses {
    /// Wait until the work may be tried again. False where the server ends.
    pub(super) async fn rest(
        &mut self,
        collections: &Collections,
        error: &StoreError,
        id: &str,
    ) -> bool {
        if *collections.api.http.draining.borrow() {
            return false;
        }
        tracing::warn!(id, %error, "work on a vector store waits until the store takes something");
        sleep(self.0).await;
        self.0 = LONGEST_PAUSE.min(self.0 * 2);
        true
    }
}

/// A place among the documents that are worked on, of their owner and of all.
pub(super) struct IngestTurn<'a> {
    _of_owner: OwnedSemaphorePermit,
    _of_all: SemaphorePermit<'a>,
}

impl Collections {
    /// Wait for the turn of a document of an owner's. A small one takes a share of a place.
    pub(super) async fn turn(
        &self,
        owner: &Arc<str>,
        small: bool,
    ) -> Result<IngestTurn<'_>, AcquireError> {
        let shares = match small {
            true => 1,
            false => SMALL_INGESTS,
        };
        let turn = self.turns.of(owner);
        Ok(IngestTurn {
            _of_owner: turn.acquire_many_owned(shares).await?,
            _of_all: self.slots.acquire_many(shares).await?,
        })
    }
}

/// All owners who have documents that wait.
#[derive(Default)]
pub(super) struct IngestTurns(Mutex<HashMap<Arc<str>, Weak<Semaphore>>>);

impl IngestTurns {
    /// The shares of an owner's turn, known for as long as somebody holds one.
    fn of(&self, owner: &Arc<str>) -> Arc<Semaphore> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = all.get(owner).and_then(Weak::upgrade) {
            return turn;
        }
        all.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(Semaphore::new(SMALL_INGESTS as usize));
        all.insert(Arc::clone(owner), Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_one_turn_and_is_forgotten_behind_the_last() {
        let turns = IngestTurns::default();
        let (one, other) = (Arc::from("a"), Arc::from("b"));
        let (first, second) = (turns.of(&one), turns.of(&one));
        let held = first.try_acquire_many(SMALL_INGESTS);
        assert!(held.is_ok() && second.try_acquire().is_err());
        assert!(turns.of(&other).try_acquire_many(SMALL_INGESTS).is_ok());
        drop(held);
        drop((first, second));
        turns.of(&other);
        let all = turns.0.lock().expect("no panic");
        assert!(!all.contains_key(&one));
    }
}
