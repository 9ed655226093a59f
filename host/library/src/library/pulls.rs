//! Downloads from the hub that go on in the background, with their progress as events.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use mortise_hub::{DownloadProgress, Hub, HubError, ModelReference};
use serde::Serialize;
use tokio::sync::{Notify, Semaphore, broadcast};

use super::{Library, blocking, now, reference_of};
use crate::entries::{EntrySource, LibraryEntry};
use crate::error::LibraryError;
use crate::limits::{MAX_ACTIVE_PULLS, MAX_ENDED_PULLS, MAX_PULL_BACKLOG, MAX_PULLS_AT_ONCE};
use crate::room::{LibraryRoom, Promise};

/// State of a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PullState {
    /// The pull waits for other pulls.
    Queued,
    /// Files are coming.
    Downloading,
    /// The pull was cancelled, and is about to end.
    Cancelling,
    /// The model is there.
    Completed,
    /// The pull failed. Downloaded bytes stay for the next pull.
    Failed,
    /// The pull was cancelled. Downloaded bytes stay for the next pull.
    Cancelled,
}

impl PullState {
    /// True once the pull has ended.
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// A pull, as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PullStatus {
    /// Id of the pull.
    pub id: String,
    /// Reference of the model, which is its name.
    pub model: String,
    /// State.
    pub state: PullState,
    /// File that is coming.
    pub file: Option<String>,
    /// Bytes of that file that are on disk.
    pub bytes_done: u64,
    /// Bytes of that file in all.
    pub bytes_total: u64,
    /// Bytes of all files that this pull has brought.
    pub bytes_received: u64,
    /// Reason of a failure.
    pub error: Option<String>,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// Milliseconds since 1970.
    pub ended_at_ms: Option<u64>,
}

/// Pulls that are under way, and the last that have ended.
#[derive(Debug)]
pub(crate) struct Pulls {
    known: Mutex<VecDeque<Arc<Pull>>>,
    turns: Semaphore,
    events: broadcast::Sender<PullStatus>,
}

impl Default for Pulls {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            turns: Semaphore::new(MAX_PULLS_AT_ONCE),
            events: broadcast::channel(MAX_PULL_BACKLOG).0,
        }
    }
}

/// A pull, in progress or ended.
#[derive(Debug)]
struct Pull {
    id: String,
    reference: ModelReference,
    room: Arc<LibraryRoom>,
    status: Mutex<PullStatus>,
    promises: Mutex<Vec<Promise>>,
    cancelled: AtomicBool,
    cancel: Notify,
    events: broadcast::Sender<PullStatus>,
}

/// Steps of a download that are told: so many per file at most.
const STEPS: u64 = 100;

impl Pulls {
    fn known(&self) -> MutexGuard<'_, VecDeque<Arc<Pull>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<PullStatus> {
        self.events.subscribe()
    }

    /// True if files of the same repository are coming.
    pub(crate) fn brings_repository(&self, name: &str) -> bool {
        let reference = reference_of(name);
        let same = |pull: &Arc<Pull>| {
            let repository = reference.as_ref().map(|reference| &reference.repository);
            !pull.status().state.has_ended() && Some(&pull.reference.repository) == repository
        };
        self.known().iter().any(same)
    }

    fn get(&self, id: &str) -> Result<Arc<Pull>, LibraryError> {
        let known = self.known();
        let found = known.iter().find(|pull| pull.id == id).cloned();
        found.ok_or_else(|| LibraryError::UnknownPull(id.chars().take(64).collect()))
    }

    /// The pull of a model that is under way, or a new one, of which the second value tells.
    fn join(
        &self,
        reference: ModelReference,
        room: &Arc<LibraryRoom>,
    ) -> Result<(Arc<Pull>, bool), LibraryError> {
        let mut known = self.known();
        let active = |pull: &&Arc<Pull>| !pull.status().state.has_ended();
        let same = known
            .iter()
            .filter(active)
            .find(|pull| pull.reference == reference);
        if let Some(same) = same {
            return Ok((Arc::clone(same), false));
        }
        if known.iter().filter(active).count() >= MAX_ACTIVE_PULLS {
            let what = format!("{MAX_ACTIVE_PULLS} pulls");
            return Err(LibraryError::TooMany { what });
        }
        let mut ended = known.iter().filter(|pull| !active(pull)).count();
        known.retain(|pull| {
            let old = ended >= MAX_ENDED_PULLS && pull.status().state.has_ended();
            ended -= usize::from(old);
            !old
        });
        let pull = Arc::new(Pull::new(reference, Arc::clone(room), self.events.clone()));
        known.push_back(Arc::clone(&pull));
        Ok((pull, true))
    }
}

impl Pull {
    fn new(
        reference: ModelReference,
        room: Arc<LibraryRoom>,
        events: broadcast::Sender<PullStatus>,
    ) -> Self {
        let id = uuid::Uuid::new_v4().simple().to_string();
        Self {
            status: Mutex::new(PullStatus {
                id: id.clone(),
                model: reference.to_string(),
                state: PullState::Queued,
                file: None,
                bytes_done: 0,
                bytes_total: 0,
                bytes_received: 0,
                error: None,
                created_at_ms: now_ms(),
                ended_at_ms: None,
            }),
            id,
            reference,
            room,
            promises: Mutex::default(),
            cancelled: AtomicBool::new(false),
            cancel: Notify::new(),
            events,
        }
    }

    fn status(&self) -> PullStatus {
        self.locked().clone()
    }

