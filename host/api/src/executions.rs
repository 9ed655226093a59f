//! Requests with an idempotency key while they are answered: each is done once, and all who send it read one
//! recording of the answer.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use mortise_http::Problem;
use tokio::sync::watch;

use crate::limits::{MAX_EXECUTIONS, MAX_KEPT_BYTES, MAX_RECORDED_BYTES};

/// SHA-256 of a request.
pub(crate) type Fingerprint = [u8; 32];

/// Account of the caller, and the key.
pub(crate) type Name = (Arc<str>, String);

type All = Arc<Mutex<HashMap<Name, Arc<Execution>>>>;

/// All requests with a key that are being answered.
#[derive(Default)]
pub(crate) struct Executions {
    all: All,
    recorded: Arc<Mutex<Recorded>>,
}

/// Bytes of all recordings.
#[derive(Default)]
struct Recorded {
    total: usize,
    by_owner: HashMap<Arc<str>, usize>,
}

impl Recorded {
    /// Take room for more bytes. An owner has half of it at most.
    fn take(&mut self, owner: &Arc<str>, bytes: usize) -> bool {
        let own = self.by_owner.get(owner).copied().unwrap_or(0) + bytes;
        if self.total + bytes > MAX_RECORDED_BYTES || own > MAX_RECORDED_BYTES / 2 {
            return false;
        }
        self.total += bytes;
        self.by_owner.insert(Arc::clone(owner), own);
        true
    }

    fn give_back(&mut self, owner: &Arc<str>, bytes: usize) {
        self.total = self.total.saturating_sub(bytes);
        let own = self.by_owner.get(owner).copied().unwrap_or(0);
        let left = own.saturating_sub(bytes);
        if left == 0 {
            self.by_owner.remove(owner);
        } else {
            self.by_owner.insert(Arc::clone(owner), left);
        }
    }
}

/// One of them.
pub(crate) struct Execution {
    pub(crate) fingerprint: Fingerprint,
    recording: Mutex<Recording>,
    owner: Arc<str>,
    recorded: Arc<Mutex<Recorded>>,
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
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.keys().filter(|(owner, _)| *owner == name.0).count();
        let full = all.len() >= MAX_EXECUTIONS || own >= MAX_EXECUTIONS / 4;
        match all.entry(name.clone()) {
            Entry::Occupied(running) => Found::Running(Arc::clone(running.get())),
            Entry::Vacant(_) if full => Found::Full,
            Entry::Vacant(place) => {
                let execution = Arc::new(Execution {
                    fingerprint,
                    recording: Mutex::default(),
                    owner: Arc::clone(&name.0),
                    recorded: Arc::clone(&self.recorded),
                    grown: watch::Sender::new(()),
                });
                place.insert(Arc::clone(&execution));
                Found::First(Registered {
                    all: Arc::clone(&self.all),
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

impl Drop for Execution {
    fn drop(&mut self) {
        let bytes = self.locked().bytes;
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        recorded.give_back(&self.owner, bytes);
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
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = recording.bytes + chunk.len() <= MAX_KEPT_BYTES
            && recorded.take(&self.owner, chunk.len());
        drop(recorded);
        if !fits {
            recording.overflowed = true;
            return false;
        }
        recording.bytes += chunk.len();
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
    use super::*;

    fn name(owner: &str, key: usize) -> Name {
        (Arc::from(owner), key.to_string())
    }

    #[test]
    fn one_caller_leaves_places_and_memory_to_others() {
        let executions = Executions::default();
        let enter = |owner, key| executions.enter(name(owner, key), [0; 32]);
        let held: Vec<Found> = (0..MAX_EXECUTIONS / 4).map(|key| enter("a", key)).collect();
        assert!(matches!(enter("a", MAX_EXECUTIONS), Found::Full));
        assert!(matches!(enter("a", 0), Found::Running(_)));
        let Found::First(other) = enter("b", 0) else {
            panic!("another caller has places");
        };
        drop(held);
        assert!(matches!(enter("a", 0), Found::First(_)));
        let Found::First(large) = enter("a", 1) else {
            panic!("its places are free again");
        };
        let Found::First(further) = enter("a", 2) else {
            panic!("there are places");
        };
        assert!(large.execution.add(Bytes::from(vec![0; MAX_KEPT_BYTES])));
        assert!(!further.execution.add(Bytes::from_static(b"x")));
        assert!(other.execution.add(Bytes::from_static(b"x")));
        drop(large);
        let Found::First(next) = enter("a", 3) else {
            panic!("there are places");
        };
        assert!(next.execution.add(Bytes::from_static(b"x")));
        drop((further, next, other));
        assert!(executions.recorded.lock().unwrap().by_owner.is_empty());
    }
}
