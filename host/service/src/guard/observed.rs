//! A choice whose text goes out at once while a guardrail looks at it on another task.

use std::collections::VecDeque;

use futures::StreamExt;
use futures::stream::BoxStream;
use mortise_models::FinishReason;
use mortise_plugin::{AnswerPart, GuardVerdict, PluginError};
use tokio::task::JoinHandle;

use super::watcher::{Parts, Watcher, finish_of};
use crate::error::ServiceError;
use crate::event::Event;
use crate::plugins::WatchChoice;

/// A session after a call, with the verdict.
type Looked = (
    Option<Box<dyn WatchChoice>>,
    Result<GuardVerdict, PluginError>,
);

/// A choice that is observed.
pub(super) struct ObservedChoice {
    /// Dropped when the choice is refused, which cancels it.
    events: Option<BoxStream<'static, Event>>,
    watcher: Watcher,
    every: usize,
    parts: Parts,
    /// Number of the choice, as its events tell it.
    choice: u32,
    /// Texts that wait until the guardrail has looked at those before them.
    waiting: VecDeque<(AnswerPart, String)>,
    waiting_events: usize,
    looking: Option<JoinHandle<Looked>>,
    /// The end of the choice, which waits for the last verdict.
    end: Option<(FinishReason, Event)>,
}

impl ObservedChoice {
    pub(super) fn new(events: BoxStream<'static, Event>, watcher: Watcher) -> Self {
        Self {
            events: Some(events),
            every: (watcher.guard.every() as usize).max(1),
            watcher,
            parts: Parts::default(),
            choice: 0,
            waiting: VecDeque::new(),
            waiting_events: 0,
            looking: None,
            end: None,
        }
    }

    pub(super) async fn next(&mut self) -> Option<Event> {
        loop {
            self.events.as_ref()?;
            self.look();
            let event = match (self.looking.as_mut(), self.end.is_some()) {
                (None, true) => return self.last().await,
                (Some(looking), true) => Err(looking.await),
                (None, false) => Ok(self.events.as_mut()?.next().await),
                (Some(looking), false) => {
                    let events = self.events.as_mut()?;
                    tokio::select! {
                        biased;
                        looked = looking => Err(looked),
                        event = events.next() => Ok(event),
                    }
                }
            };
            let said = match event {
                Ok(None) => return None,
                Ok(Some(event)) => match self.note(event) {
                    Some(event) => return Some(event),
                    None => continue,
                },
                Err(looked) => {
                    self.looking = None;
                    match looked {
                        Ok((session, said)) => {
                            self.watcher.session = session;
                            said
                        }
                        // The task panicked, or the runtime ends.
                        Err(_) => return Some(self.failed(ServiceError::Stopping)),
                    }
                }
            };
            if let Some(event) = self.apply(said) {
                return Some(event);
            }
        }
    }

    /// Have the guardrail look at what waits, if it is free and there is enough.
    fn look(&mut self) {
        let due = self.end.is_some() || self.waiting_events >= self.every;
        if self.looking.is_some() || !due || self.waiting.is_empty() {
            return;
        }
        let Some(mut session) = self.watcher.session.take() else {
            self.waiting.clear();
            return;
        };
        let texts = std::mem::take(&mut self.waiting);
        self.waiting_events = 0;
        self.looking = Some(tokio::spawn(async move {
            for (part, text) in texts {
                match session.feed(&part, &text, 0).await {
                    Ok(GuardVerdict::Pass | GuardVerdict::Undecided) => {}
                    said => return (Some(session), said),
                }
            }
            (Some(session), Ok(GuardVerdict::Pass))
        }));
    }

    /// Take an event; it goes out unless it is the end.
    fn note(&mut self, event: Event) -> Option<Event> {
        match &event {
            Event::Delta { choice, delta, .. } => {
                self.choice = *choice;
                let looked = self.parts.looked_at(delta, self.watcher.guard.traits());
                if let Some((part, text)) = looked {
                    self.waiting_events += 1;
                    match self.waiting.back_mut() {
                        Some((last, waiting)) if *last == part => waiting.push_str(text),
                        _ => self.waiting.push_back((part, text.to_owned())),
                    }
                }
                Some(event)
            }
            Event::Finished { choice, reason, .. } => {
                self.choice = *choice;
                self.end = Some((*reason, event));
                None
            }
            Event::Prompt { .. }
            | Event::ServerToolCall { .. }
            | Event::Completed { .. }
            | Event::Failed(_) => Some(event),
        }
    }

    /// Close the session; then the choice ends as its verdict says.
    async fn last(&mut self) -> Option<Event> {
        let (reason, _) = self.end.as_ref()?;
        if let Some(session) = self.watcher.session.take() {
            let said = session.close(finish_of(*reason), 0).await;
            if let Some(event) = self.apply(said) {
                return Some(event);
            }
        }
        self.events = None;
        self.end.take().map(|(_, event)| event)
    }

    /// The last event, if the verdict or a failure is the end.
    fn apply(&mut self, said: Result<GuardVerdict, PluginError>) -> Option<Event> {
        match self.watcher.verdict(said) {
            Ok(GuardVerdict::Refuse(refusal)) => {
                self.events = None;
                Some(self.watcher.refused(self.choice, &refusal))
            }
            Ok(_) => None,
            Err(error) => Some(self.failed(error)),
        }
    }

    fn failed(&mut self, error: ServiceError) -> Event {
        self.events = None;
        Event::Failed(error)
    }
}