    fn locked(&self) -> MutexGuard<'_, PullStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Change the status, and send it as an event if `change` returns true.
    fn change(&self, change: impl FnOnce(&mut PullStatus) -> bool) {
        let mut status = self.locked();
        if change(&mut status) {
            // An error says that nobody listens.
            let _ = self.events.send(status.clone());
        }
    }

    /// Enter a state, unless the pull is about to end and the state is none of an end.
    fn enter(&self, state: PullState, error: Option<String>) {
        self.change(|status| {
            if status.state == PullState::Cancelling && !state.has_ended() {
                return false;
            }
            status.state = state;
            status.error = error;
            if state.has_ended() {
                status.ended_at_ms = Some(now_ms());
                status.file = None;
            }
            true
        });
    }

    fn promises(&self) -> MutexGuard<'_, Vec<Promise>> {
        self.promises.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DownloadProgress for Pull {
    fn begin(&self, file: &str, total: u64, present: u64) {
        self.change(|status| {
            status.file = Some(file.to_owned());
            status.bytes_done = present;
            status.bytes_total = total;
            true
        });
    }

    fn advance(&self, bytes: u64) {
        if let Some(promise) = self.promises().last_mut() {
            promise.arrived(bytes);
        }
        self.change(|status| {
            let step = (status.bytes_total / STEPS).max(1);
            let before = status.bytes_done / step;
            status.bytes_done = status.bytes_done.saturating_add(bytes);
            status.bytes_received = status.bytes_received.saturating_add(bytes);
            status.bytes_done / step != before
        });
    }

    fn end(&self) {}

    fn note(&self, text: &str) {
        tracing::warn!(model = %self.reference, "{text}");
    }

    fn reserve(&self, bytes: u64) -> Result<(), String> {
        let promise = self.room.promise(bytes);
        self.promises()
            .push(promise.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

impl Library {
    /// Pull a model, or join a pull of the same model in progress.
    ///
    /// # Errors
    /// When the reference is malformed, its name is that of another model, or too many pulls are in progress.
    pub fn pull(self: &Arc<Self>, reference: &str) -> Result<PullStatus, LibraryError> {
        let reference: ModelReference = reference.parse()?;
        let name = reference.to_string();
        let known = self.entry(&name);
        if known.is_none_or(|entry| entry.source != EntrySource::Pull) {
            self.check_free(&name)?;
        }
        let (pull, new) = self.pulls.join(reference, &self.room)?;
        if new {
            pull.change(|_| true);
            let (this, pull) = (Arc::clone(self), Arc::clone(&pull));
            tokio::spawn(async move { this.run(&pull).await });
        }
        Ok(pull.status())
    }

    /// Pulls that are under way, and the last that have ended.
    pub fn pulls(&self) -> Vec<PullStatus> {
        self.pulls
            .known()
            .iter()
            .map(|pull| pull.status())
            .collect()
    }

    /// A pull.
    ///
    /// # Errors
    /// When there is no pull of this id.
    pub fn pull_status(&self, id: &str) -> Result<PullStatus, LibraryError> {
        Ok(self.pulls.get(id)?.status())
    }

    /// Cancel a pull, which ends soon after. A pull that has ended stays as it is.
    ///
    /// # Errors
    /// When there is no pull of this id.
    pub fn cancel_pull(&self, id: &str) -> Result<PullStatus, LibraryError> {
        let pull = self.pulls.get(id)?;
        pull.change(|status| {
            let ends = !status.state.has_ended();
            if ends {
                status.state = PullState::Cancelling;
                pull.cancelled.store(true, Ordering::Relaxed);
            }
            ends
        });
        pull.cancel.notify_one();
        Ok(pull.status())
    }

    async fn run(self: &Arc<Self>, pull: &Arc<Pull>) {
        let turn = tokio::select! {
            turn = self.pulls.turns.acquire() => turn,
            () = pull.cancel.notified() => return pull.enter(PullState::Cancelled, None),
        };
        pull.enter(PullState::Downloading, None);
        tracing::info!(model = %pull.reference, "a model is pulled");
        let (this, task) = (Arc::clone(self), Arc::clone(pull));
        let brought = blocking(move || this.bring(&task)).await;
        pull.promises().clear();
        drop(turn);
        match brought {
            Ok(()) => {
                self.copy_soon(pull.reference.to_string());
                self.list_anew().await;
                tracing::info!(model = %pull.reference, "a model was pulled");
                pull.enter(PullState::Completed, None);
            }
            Err(LibraryError::Hub(HubError::Cancelled)) => {
                tracing::info!(model = %pull.reference, "the pull of a model was cancelled");
                pull.enter(PullState::Cancelled, None);
            }
            Err(error) => {
                let error = with_causes(&error);
                tracing::warn!(model = %pull.reference, error, "a model was not pulled");
                pull.enter(PullState::Failed, Some(error));
            }
        }
    }

    /// Download the files, and add them to the library as a model. Blocks.
    fn bring(&self, pull: &Pull) -> Result<(), LibraryError> {
        let hub = Hub::new(self.config.hub.clone())?;
        let path = hub.fetch(&pull.reference, pull)?;
        let folder = &self.config.folder;
        let inside = path.strip_prefix(folder).unwrap_or(&path).to_owned();
        let entry = LibraryEntry {
            name: pull.reference.to_string(),
            source: EntrySource::Pull,
            size_bytes: mortise_hub::size_of(&path),
            path: inside,
            sha256: None,
            version: None,
            description: None,
            added_at: now(),
        };
        self.entries.put(entry, true)
    }
}

/// An error with what caused it.
fn with_causes(error: &LibraryError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |elapsed| {
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    })
}
