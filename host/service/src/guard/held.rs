//! A choice whose text waits for the verdict of a guardrail, a bounded number of tokens of it.

use std::collections::VecDeque;

use futures::StreamExt;
use futures::stream::BoxStream;
use mortise_models::{Delta, FinishReason};
use mortise_plugin::{AnswerPart, GuardVerdict};

use super::watcher::{Parts, Watcher, finish_of};
use crate::error::ServiceError;
use crate::event::Event;

/// A choice of which text is held back.
pub(super) struct HeldChoice {
    /// Dropped when the choice is refused, which cancels it.
    events: Option<BoxStream<'static, Event>>,
    watcher: Watcher,
    /// Most events with text that are held.
    most: usize,
    /// Events with text after which the guardrail is asked.
    every: usize,
    parts: Parts,
    /// The part that is held, or was last.
    part: Option<AnswerPart>,
    held: VecDeque<Event>,
    held_bytes: usize,
    /// Text of the last events, which the guardrail has not seen.
    unseen: String,
    unseen_events: usize,
    ready: VecDeque<Event>,
}

impl HeldChoice {
    pub(super) fn new(events: BoxStream<'static, Event>, watcher: Watcher, tokens: u32) -> Self {
        let most = (tokens as usize).max(1);
        Self {
            events: Some(events),
            most,
            every: (watcher.guard.every() as usize).clamp(1, most),
            watcher,
            parts: Parts::default(),
            part: None,
            held: VecDeque::new(),
            held_bytes: 0,
            unseen: String::new(),
            unseen_events: 0,
            ready: VecDeque::new(),
        }
    }

    pub(super) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let event = self.events.as_mut()?.next().await?;
            if let Err(error) = self.take(event).await {
                self.events = None;
                return Some(Event::Failed(error));
            }
        }
    }

    async fn take(&mut self, event: Event) -> Result<(), ServiceError> {
        if self.watcher.session.is_none() {
            self.ready.push_back(event);
            return Ok(());
        }
        match &event {
            Event::Delta { choice, delta, .. } => {
                let (choice, traits) = (*choice, self.watcher.guard.traits());
                match self.parts.looked_at(delta, traits) {
                    Some((part, text)) => {
                        let text = text.to_owned();
                        self.hold(choice, part, &text, event).await
                    }
                    None => self.pass_by(choice, event).await,
                }
            }
            Event::ServerToolCall { choice, .. } => {
                let choice = *choice;
                self.pass_by(choice, event).await
            }
            Event::Finished { choice, reason, .. } => {
                let (choice, reason) = (*choice, *reason);
                self.finish(choice, reason, event).await
            }
            // Tokens of a prompt are the caller's own, and come before all text.
            Event::Prompt { .. } | Event::Completed { .. } | Event::Failed(_) => {
                // What is held was not let out.
                self.ready.push_back(event);
                Ok(())
            }
        }
    }

    async fn hold(
        &mut self,
        choice: u32,
        part: AnswerPart,
        text: &str,
        event: Event,
    ) -> Result<(), ServiceError> {
        if self.part.as_ref() != Some(&part) {
            self.end_part(choice).await?;
            if self.events.is_none() {
                return Ok(());
            }
        }
        self.part = Some(part);
        self.held_bytes += text.len();
        self.held.push_back(event);
        self.unseen.push_str(text);
        self.unseen_events += 1;
        if self.unseen_events >= self.every || self.held.len() >= self.most {
            self.ask(choice).await?;
        }
        Ok(())
    }

    /// An event that nobody looks at goes out after the text before it.
    async fn pass_by(&mut self, choice: u32, event: Event) -> Result<(), ServiceError> {
        self.end_part(choice).await?;
        if self.events.is_some() {
            self.ready.push_back(event);
        }
        Ok(())
    }

    /// The part has ended: what is undecided of it goes out.
    async fn end_part(&mut self, choice: u32) -> Result<(), ServiceError> {
        if self.unseen_events > 0 {
            self.ask(choice).await?;
        }
        self.release(0);
        Ok(())
    }

    async fn finish(
        &mut self,
        choice: u32,
        reason: FinishReason,
        event: Event,
    ) -> Result<(), ServiceError> {
        if self.unseen_events > 0 {
            self.ask(choice).await?;
        }
        if let Some(session) = self
            .watcher
            .session
            .take()
            .filter(|_| self.events.is_some())
        {
            let said = session.close(finish_of(reason), bytes(self.held_bytes));
            let verdict = self.watcher.verdict(said.await)?;
            self.apply(choice, verdict);
        }
        if self.events.is_some() {
            self.release(0);
            self.ready.push_back(event);
        }
        Ok(())
    }

    /// Hand over what the guardrail has not seen.
    async fn ask(&mut self, choice: u32) -> Result<(), ServiceError> {
        let text = std::mem::take(&mut self.unseen);
        self.unseen_events = 0;
        let (Some(session), Some(part)) = (self.watcher.session.as_mut(), &self.part) else {
            return Ok(());
        };
        let before = bytes(self.held_bytes.saturating_sub(text.len()));
        let said = session.feed(part, &text, before).await;
        let verdict = self.watcher.verdict(said)?;
        self.apply(choice, verdict);
        Ok(())
    }

    fn apply(&mut self, choice: u32, verdict: GuardVerdict) {
        match verdict {
            GuardVerdict::Pass => self.release(0),
            // So that no more are held when the guardrail is asked again.
            GuardVerdict::Undecided => self.release(self.most.saturating_sub(self.every)),
            GuardVerdict::Replace(text) => {
                self.held.clear();
                self.held_bytes = 0;
                let delta = match self.part {
                    Some(AnswerPart::Reasoning) => Delta::Reasoning(text),
                    _ => Delta::Content(text),
                };
                if !matches!(&delta, Delta::Content(text) | Delta::Reasoning(text) if text.is_empty())
                {
                    self.ready.push_back(Event::Delta {
                        choice,
                        delta,
                        // They would tell what was replaced.
                        logprobs: Vec::new(),
                        tokens: Vec::new(),
                    });
                }
            }
            GuardVerdict::Refuse(refusal) => {
                self.held.clear();
                self.events = None;
                let refused = self.watcher.refused(choice, &refusal);
                self.ready.push_back(refused);
            }
        }
    }

    /// Let out the oldest events, so that `left` stay.
    fn release(&mut self, left: usize) {
        while self.held.len() > left {
            let Some(event) = self.held.pop_front() else {
                return;
            };
            if let Event::Delta {
                delta:
                    Delta::Content(text)
                    | Delta::Reasoning(text)
                    | Delta::CallArguments { delta: text, .. },
                ..
            } = &event
            {
                self.held_bytes = self.held_bytes.saturating_sub(text.len());
            }
            self.ready.push_back(event);
        }
    }
}

fn bytes(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
