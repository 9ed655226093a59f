//! One batch while it is worked on: what breaks the work off, and how each step is stored before the next.

use std::sync::Arc;
use std::time::Duration;

use mortise_store::{Change, StoreError};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::Batches;
use super::live::LiveBatch;
use super::record::Batch;
use crate::held::FileUse;
use crate::ids::now;

/// Attempts to write what must not be lost, and pauses between them.
const ATTEMPTS: u32 = 60;
const RETRY: Duration = Duration::from_secs(1);

/// One batch, and the work on it.
pub(super) struct Job {
    pub(super) batches: Arc<Batches>,
    pub(super) batch: Batch,
    pub(super) live: Arc<LiveBatch>,
    deadline: Instant,
    draining: watch::Receiver<bool>,
    _input: FileUse,
}

/// End of a batch.
pub(super) enum BatchEnd {
    Completed,
    Cancelled,
    Expired,
    /// Entries of `errors.data`.
    Failed(Vec<Value>),
}

/// The work cannot go on here; the next start takes it up.
pub(super) struct Halted;

/// A store that fails. What is wrong stands in its log.
pub(super) fn halted(_: StoreError) -> Halted {
    Halted
}

impl Job {
    pub(super) fn of(batches: &Arc<Batches>, batch: Batch, live: Arc<LiveBatch>) -> Self {
        let left = u64::try_from(batch.expires().saturating_sub(now())).unwrap_or(0);
        Self {
            _input: batches.api.files.hold(batch.input()),
            batches: Arc::clone(batches),
            live,
            deadline: Instant::now() + Duration::from_secs(left),
            draining: batches.api.http.draining.clone(),
            batch,
        }
    }

    /// Whether the work is to be broken off now.
    pub(super) fn interruption(&self) -> Result<Option<BatchEnd>, Halted> {
        if *self.draining.borrow() {
            return Err(Halted);
        }
        if self.live.is_cancelled() {
            return Ok(Some(BatchEnd::Cancelled));
        }
        Ok((Instant::now() >= self.deadline).then_some(BatchEnd::Expired))
    }

    /// Wait until the work is to be broken off.
    pub(super) fn interrupted(
        &self,
    ) -> impl Future<Output = Result<BatchEnd, Halted>> + Send + use<> {
        let (live, mut draining) = (Arc::clone(&self.live), self.draining.clone());
        let deadline = self.deadline;
        async move {
            tokio::select! {
                biased;
                _ = draining.wait_for(|draining| *draining) => Err(Halted),
                () = live.cancelled() => Ok(BatchEnd::Cancelled),
                () = sleep_until(deadline) => Ok(BatchEnd::Expired),
            }
        }
    }

    /// Store changes together with the batch as it is now.
    ///
    /// # Errors
    /// `Ok(Some(_))` says why the batch fails: its owner may have no more.
    pub(super) async fn commit(
        &self,
        mut changes: Vec<Change>,
    ) -> Result<Option<BatchEnd>, Halted> {
        let state = &self.batches.api;
        changes.push(Change::Update(self.batch.record(state.retention)));
        for _ in 0..ATTEMPTS {
            match state.store.commit(changes.clone()).await {
                Ok(()) => {
                    self.live.show(&self.batch.object);
                    return Ok(None);
                }
                Err(error @ (StoreError::Quota { .. } | StoreError::TooLarge { .. })) => {
                    let message = error.to_string();
                    let entry = json!({
                        "code": "store_quota_exceeded", "line": null, "message": message, "param": null,
                    });
                    return Ok(Some(BatchEnd::Failed(vec![entry])));
                }
                // It was removed, or another host has taken it over.
                Err(StoreError::NotFound | StoreError::Conflict) => return Err(Halted),
                Err(StoreError::Busy | StoreError::Full | StoreError::Unavailable(_)) => {}
            }
            if *self.draining.borrow() {
                break;
            }
            sleep(RETRY).await;
        }
        Err(Halted)
    }

    /// End the batch and its files.
    pub(super) async fn end(&mut self, end: BatchEnd) -> Result<(), Halted> {
        let last = match end {
            BatchEnd::Completed => {
                self.pass("finalizing").await?;
                "completed"
            }
            BatchEnd::Cancelled => {
                self.pass("cancelling").await?;
                "cancelled"
            }
            BatchEnd::Expired => "expired",
            BatchEnd::Failed(errors) => {
                self.batch.object["errors"] = json!({"object": "list", "data": errors});
                "failed"
            }
        };
        let retention = self.batches.api.retention;
        let mut changes = Vec::new();
        let mut written = Vec::new();
        for (output, field, kind) in self.batch.outputs() {
            changes.push(self.batch.end_output(output, kind, retention));
            if output.bytes > 0 {
                written.push((field, output.id.clone()));
            }
        }
        for (field, id) in written {
            self.batch.object[field] = json!(id);
        }
        self.batch.enter(last);
        if self.commit(changes).await?.is_some() {
            return Err(Halted);
        }
        let (id, count) = (&self.batch.key.id, |which: &str| self.batch.count(which));
        let (completed, failed) = (count("completed"), count("failed"));
        tracing::info!(id, status = last, completed, failed, "a batch has ended");
        Ok(())
    }

    /// Come to a state on the way to the end, if it is not there yet.
    async fn pass(&mut self, status: &str) -> Result<(), Halted> {
        if self.batch.status() != status {
            self.batch.enter(status);
            // A state takes no room to speak of; the end tells if there is none.
            self.commit(Vec::new()).await?;
        }
        Ok(())
    }
}
