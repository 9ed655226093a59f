//! The life of one batch: its lines are checked, then answered, and its files are ended. A server that is killed goes
//! on where it was: a line whose answer is stored is never sent again.

use std::sync::Arc;

use super::Batches;
use super::job::{BatchEnd, Halted, Job};
use super::live::RegisteredBatch;
use super::record::Batch;
use super::validate::validate;
use super::work::Work;

/// Begin the work on a batch that is stored.
pub(super) fn begin(batches: &Arc<Batches>, batch: Batch, registered: RegisteredBatch) {
    let job = Job::of(batches, batch, Arc::clone(&registered.live));
    tokio::spawn(async move {
        let id = job.batch.key.id.clone();
        if steps(job).await.is_err() {
            tracing::info!(id, "a batch goes on after the next start");
        }
        drop(registered);
    });
}

/// Take up the work on a batch, whose caller is not known any more. False if there is such work already.
pub(super) fn take_up(batches: &Arc<Batches>, batch: Batch) -> bool {
    let subject = batch.grant().principal.subject;
    let registered = batches.live.register(&batch.key, subject, None, usize::MAX);
    let Some(registered) = registered else {
        return false;
    };
    begin(batches, batch, registered);
    true
}

async fn steps(mut job: Job) -> Result<(), Halted> {
    let end = match job.batch.status() {
        "validating" => validate(&mut job).await?,
        "cancelling" => Some(BatchEnd::Cancelled),
        "finalizing" => Some(BatchEnd::Completed),
        _ => None,
    };
    let end = match end {
        Some(end) => end,
        None => {
            let mut work = Work::open(&job).await?;
            let end = work.answer(&mut job).await?;
            if matches!(end, BatchEnd::Expired) {
                work.expire(&mut job).await?;
            }
            end
        }
    };
    job.end(end).await
}
