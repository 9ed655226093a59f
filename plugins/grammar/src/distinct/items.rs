//! Items of an array that must differ, of any kind.

use std::sync::Arc;

use serde_json::Value;

use super::endings::{Ending, may_become};
use crate::rewrite::equal;

/// Items that an array has, and the one that is being written.
#[derive(Clone)]
pub(super) struct Items {
    ending: Arc<Ending>,
    /// Keys of the items so far, by which items are told apart.
    seen: Arc<Vec<Value>>,
    /// The item as it is written.
    text: Vec<u8>,
}

impl Items {
    pub(super) fn new(ending: Arc<Ending>) -> Self {
        Self {
            ending,
            seen: Arc::default(),
            text: Vec::new(),
        }
    }

    pub(super) fn ending(&self) -> &Ending {
        &self.ending
    }

    /// Take a byte within the array.
    pub(super) fn write(&mut self, byte: u8) {
        self.text.push(byte);
    }

    /// Begin an item.
    pub(super) fn begin(&mut self) {
        self.text.clear();
    }

    /// End the item. True if the array has it already.
    pub(super) fn end(&mut self) -> bool {
        let item = self.read(None, 0);
        self.text.clear();
        let Some(item) = item else {
            return false;
        };
        let known = self.has(&item);
        if !known {
            Arc::make_mut(&mut self.seen).push(item);
        }
        known
    }

    /// Whether the item, with one more byte and then closed, is there already.
    pub(super) fn repeats(&self, more: Option<u8>, closers: usize) -> bool {
        !self.seen.is_empty() && self.read(more, closers).is_some_and(|item| self.has(&item))
    }

    /// Whether the item, whose text that decides is being written, may become one that is there already.
    pub(super) fn may_be_repeated(&self, closers: usize) -> bool {
        if self.seen.is_empty() {
            return false;
        }
        // Of what ends within an escape nothing is known.
        self.read(Some(b'"'), closers).is_none_or(|item| {
            let mut seen = self.seen.iter();
            seen.any(|other| may_become(&self.ending, &item, other))
        })
    }

    fn has(&self, item: &Value) -> bool {
        self.seen.iter().any(|seen| equal(seen, item))
    }

    /// Key of the item, by which it is told from others, if `closers` closing brackets end it here.
    fn read(&self, more: Option<u8>, closers: usize) -> Option<Value> {
        let mut text = self.text.clone();
        text.extend(more);
        text.extend(std::iter::repeat_n(b'}', closers));
        let value = serde_json::from_slice(&text).ok()?;
        Some(self.ending.key(value))
    }
}
