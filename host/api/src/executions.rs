//! Requests with an idempotency key while they are answered: each is done once, and all who send it read one
//! recording of the answer.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use mortise_http::{Problem, Reservation};
use tokio::sync::watch;

use crate::limits::{MAX_EXECUTIONS, MAX_KEPT_BYTES};

/// SHA-256 of a request.
pub(crate) type RequestFingerprint = [u8; 32];

/// Account of the caller, and the key.
pub(crate) type ExecutionKey = (Arc<str>, String);

type All = Arc<Mutex<HashMap<ExecutionKey, Arc<Execution>>>>;

/// Table of the requests with an idempotency key that are being answered.
#[derive(Default)]
pub(crate) struct Executions(All);

/// A request with an idempotency key that is being answered, and the recording of its answer.
pub(crate) struct Execution {
    pub(crate) fingerprint: RequestFingerprint,
    recording: Mutex<Recording>,
    grown: watch::Sender<()>,
}

struct Recording {
    head: Option<AnswerHead>,
    chunks: Vec<Bytes>,
    bytes: usize,
    /// Memory of the chunks, for as long as there are readers.
    memory: Reservation,
    ended: bool,
    /// The recording is longer than may be kept, and its readers are cut off.
    overflowed: bool,
}

/// The answer without its body.
#[derive(Clone)]
pub(crate) struct AnswerHead {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The problem that the dialect has yet to write.
    pub(crate) problem: Option<Problem>,
}

/// Result of entering a request.
pub(crate) enum ExecutionState {
    /// The request is the first of its key, and is to be done. The entry ends when the handle is dropped.
    First(RegisteredExecution),
    /// A request of this key is being answered.
    Running(Arc<Execution>),
    /// Too many requests with keys are being answered.
    Full,
}

/// Handle of the first request of a key. Dropping the handle ends the execution.
pub(crate) struct RegisteredExecution {
    all: All,
    name: ExecutionKey,
    pub(crate) execution: Arc<Execution>,
}

impl Executions {
    /// Enter a request. Its answer is recorded within what `memory` can have.
    pub(crate) fn enter(
        &self,
        name: ExecutionKey,
        fingerprint: RequestFingerprint,
        memory: Reservation,
    ) -> ExecutionState {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.keys().filter(|(owner, _)| *owner == name.0).count();
        let full = all.len() >= MAX_EXECUTIONS || own >= MAX_EXECUTIONS / 4;
        match all.entry(name.clone()) {
            Entry::Occupied(running) => ExecutionState::Running(Arc::clone(running.get())),
            Entry::Vacant(_) if full => ExecutionState::Full,
            Entry::Vacant(place) => {
                let execution = Arc::new(Execution {
                    fingerprint,
                    recording: Mutex::new(Recording {
                        head: None,
                        chunks: Vec::new(),
                        bytes: 0,
                        memory,
                        ended: false,
                        overflowed: false,
                    }),
                    grown: watch::Sender::new(()),
                });
                place.insert(Arc::clone(&execution));
                ExecutionState::First(RegisteredExecution {
                    all: Arc::clone(&self.0),
                    name,
                    execution,
                })
            }
        }
    }
}

impl Drop for RegisteredExecution {
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

    pub(crate) fn begin(&self, head: AnswerHead) {
        self.locked().head = Some(head);
        self.grown.send_modify(|()| {});
    }

    /// Add a chunk to the body. `false` if the body becomes longer than may be kept.
    pub(crate) fn add(&self, chunk: Bytes) -> bool {
        let mut recording = self.locked();
        let bytes = recording.bytes + chunk.len();
        if bytes > MAX_KEPT_BYTES || recording.memory.raise_to(bytes).is_err() {
            recording.overflowed = true;
            return false;
        }
        recording.bytes = bytes;
        recording.chunks.push(chunk);
        drop(recording);
        self.grown.send_modify(|()| {});
        true
    }

    /// The whole body.
    pub(crate) fn body(&self) -> Vec<u8> {
        self.locked().chunks.concat()
    }

    /// Wait for the head of the answer; `None` if the execution ended without one.
    pub(crate) async fn head(&self) -> Option<AnswerHead> {
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
                    let text = "the answer is longer than can be recorded for an idempotency key; leave the key out";
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

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use mortise_http::{BodyBudget, Owner};

    use super::*;
    use crate::limits::MAX_RECORDED_BYTES;

    #[test]
    fn one_caller_leaves_places_and_memory_to_others() {
        let executions = Executions::default();
        let budget = BodyBudget::new(MAX_RECORDED_BYTES);
        let enter = |tenant: &str, key: usize| {
            let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, tenant.as_bytes()[0]));
            let memory = budget.open(Owner::new(address, Some(tenant)));
            executions.enter((Arc::from(tenant), key.to_string()), [0; 32], memory)
        };
        let first = |tenant, key| match enter(tenant, key) {
            ExecutionState::First(registered) => registered,
            _ => panic!("there are places"),
        };
        let held: Vec<ExecutionState> =
            (0..MAX_EXECUTIONS / 4).map(|key| enter("a", key)).collect();
        assert!(matches!(enter("a", MAX_EXECUTIONS), ExecutionState::Full));
        assert!(matches!(enter("a", 0), ExecutionState::Running(_)));
        let other = first("b", 0);
        drop(held);
        let (large, further) = (first("a", 1), first("a", 2));
        let chunk = |bytes: usize| Bytes::from(vec![0; bytes]);
        assert!(large.execution.add(chunk(MAX_KEPT_BYTES)));
        assert!(!large.execution.add(chunk(1)));
        // Three quarters are the most that one tenant has.
        assert!(further.execution.add(chunk(MAX_RECORDED_BYTES / 4)));
        assert!(!further.execution.add(chunk(1)));
        assert!(other.execution.add(chunk(MAX_RECORDED_BYTES / 4)));
        drop((large, further));
        assert!(first("a", 3).execution.add(chunk(1)));
    }
}
