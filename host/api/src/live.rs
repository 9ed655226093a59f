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
        // In this order: who waited for the end must not find the answer as one that is being made.
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&self.name);
        drop(all);
        self.live.end();
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

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::OnceLock;
    use std::task::{Context, Poll, Wake};

    use mortise_http::{BodyBudget, Owner};

    use super::*;

    /// Whether the answer is still listed when its waiters are woken.
    struct Listed {
        answers: Arc<LiveAnswers>,
        owner: Arc<str>,
        when_woken: OnceLock<bool>,
    }

    impl Wake for Listed {
        fn wake(self: Arc<Self>) {
            let listed = self.answers.find(&self.owner, "resp_1").is_some();
            let _ = self.when_woken.set(listed);
        }
    }

    #[test]
    fn an_answer_whose_end_is_told_is_listed_no_more() {
        let answers = Arc::new(LiveAnswers::default());
        let owner: Arc<str> = Arc::from("someone");
        let budget = BodyBudget::new(1 << 20);
        let memory = budget.open(Owner::new([127, 0, 0, 1].into(), None));
        let registered = answers.register(&owner, "resp_1", memory);
        let registered = registered.expect("the only answer");
        let live = Arc::clone(&registered.live);
        let mut ended = pin!(live.ended());
        let listed = Arc::new(Listed {
            answers,
            owner,
            when_woken: OnceLock::new(),
        });
        let waker = Arc::clone(&listed).into();
        let mut context = Context::from_waker(&waker);
        assert!(ended.as_mut().poll(&mut context).is_pending());
        drop(registered);
        assert_eq!(listed.when_woken.get(), Some(&false));
        assert_eq!(ended.as_mut().poll(&mut context), Poll::Ready(()));
    }
}
