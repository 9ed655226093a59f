//! Requests with an idempotency key while they are answered: each is done once, and all who send it read one
//! recording of the answer.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use mortise_http::Problem;
use tokio::sync::watch;

use crate::limits::{MAX_EXECUTIONS, MAX_KEPT_BYTES};

/// SHA-256 of a request.
pub(crate) type Fingerprint = [u8; 32];

/// Account of the caller, and the key.
pub(crate) type Name = (Arc<str>, String);

type All = Arc<Mutex<HashMap<Name, Arc<Execution>>>>;

/// All requests with a key that are being answered.
#[derive(Default)]
pub(crate) struct Executions(All);

/// One of them.
pub(crate) struct Execution {
    pub(crate) fingerprint: Fingerprint,
    recording: Mutex<Recording>,
    grown: watch::Sender<()>,
}

#[derive(Default)]
struct Recording {
    head: Option<Head>,
    chunks: Vec<Bytes>,
    bytes: usize,
    ended: bool,
    /// It is longer than may be kept, and its readers are cut off.
    overflowed: bool,
}

/// The answer without its body.
#[derive(Clone)]
pub(crate) struct Head {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The problem that the dialect has yet to write.
    pub(crate) problem: Option<Problem>,
}

/// Result of entering a request.
pub(crate) enum Found {
    /// It is the first, and is to be done. The entry ends with this.
    First(Registered),
    /// It is being done.
    Running(Arc<Execution>),
    /// Too many are being done.
    Full,
}

/// Ends an execution when it is dropped.
pub(crate) struct Registered {
    all: All,
    name: Name,
    pub(crate) execution: Arc<Execution>,
}

impl Executions {
    pub(crate) fn enter(&self, name: Name, fingerprint: Fingerprint) -> Found {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let full = all.len() >= MAX_EXECUTIONS;
        match all.entry(name.clone()) {
            Entry::Occupied(running) => Found::Running(Arc::clone(running.get())),
            Entry::Vacant(_) if full => Found::Full,
            Entry::Vacant(place) => {
                let execution = Arc::new(Execution {
                    fingerprint,
                    recording: Mutex::default(),
                    grown: watch::Sender::new(()),
                });
                place.insert(Arc::clone(&execution));
                Found::First(Registered {
                    all: Arc::clone(&self.0),
                    name,
                    execution,
                })
            }
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&self.name);
        drop(all);
        self.execution.locked().ended = true;
        self.execution.grown.send_modify(|()| {});
    }
}

impl Execution {
    fn locked(&self) -> MutexGuard<'_, Recording> {
        self.recording
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, head: Head) {
        self.locked().head = Some(head);
        self.grown.send_modify(|()| {});
    }

    /// Add to the body. `false` if it becomes longer than may be kept.
    pub(crate) fn add(&self, chunk: Bytes) -> bool {
        let mut recording = self.locked();
        recording.bytes += chunk.len();
        if recording.bytes > MAX_KEPT_BYTES {
            recording.overflowed = true;
            return false;
        }
        recording.chunks.push(chunk);
        drop(recording);
        self.grown.send_modify(|()| {});
        true
    }

    /// The whole body.
    pub(crate) fn body(&self) -> Vec<u8> {
        self.locked().chunks.concat()
    }

    /// The head, as soon as it is there; `None` if there will be none.
    pub(crate) async fn head(&self) -> Option<Head> {
        let mut grown = self.grown.subscribe();
        loop {
            grown.borrow_and_update();
            {
                let recording = self.locked();
                if recording.head.is_some() || recording.ended {
                    return recording.head.clone();
                }
            }
            grown.changed().await.ok()?;
        }
    }

    /// The chunk at a place, as soon as it may be read; `None` at the end. The last chunk may be read when the
    /// whole answer is kept: who has all of it can rely on that.
    ///
    /// # Errors
    /// When the body is longer than may be kept.
    pub(crate) async fn chunk(&self, place: usize) -> Option<Result<Bytes, std::io::Error>> {
        let mut grown = self.grown.subscribe();
        loop {
            grown.borrow_and_update();
            {
                let recording = self.locked();
                let readable = match recording.ended {
                    true => recording.chunks.len(),
                    false => recording.chunks.len().saturating_sub(1),
                };
                if place < readable {
                    return recording.chunks.get(place).cloned().map(Ok);
                }
                if recording.overflowed {
                    let text = "the answer is longer than can be kept for an idempotency key";
                    return Some(Err(std::io::Error::other(text)));
                }
                if recording.ended {
                    return None;
                }
            }
            grown.changed().await.ok()?;
        }
    }
}
