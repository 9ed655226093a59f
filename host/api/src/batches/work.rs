//! The lines of a batch while they are answered: some at once, each in a slot that all batches share.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use mortise_service::FairTurn;
use mortise_store::{Change, Item};
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};

use super::ask::{LineOutcome, LineSender, expired};
use super::check::{RefusedLine, Wrong};
use super::done::{Done, id_of};
use super::endpoint::route;
use super::job::{BatchEnd, Halted, Job, halted};
use super::lines::Lines;
use super::validate::{PAUSE, request};
use crate::contents::key_of;

/// Lines that are written together when a batch expires.
const GROUP: usize = 256;

/// A line that was sent.
struct Sent {
    place: u64,
    at: u64,
    came: LineOutcome,
}

/// A slot that is waited for; never, if none is.
async fn taken(slot: &mut Option<BoxFuture<'static, Option<FairTurn>>>) -> Option<FairTurn> {
    match slot {
        Some(slot) => slot.await,
        None => std::future::pending().await,
    }
}

/// The lines of a batch.
pub(super) struct Work {
    asker: Arc<LineSender>,
    lines: Lines,
    done: Done,
    /// Lines to be sent again: the place of each, and the byte at which it begins.
    again: VecDeque<(u64, u64)>,
    sent: FuturesUnordered<BoxFuture<'static, Sent>>,
    /// Wait for a slot, in the owner's turn.
    slot: Option<BoxFuture<'static, Option<FairTurn>>>,
    /// Time before which no line is sent, after a line was put off.
    pause: Instant,
    /// All lines have been read.
    read: bool,
}

impl Work {
    pub(super) async fn open(job: &Job) -> Result<Self, Halted> {
        let (api, batch) = (&job.batches.api, &job.batch);
        let endpoint = batch.object["endpoint"].as_str().unwrap_or_default();
        let endpoint = route(endpoint).ok_or(Halted)?;
        let done = Done::read(&api.store, batch).await.map_err(halted)?;
        Ok(Self {
            asker: Arc::new(LineSender {
                routes: job.batches.routes.clone(),
                live: Arc::clone(&job.live),
                grant: batch.grant(),
                endpoint,
            }),
            lines: Lines::of(Arc::clone(&api.store), batch.input(), api.http.body.bytes),
            done,
            again: VecDeque::new(),
            sent: FuturesUnordered::new(),
            slot: None,
            pause: Instant::now(),
            read: false,
        })
    }

    /// Answer all lines. What is under way when that is interrupted is given up, and not stored.
    pub(super) async fn answer(&mut self, job: &mut Job) -> Result<BatchEnd, Halted> {
        let mut interrupted = Box::pin(job.interrupted());
        loop {
            let waiting = !self.read || !self.again.is_empty();
            if !waiting && self.sent.is_empty() {
                return self.complete(job);
            }
            self.seek_slot(job, waiting && self.sent.len() < job.batches.at_once);
            let failed = tokio::select! {
                biased;
                end = &mut interrupted => return end,
                Some(first) = self.sent.next(), if !self.sent.is_empty() => {
                    let mut came = vec![first];
                    while let Some(Some(next)) = self.sent.next().now_or_never() {
                        came.push(next);
                    }
                    self.store(job, came).await?
                }
                slot = taken(&mut self.slot) => {
                    self.slot = None;
                    self.send(job, slot.ok_or(Halted)?).await?;
                    None
                }
            };
            if let Some(end) = failed {
                return Ok(end);
            }
        }
    }

    /// Wait for a slot from now on, or not any more.
    fn seek_slot(&mut self, job: &Job, wanted: bool) {
        let (slots, owner) = (&job.batches.slots, &job.batch.key.owner);
        if self.sent.is_empty() && (self.pause > Instant::now() || !slots.is_free(owner)) {
            // Who waits for others holds nothing.
            self.lines.forget();
        }
        if !wanted {
            self.slot = None;
        } else if self.slot.is_none() {
            let (slots, owner) = (Arc::clone(slots), Arc::clone(owner));
            let pause = self.pause;
            self.slot = Some(Box::pin(async move {
                sleep_until(pause).await;
                slots.take(&owner).await
            }));
        }
    }

    /// End of a batch after its last line: completed, or failed if lines of the input file are gone.
    fn complete(&self, job: &Job) -> Result<BatchEnd, Halted> {
        if self.lines.places == job.batch.count("total") {
            return Ok(BatchEnd::Completed);
        }
        let wrong = Wrong::new("file_not_found", "the input file is not there any more");
        Ok(BatchEnd::Failed(vec![wrong.entry(None)]))
    }

