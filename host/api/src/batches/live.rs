//! Batches that are being worked on: how to cancel one, and with whose credentials its lines are sent.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderMap;
use mortise_store::Key;
use serde_json::Value;
use tokio::sync::watch;

/// Headers of a request to make a batch that are not passed on to the requests of its lines.
const OWN: [&str; 14] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "idempotency-key",
    "origin",
    "traceparent",
    "transfer-encoding",
    "x-request-id",
    "x-request-timeout",
    "x-stainless-timeout",
];

type All = Arc<Mutex<HashMap<Key, Arc<LiveBatch>>>>;

/// Batches in progress, by their keys.
#[derive(Default)]
pub(super) struct LiveBatches(All);

/// A batch in progress.
pub(super) struct LiveBatch {
    /// Caller who made the batch.
    subject: String,
    /// Headers by which policies know the caller; none after a restart, since keys are not stored.
    credentials: Mutex<Option<(HeaderMap, IpAddr)>>,
    cancelled: watch::Sender<bool>,
    shown: watch::Sender<Shown>,
}

/// The last that is stored of a batch.
#[derive(Debug, Clone, Default)]
struct Shown {
    object: Value,
    ended: bool,
}

/// Handle of a batch in progress. Dropping the handle ends the entry.
pub(super) struct RegisteredBatch {
    all: All,
    key: Key,
    pub(super) live: Arc<LiveBatch>,
}

impl LiveBatches {
    /// Register the work on a batch; `None` if there is such work already, or its owner has `most` batches.
    pub(super) fn register(
        &self,
        key: &Key,
        subject: String,
        credentials: Option<(HeaderMap, IpAddr)>,
        most: usize,
    ) -> Option<RegisteredBatch> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_owner = all.keys().filter(|known| known.owner == key.owner);
        if of_owner.count() >= most || all.contains_key(key) {
            return None;
        }
        let live = Arc::new(LiveBatch {
            subject,
            credentials: Mutex::new(credentials),
            cancelled: watch::Sender::new(false),
            shown: watch::Sender::new(Shown::default()),
        });
        all.insert(key.clone(), Arc::clone(&live));
        Some(RegisteredBatch {
            all: Arc::clone(&self.0),
            key: key.clone(),
            live,
        })
    }

    pub(super) fn find(&self, key: &Key) -> Option<Arc<LiveBatch>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(key).cloned()
    }
}

impl Drop for RegisteredBatch {
    fn drop(&mut self) {
        // In this order: who waited for the end must not find the batch as one in progress.
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&self.key);
        drop(all);
        self.live.shown.send_modify(|shown| shown.ended = true);
    }
}

/// Headers of a request by which policies know its caller.
pub(super) fn credentials(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for name in OWN {
        headers.remove(name);
    }
    headers
}

impl LiveBatch {
    /// Renew the credentials of a batch from a later request of the caller who made it.
    pub(super) fn renew(&self, subject: &str, headers: &HeaderMap, peer: IpAddr) {
        if subject == self.subject {
            let mut known = self.lock();
            *known = Some((credentials(headers), peer));
        }
    }

    /// Headers by which policies know the caller, and its address.
    pub(super) fn credentials(&self) -> Option<(HeaderMap, IpAddr)> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(HeaderMap, IpAddr)>> {
        self.credentials
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes that are stored from now on.
    pub(super) fn show(&self, object: &Value) {
        self.shown
            .send_modify(|shown| shown.object = object.clone());
    }

    /// Ask the work to end, and wait until that is stored, or the work has ended in another way.
    pub(super) async fn cancel(&self) {
        self.cancelled.send_replace(true);
        let mut shown = self.shown.subscribe();
        let over = |shown: &Shown| {
            let status = shown.object["status"].as_str();
            shown.ended
                || !matches!(
                    status,
                    None | Some("validating" | "in_progress" | "finalizing")
                )
        };
        let _ = shown.wait_for(over).await;
    }

    pub(super) fn is_cancelled(&self) -> bool {
        *self.cancelled.borrow()
    }

    /// Wait until somebody has asked for the end.
    pub(super) async fn cancelled(&self) {
        let mut cancelled = self.cancelled.subscribe();
        if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
