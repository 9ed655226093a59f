//! Requests that are being answered: operators list them and cancel one by its id.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mortise_models::Usage;
use mortise_plugin::Principal;
use tokio::sync::watch;

use crate::latency::Latency;
use crate::plugins::RequestId;
use crate::tally::TokenTally;

/// One prompt that is being answered.
#[derive(Debug, Clone)]
pub struct RequestUnderWay {
    /// Server's id of the request. Prompts of one request share it.
    pub id: RequestId,
    /// Public name of the model.
    pub model: Arc<str>,
    /// Caller, as a policy names it.
    pub principal: Principal,
    /// Its first step has been scheduled, or a token of it has come.
    pub running: bool,
    /// Time since the request arrived.
    pub age: Duration,
    /// Time in the queue, once it is over.
    pub queued: Option<Duration>,
    /// Time from arrival to the first token, once there is one.
    pub first_token: Option<Duration>,
    /// Tokens so far.
    pub usage: Usage,
}

/// Parts of a prompt's answer from which its row is read.
pub(crate) struct WatchedAnswer {
    pub(crate) id: RequestId,
    pub(crate) model: Arc<str>,
    pub(crate) principal: Principal,
    pub(crate) arrived: Instant,
    pub(crate) tallies: Vec<Arc<TokenTally>>,
    pub(crate) latency: Arc<Latency>,
}

struct Entry {
    watched: WatchedAnswer,
    cancelled: watch::Sender<bool>,
}

#[derive(Default)]
struct All {
    next: u64,
    entries: BTreeMap<u64, Entry>,
}

/// All prompts that are being answered, in the order in which they were submitted. Their number is bounded by the
/// connections and by the engines' queues.
#[derive(Clone, Default)]
pub(crate) struct UnderWay(Arc<Mutex<All>>);

/// Keeps a prompt in the list until it is dropped.
pub(crate) struct Registration {
    all: UnderWay,
    number: u64,
    cancelled: watch::Receiver<bool>,
}

impl UnderWay {
    fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Add a prompt.
    pub(crate) fn add(&self, watched: WatchedAnswer) -> Registration {
        let (sender, cancelled) = watch::channel(false);
        let mut all = self.all();
        let number = all.next;
        all.next += 1;
        let entry = Entry {
            watched,
            cancelled: sender,
        };
        all.entries.insert(number, entry);
        Registration {
            all: self.clone(),
            number,
            cancelled,
        }
    }

    /// The first `most` of them, and how many there are.
    pub(crate) fn list(&self, most: usize) -> (Vec<RequestUnderWay>, usize) {
        let all = self.all();
        let rows = all.entries.values().take(most);
        let rows = rows.map(|entry| entry.watched.row()).collect();
        (rows, all.entries.len())
    }

    /// Visit each of them: its caller, and whether it runs.
    pub(crate) fn each(&self, mut visit: impl FnMut(&Principal, bool)) {
        for entry in self.all().entries.values() {
            visit(&entry.watched.principal, entry.watched.is_running());
        }
    }

    /// Cancel the request of this id. False if none has it.
    pub(crate) fn cancel(&self, id: &str) -> bool {
        let all = self.all();
        let of_id = |entry: &&Entry| *entry.watched.id == *id;
        let mut found = false;
        for entry in all.entries.values().filter(of_id) {
            entry.cancelled.send_replace(true);
            found = true;
        }
        found
    }
}

impl WatchedAnswer {
    fn is_running(&self) -> bool {
        self.latency.queued().is_some() || self.latency.first_token().is_some()
    }

    fn row(&self) -> RequestUnderWay {
        RequestUnderWay {
            id: self.id.clone(),
            model: Arc::clone(&self.model),
            principal: self.principal.clone(),
            running: self.is_running(),
            age: self.arrived.elapsed(),
            queued: self.latency.queued(),
            first_token: self.latency.first_token(),
            usage: TokenTally::usage(self.tallies.iter().map(Arc::as_ref)),
        }
    }
}

impl Registration {
    /// Whether an operator has cancelled the request.
    pub(crate) fn is_cancelled(&self) -> bool {
        *self.cancelled.borrow()
    }

    /// Wait until an operator cancels the request.
    pub(crate) async fn cancelled(&mut self) {
        if self
            .cancelled
            .wait_for(|cancelled| *cancelled)
            .await
            .is_err()
        {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.all.all().entries.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(id: &str) -> WatchedAnswer {
        WatchedAnswer {
            id: RequestId::new(id),
            model: Arc::from("m"),
            principal: Principal {
                subject: "ada".to_owned(),
                tenant: Some("t".to_owned()),
                labels: Vec::new(),
            },
            arrived: Instant::now(),
            tallies: vec![Arc::default()],
            latency: Arc::default(),
        }
    }

    #[test]
    fn requests_are_listed_in_their_order_until_they_end() {
        let all = UnderWay::default();
        let first = all.add(watched("a"));
        let second = all.add(watched("b"));
        let (rows, total) = all.list(1);
        assert_eq!((rows.len(), total), (1, 2));
        assert_eq!(&*rows[0].id, "a");
        assert!(!rows[0].running);
        drop(first);
        assert_eq!(&*all.list(9).0[0].id, "b");
        drop(second);
        assert_eq!(all.list(9).1, 0);
    }

    #[tokio::test]
    async fn cancelling_reaches_all_prompts_of_a_request_and_no_other() {
        let all = UnderWay::default();
        let (mut one, mut two) = (all.add(watched("a")), all.add(watched("a")));
        let other = all.add(watched("b"));
        assert!(!all.cancel("absent"));
        assert!(all.cancel("a"));
        one.cancelled().await;
        two.cancelled().await;
        assert!(!*other.cancelled.borrow());
    }
}
