//! Backpressure: events wait here while their stream is full, and none is lost.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::event::TokenEvent;
use crate::waker::Stalled;

/// The sending end of a stream, with the events that it had no room for.
#[derive(Debug)]
pub(crate) struct Outbox {
    sender: mpsc::Sender<TokenEvent>,
    stalled: Stalled,
    events: VecDeque<TokenEvent>,
}

impl Outbox {
    pub(crate) fn new(sender: mpsc::Sender<TokenEvent>, stalled: Stalled) -> Self {
        Self {
            sender,
            stalled,
            events: VecDeque::new(),
        }
    }

    pub(crate) fn push(&mut self, event: TokenEvent) {
        self.events.push_back(event);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Whether the reader dropped the stream.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Send events as far as the stream has room.
    pub(crate) fn flush(&mut self) {
        while let Some(event) = self.events.pop_front() {
            let Err(error) = self.sender.try_send(event) else {
                continue;
            };
            let TrySendError::Full(event) = error else {
                return self.events.clear();
            };
            // A reader that made room before the flag was set did not wake us: try once more.
            self.stalled.store(true, Ordering::SeqCst);
            match self.sender.try_send(event) {
                Ok(()) => self.stalled.store(false, Ordering::SeqCst),
                Err(TrySendError::Full(event)) => return self.events.push_front(event),
                Err(TrySendError::Closed(_)) => return self.events.clear(),
            }
        }
    }
}