    /// Send the next line, if there is one, and nothing was put off since the slot was asked for.
    async fn send(&mut self, job: &Job, mut slot: FairTurn) -> Result<(), Halted> {
        if self.pause > Instant::now() {
            return Ok(());
        }
        let Some((place, at, text)) = self.next().await? else {
            return Ok(());
        };
        let line = match request(job, &text) {
            Ok(line) => line,
            Err(RefusedLine::Busy) => {
                self.again.push_front((place, at));
                self.pause = Instant::now() + PAUSE;
                return Ok(());
            }
            // It was right when it was checked, so the file is not what it was.
            Err(RefusedLine::Wrong(_)) => return Err(Halted),
        };
        let asker = Arc::clone(&self.asker);
        self.sent.push(Box::pin(async move {
            let came = asker.ask(line).await;
            slot.count_time();
            drop(slot);
            Sent { place, at, came }
        }));
        Ok(())
    }

    /// The next line that was not answered: its place, the byte at which it begins, and its text.
    async fn next(&mut self) -> Result<Option<(u64, u64, Vec<u8>)>, Halted> {
        if let Some((place, at)) = self.again.pop_front() {
            let text = self.lines.again(at).await.map_err(halted)?;
            return text.map(|text| Some((place, at, text))).ok_or(Halted);
        }
        while let Some(line) = self.lines.next().await.map_err(halted)? {
            if let (false, Some(text)) = (self.done.has(line.place), line.text) {
                return Ok(Some((line.place, line.at, text)));
            }
        }
        self.read = true;
        Ok(None)
    }

    /// Store the results of lines; `Some` if the batch fails by one of them.
    async fn store(&mut self, job: &mut Job, came: Vec<Sent>) -> Result<Option<BatchEnd>, Halted> {
        let (mut answers, mut errors) = (Vec::new(), Vec::new());
        for Sent { place, at, came } in came {
            match came {
                LineOutcome::Later(pause) => {
                    self.again.push_back((place, at));
                    self.pause = self.pause.max(Instant::now() + pause);
                }
                LineOutcome::Answered {
                    written,
                    succeeded,
                    tokens,
                } => {
                    job.batch.spend(tokens);
                    let lines = if succeeded { &mut answers } else { &mut errors };
                    lines.push((place, written));
                }
            }
        }
        self.write(job, answers, errors).await
    }

    /// Write lines to the output files of a batch, and record the lines as done.
    async fn write(
        &mut self,
        job: &mut Job,
        answers: Vec<(u64, Vec<u8>)>,
        errors: Vec<(u64, Vec<u8>)>,
    ) -> Result<Option<BatchEnd>, Halted> {
        let before = job.batch.clone();
        let mut changes = Vec::new();
        let mut places = Vec::new();
        for (lines, which) in [(answers, "completed"), (errors, "failed")] {
            if lines.is_empty() {
                continue;
            }
            places.extend(lines.iter().map(|(place, _)| *place));
            job.batch.add(which, lines.len() as u64);
            let inner = &mut job.batch.inner;
            let output = match which {
                "completed" => &mut inner.output,
                _ => &mut inner.error,
            };
            output.bytes += lines.iter().map(|(_, line)| line.len() as u64).sum::<u64>();
            let items = lines.into_iter().map(|(place, body)| Item {
                id: id_of(place),
                body,
            });
            changes.push(Change::Append {
                parent: key_of(&before.key.owner, &output.id),
                items: items.collect(),
            });
        }
        if changes.is_empty() {
            return Ok(None);
        }
        let failed = job.commit(changes).await?;
        match failed {
            None => places.into_iter().for_each(|place| self.done.add(place)),
            // What was not stored does not count.
            Some(_) => job.batch = before,
        }
        Ok(failed)
    }

    /// Write all lines that were not answered as expired.
    pub(super) async fn expire(&mut self, job: &mut Job) -> Result<(), Halted> {
        #[derive(Deserialize)]
        struct Named {
            custom_id: String,
        }
        self.sent.clear();
        let api = Arc::clone(&job.batches.api);
        let store = Arc::clone(&api.store);
        let mut lines = Lines::of(store, job.batch.input(), api.http.body.bytes);
        let mut group = Vec::new();
        loop {
            let line = lines.next().await.map_err(halted)?;
            let ended = line.is_none();
            let open = line.filter(|line| !self.done.has(line.place));
            if let Some(line) = open
                && let Ok(named) = serde_json::from_slice::<Named>(&line.text.unwrap_or_default())
            {
                group.push((line.place, expired(&named.custom_id)));
            }
            if (ended || group.len() >= GROUP)
                && self
                    .write(job, Vec::new(), std::mem::take(&mut group))
                    .await?
                    .is_some()
            {
                // The owner may store no more: what there is stays.
                return Ok(());
            }
            if ended {
                return Ok(());
            }
        }
    }
}
