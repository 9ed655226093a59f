//! The last response of a connection, kept in memory: a WebSocket continues it whether it was stored or not.
//!
//! OpenAI's rules for WebSockets: one response a connection, the last one; a request that fails evicts the
//! response that it continues; a new connection knows none.

use std::sync::{Arc, Mutex, PoisonError};

use mortise_http::{BodyBudget, Owner, Reservation};
use serde_json::Value;

use super::keep::body;
use crate::limits::MAX_RECENT_BYTES;

/// The last response of one connection, in the memory for bodies.
#[derive(Clone)]
pub(super) struct RecentResponse {
    budget: Arc<BodyBudget>,
    owner: Owner,
    last: Arc<Mutex<Option<Last>>>,
}

struct Last {
    id: String,
    /// All items up to its end, as JSON.
    items: Vec<u8>,
    _memory: Reservation,
}

impl RecentResponse {
    pub(super) fn new(budget: Arc<BodyBudget>, owner: Owner) -> Self {
        Self {
            budget,
            owner,
            last: Arc::default(),
        }
    }

    /// Items of the last response and of all before it, if it has this id.
    pub(super) fn items(&self, id: &str) -> Option<Vec<Value>> {
        self.with(|last| {
            let last = last.as_ref().filter(|last| last.id == id)?;
            serde_json::from_slice(&last.items).ok()
        })
    }

    /// Keep a response in the place of the one before, if there is memory for it.
    pub(super) fn keep(&self, id: String, items: Vec<u8>) {
        let mut memory = self.budget.open(self.owner.clone());
        self.with(|last| {
            // The one before gives its memory back first.
            *last = None;
            let fits = items.len() <= MAX_RECENT_BYTES && memory.raise_to(items.len()).is_ok();
            *last = fits.then_some(Last {
                id,
                items,
                _memory: memory,
            });
        });
    }

    /// Forget the response: a request that continues it has failed.
    pub(super) fn forget(&self, id: &str) {
        self.with(|last| {
            if last.as_ref().is_some_and(|last| last.id == id) {
                *last = None;
            }
        });
    }

    fn with<T>(&self, change: impl FnOnce(&mut Option<Last>) -> T) -> T {
        // A response that a panic left behind is as good as any.
        change(&mut self.last.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Response under way that the connection keeps when it has ended.
pub(super) struct Continued {
    recent: RecentResponse,
    /// The response that it continues.
    previous: Option<String>,
    /// Items before its output: a list in JSON that goes on.
    items: Vec<u8>,
}

impl Continued {
    pub(super) fn new<'a>(
        recent: &RecentResponse,
        previous: Option<&String>,
        items: impl Iterator<Item = &'a Value>,
    ) -> Self {
        let mut list = b"[".to_vec();
        items.for_each(|item| add(&mut list, item));
        Self {
            recent: recent.clone(),
            previous: previous.cloned(),
            items: list,
        }
    }

    /// Memory of it, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.items.len()
    }

    /// Keep the response, or forget the one before where this one failed.
    pub(super) fn ended(mut self, id: String, output: &[Value], whole: bool) {
        if whole {
            output.iter().for_each(|item| add(&mut self.items, item));
            self.items.push(b']');
            self.recent.keep(id, self.items);
        } else if let Some(previous) = &self.previous {
            self.recent.forget(previous);
        }
    }
}

/// Add an item to a list in JSON that goes on.
fn add(list: &mut Vec<u8>, item: &Value) {
    if list.len() > 1 {
        list.push(b',');
    }
    list.extend(body(item));
}
