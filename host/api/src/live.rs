//! Answers that are made in the background: their events so far, for readers that come and go.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use mortise_http::Reservation;
use tokio::sync::watch;

use crate::limits::{MAX_BACKGROUND, MAX_KEPT_BYTES};

/// Account of the caller, and id of the answer.
type Name = (Arc<str>, String);

/// Answers that are made in the background, by account and id.
#[derive(Default)]
pub(crate) struct LiveAnswers(Arc<Mutex<HashMap<Name, Arc<LiveAnswer>>>>);

/// An answer that is made in the background, with its events so far.
pub(crate) struct LiveAnswer {
    log: Mutex<Log>,
    /// Events so far.
    grown: watch::Sender<usize>,
    cancelled: watch::Sender<bool>,
}

struct Log {
    /// Events as JSON; the place of one is its sequence number.
    events: Vec<Arc<str>>,
    bytes: usize,
    /// Memory of the events.
    memory: Reservation,
    ended: bool,
}

/// Handle of a registered answer. Dropping the handle ends the entry.
pub(crate) struct RegisteredAnswer {
    all: Arc<Mutex<HashMap<Name, Arc<LiveAnswer>>>>,
    name: Name,
    pub(crate) live: Arc<LiveAnswer>,
}

impl LiveAnswers {
    /// Register an answer, whose events are kept within what `memory` can have; `None` if its owner has as many as
    /// it may, or it is being made already.
    pub(crate) fn register(
        &self,
        owner: &Arc<str>,
        id: &str,
        memory: Reservation,
    ) -> Option<RegisteredAnswer> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.keys().filter(|(known, _)| known == owner).count() >= MAX_BACKGROUND {
            return None;
        }
        let live = Arc::new(LiveAnswer {
            log: Mutex::new(Log {
                events: Vec::new(),
                bytes: 0,
                memory,
                ended: false,
            }),
            grown: watch::Sender::new(0),
            cancelled: watch::Sender::new(false),
        });
        let name = (Arc::clone(owner), id.to_owned());
        if all.contains_key(&name) {
            return None;
        }
        all.insert(name.clone(), Arc::clone(&live));
        Some(RegisteredAnswer {
            all: Arc::clone(&self.0),
            name,
            live,
        })
    }

    pub(crate) fn find(&self, owner: &Arc<str>, id: &str) -> Option<Arc<LiveAnswer>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&(Arc::clone(owner), id.to_owned())).cloned()
    }
}

impl Drop for RegisteredAnswer {
    fn drop(&mut self) {
        self.live.end();
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&self.name);
    }
}

impl LiveAnswer {
    /// Add events. What is beyond the bound is not kept, and readers get what was kept.
    pub(crate) fn add(&self, events: &[String]) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        for event in events {
            let bytes = log.bytes + event.len();
            if bytes > MAX_KEPT_BYTES || log.memory.raise_to(bytes).is_err() {
                break;
            }
            log.bytes = bytes;
            log.events.push(event.as_str().into());
        }
        self.grown.send_replace(log.events.len());
    }

    /// All events, one a line.
    pub(crate) fn lines(&self) -> Vec<u8> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.events.join("\n").into_bytes()
    }

    fn end(&self) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.ended = true;
        self.grown.send_modify(|_| {});
    }

    /// Events from a place on, as soon as there are any; `None` at the end.
    pub(crate) async fn from(&self, place: usize) -> Option<Vec<String>> {
        let mut grown = self.grown.subscribe();
        loop {
            grown.borrow_and_update();
            {
                let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(new) = log.events.get(place..).filter(|new| !new.is_empty()) {
                    return Some(new.iter().map(|event| event.to_string()).collect());
                }
                if log.ended {
                    return None;
                }
            }
            grown.changed().await.ok()?;
        }
    }

    /// Wait until the answer has ended.
    pub(crate) async fn ended(&self) {
        let mut grown = self.grown.subscribe();
        loop {
            grown.borrow_and_update();
            if self
                .log
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .ended
            {
                return;
            }
            if grown.changed().await.is_err() {
                return;
            }
        }
    }

    /// Ask the answer to end.
    pub(crate) fn cancel(&self) {
        self.cancelled.send_replace(true);
    }

    /// Wait until somebody has asked for the end.
    pub(crate) async fn cancelled(&self) {
        let mut cancelled = self.cancelled.subscribe();
        if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
