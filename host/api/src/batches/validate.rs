//! The check of all lines of a batch, before any of them is sent.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use mortise_http::{Owner, Reservation};
use mortise_store::StoreError;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::time::sleep;

use super::check::{LineRequest, RefusedLine, Wrong, read};
use super::job::{BatchEnd, Halted, Job, halted};
use super::lines::{BatchLine, Lines};
use crate::limits::{MAX_BATCH_LINES, MAX_LINE_ERRORS};

/// Pause before memory for a line is asked for again.
pub(super) const PAUSE: Duration = Duration::from_millis(200);

/// Interruption of a check: an end of the batch, or of the work here.
type Stop = Result<BatchEnd, Halted>;

/// Check the lines of a batch; `Some` if that is its end.
pub(super) async fn validate(job: &mut Job) -> Result<Option<BatchEnd>, Halted> {
    let (places, errors) = match check_lines(job).await {
        Ok(checked) => checked,
        Err(stop) => return stop.map(Some),
    };
    if !errors.is_empty() {
        return Ok(Some(BatchEnd::Failed(errors)));
    }
    job.batch.add("total", places);
    job.batch.enter("in_progress");
    let begun = job.batch.outputs();
    let begun = begun.map(|(output, _, kind)| job.batch.begin_output(output, kind));
    job.commit(begun.into()).await
}

/// The number of lines, and what is wrong with them. One batch of an owner is checked at a time, and few of all. A batch
/// that waits for memory leaves its place to those of other owners, and holds no line.
async fn check_lines(job: &Job) -> Result<(u64, Vec<Value>), Stop> {
    let batches = &job.batches;
    let of_owner = batches.checks.of(&job.batch.key.owner);
    let _of_owner = until(job, of_owner.acquire()).await?;
    let mut turn = until(job, batches.checks_of_all.acquire()).await?;
    let store = Arc::clone(&batches.api.store);
    let mut lines = Lines::of(store, job.batch.input(), batches.api.http.body.bytes);
    let mut names = HashSet::new();
    let mut errors: Vec<Value> = Vec::new();
    while let Some(mut line) = lines.next().await.map_err(stopped)? {
        if let Some(end) = job.interruption().map_err(Err)? {
            return Err(Ok(end));
        }
        if line.place > MAX_BATCH_LINES as u64 {
            let message = format!("the file has more than {MAX_BATCH_LINES} lines");
            errors = vec![Wrong::new("too_many_lines", message).entry(None)];
            break;
        }
        let checked = loop {
            match checked(job, &line, &mut names) {
                Ok(()) => break Ok(()),
                Err(RefusedLine::Wrong(wrong)) => break Err(wrong),
                Err(RefusedLine::Busy) => {
                    drop(turn);
                    line.text = None;
                    lines.forget();
                    until(job, sleep(PAUSE).map(Ok::<(), Halted>)).await?;
                    turn = until(job, batches.checks_of_all.acquire()).await?;
                    let text = lines.again(line.at).await.map_err(stopped)?;
                    line.text = Some(text.ok_or(Err(Halted))?);
                }
            }
        };
        errors.extend(checked.err().map(|wrong| wrong.entry(Some(line.number))));
        if errors.len() >= MAX_LINE_ERRORS {
            break;
        }
    }
    drop(turn);
    if lines.places == 0 {
        let wrong = Wrong::new("empty_file", "the file has no lines");
        errors.push(wrong.entry(None));
    }
    Ok((lines.places, errors))
}

/// Wait for something, unless the work is to be broken off first.
async fn until<T, E>(job: &Job, wanted: impl Future<Output = Result<T, E>>) -> Result<T, Stop> {
    tokio::select! {
        biased;
        end = job.interrupted() => Err(end),
        got = wanted => got.map_err(|_| Err(Halted)),
    }
}

fn stopped(error: StoreError) -> Stop {
    Err(halted(error))
}

/// Memory for the values of a line.
fn memory(job: &Job) -> Reservation {
    let nobody = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let address = job
        .live
        .credentials()
        .map_or(nobody, |(_, address)| address);
    let tenant = job.batch.grant().principal.tenant;
    let owner = Owner::new(address, tenant.as_deref());
    job.batches.api.http.bodies.open(owner)
}

/// A line as a request, if there is memory for it.
pub(super) fn request(job: &Job, text: &[u8]) -> Result<LineRequest, RefusedLine> {
    let endpoint = job.batch.object["endpoint"].as_str().unwrap_or_default();
    // Given back at once: what waits for its answer has memory as any request has.
    read(text, endpoint, &mut memory(job))
}

fn checked(job: &Job, line: &BatchLine, names: &mut HashSet<[u8; 32]>) -> Result<(), RefusedLine> {
    let wrong = |wrong| Err(RefusedLine::Wrong(wrong));
    let Some(text) = &line.text else {
        let most = job.batches.api.http.body.bytes;
        let message = format!("the line has more than {most} bytes");
        return wrong(Wrong::new("line_too_long", message));
    };
    let request = request(job, text)?;
    if let Some(model) = request.body.get("model").and_then(Value::as_str)
        && Some(model) != job.batch.model()
    {
        let message = "all lines of a batch must name the model of the first";
        return wrong(Wrong::at("body", "mismatched_model", message));
    }
    let name = Sha256::digest(request.custom_id.as_bytes()).into();
    if !names.insert(name) {
        let message = "the `custom_id` is that of an earlier line";
        return wrong(Wrong::at("custom_id", "duplicate_custom_id", message));
    }
    Ok(())
}
