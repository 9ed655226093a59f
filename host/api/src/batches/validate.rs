//! The check of all lines of a batch, before any of them is sent.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use mortise_http::{Owner, Reservation};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::time::sleep;

use super::check::{LineRequest, RefusedLine, Wrong, read};
use super::job::{BatchEnd, Halted, Job, halted};
use super::lines::{BatchLine, Lines};
use crate::limits::{MAX_BATCH_LINES, MAX_LINE_ERRORS};

/// Pause before memory for a line is asked for again.
const PAUSE: Duration = Duration::from_millis(200);

/// Check the lines of a batch; `Some` if that is its end.
pub(super) async fn validate(job: &mut Job) -> Result<Option<BatchEnd>, Halted> {
    let batches = Arc::clone(&job.batches);
    let _turn = tokio::select! {
        biased;
        end = job.interrupted() => return end.map(Some),
        turn = batches.checks.acquire() => turn.map_err(|_| Halted)?,
    };
    let store = Arc::clone(&batches.api.store);
    let mut lines = Lines::of(store, job.batch.input(), batches.api.http.body.bytes);
    let mut names = HashSet::new();
    let mut errors: Vec<Value> = Vec::new();
    while let Some(line) = lines.next().await.map_err(halted)? {
        if let Some(end) = job.interruption()? {
            return Ok(Some(end));
        }
        if line.place > MAX_BATCH_LINES as u64 {
            let message = format!("the file has more than {MAX_BATCH_LINES} lines");
            errors = vec![Wrong::new("too_many_lines", message).entry(None)];
            break;
        }
        let Err(wrong) = checked(job, &line, &mut names).await else {
            continue;
        };
        errors.push(wrong.entry(Some(line.number)));
        if errors.len() >= MAX_LINE_ERRORS {
            break;
        }
    }
    if lines.places == 0 {
        let wrong = Wrong::new("empty_file", "the file has no lines");
        errors.push(wrong.entry(None));
    }
    if !errors.is_empty() {
        return Ok(Some(BatchEnd::Failed(errors)));
    }
    job.batch.add("total", lines.places);
    job.batch.enter("in_progress");
    let begun = job.batch.outputs();
    let begun = begun.map(|(output, _, kind)| job.batch.begin_output(output, kind));
    job.commit(begun.into()).await
}

/// Memory for the values of a line.
pub(super) fn memory(job: &Job) -> Reservation {
    let nobody = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let address = job
        .live
        .credentials()
        .map_or(nobody, |(_, address)| address);
    let tenant = job.batch.grant().principal.tenant;
    let owner = Owner::new(address, tenant.as_deref());
    job.batches.api.http.bodies.open(owner)
}

/// A line as a request. It waits for memory, if others have it.
pub(super) async fn request(job: &Job, text: &[u8]) -> Result<LineRequest, Wrong> {
    let endpoint = job.batch.object["endpoint"].as_str().unwrap_or_default();
    loop {
        // Given back at once: what waits for its answer has memory as any request has.
        match read(text, endpoint, &mut memory(job)) {
            Ok(line) => return Ok(line),
            Err(RefusedLine::Wrong(wrong)) => return Err(wrong),
            Err(RefusedLine::Busy) => sleep(PAUSE).await,
        }
    }
}

async fn checked(job: &Job, line: &BatchLine, names: &mut HashSet<[u8; 32]>) -> Result<(), Wrong> {
    let Some(text) = &line.text else {
        let most = job.batches.api.http.body.bytes;
        let message = format!("the line has more than {most} bytes");
        return Err(Wrong::new("line_too_long", message));
    };
    let request = request(job, text).await?;
    if let Some(model) = request.body.get("model").and_then(Value::as_str)
        && Some(model) != job.batch.model()
    {
        let message = "all lines of a batch must name the model of the first";
        return Err(Wrong::at("body", "mismatched_model", message));
    }
    let name = Sha256::digest(request.custom_id.as_bytes()).into();
    if !names.insert(name) {
        let message = "the `custom_id` is that of an earlier line";
        return Err(Wrong::at("custom_id", "duplicate_custom_id", message));
    }
    Ok(())
}
