//! Records of a response that has ended.

use std::sync::Arc;

use mortise_store::{Change, Item, Key, Record, RecordKind};
use serde_json::Value;

use super::items::id_of;
use crate::live::LiveAnswer;

/// Key of a response in the store.
#[derive(Clone)]
pub(super) struct ResponseKey {
    pub(super) key: Key,
    pub(super) created: i64,
    pub(super) expires: Option<i64>,
    /// The request's own items, as they are stored.
    pub(super) input: Vec<Item>,
    /// The conversation that it joins.
    pub(super) conversation: Option<Key>,
    /// The response itself is kept, and not only what joins the conversation.
    pub(super) response: bool,
    /// Events that are kept with it: those of a response that is made in the background.
    pub(super) live: Option<Arc<LiveAnswer>>,
}

/// Items as they are stored.
pub(super) fn stored(items: &[Value]) -> Vec<Item> {
    let item = |item: &Value| Item {
        id: id_of(item).to_owned(),
        body: body(item),
    };
    items.iter().map(item).collect()
}

/// Memory of stored items, in bytes.
pub(super) fn stored_bytes(items: &[Item]) -> usize {
    let items = items.iter();
    let bytes = items.map(|item| size_of::<Item>() + item.id.len() + item.body.len());
    bytes.sum()
}

pub(super) fn body(value: &Value) -> Vec<u8> {
    // Only a map with keys that are not strings cannot be serialised, and none has one.
    serde_json::to_vec(value).unwrap_or_default()
}

impl ResponseKey {
    pub(super) fn record(&self, response: &Value, open: bool) -> Record {
        Record {
            key: self.key.clone(),
            created: self.created,
            expires: self.expires,
            open,
            body: body(response),
        }
    }

    /// The record of events, or of the request before there are any.
    pub(super) fn events(&self, body: Vec<u8>) -> Record {
        Record {
            key: Key {
                kind: RecordKind::ResponseEvents,
                ..self.key.clone()
            },
            created: self.created,
            expires: self.expires,
            open: false,
            body,
        }
    }

    fn input(&self) -> Change {
        Change::Append {
            parent: self.key.clone(),
            items: self.input.clone(),
        }
    }

    /// Write the response before work on it begins, with the request that it answers.
    pub(super) fn begun(&self, response: &Value, request: Vec<u8>) -> Vec<Change> {
        vec![
            Change::Put(self.record(response, true)),
            self.input(),
            Change::Put(self.events(request)),
        ]
    }

    /// Write the response that has ended. One that was begun and deleted since stays deleted.
    pub(super) fn ended(&self, response: &Value, output: &[Value]) -> Vec<Change> {
        let record = self.record(response, false);
        let mut changes = match &self.live {
            Some(live) => vec![
                Change::Update(record),
                Change::Put(self.events(live.lines())),
            ],
            None if self.response => vec![Change::Put(record), self.input()],
            None => Vec::new(),
        };
        if let Some(conversation) = &self.conversation {
            let mut items = self.input.clone();
            items.extend(stored(output));
            changes.push(Change::Append {
                parent: conversation.clone(),
                items,
            });
        }
        changes
    }
}
