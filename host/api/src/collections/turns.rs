//! Turns of owners whose documents are ingested: one of each at a time, or some small ones, so that many documents of one leave a
//! place for those of another. Pauses of work that the store has no room for.

use std::sync::Arc;
use std::time::Duration;

use mortise_store::StoreError;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, SemaphorePermit};
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
