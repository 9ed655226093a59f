//! Answer to a request: the events of all its choices in one stream.

use std::collections::VecDeque;

use futures::StreamExt;
use futures::stream::{BoxStream, select_all, unfold};
use mortise_models::Usage;
use mortise_plugin::Principal;

use crate::error::ServiceError;
use crate::event::Event;
use crate::guard::{Watchers, watched};
use crate::observer::{Outcome, Summary};
use crate::part::PromptAnswer;
use crate::response_cache::CacheUse;
use crate::source::ChoiceSource;
use crate::under_way::Registration;

/// Events of one choice, with the index of its part.
type ChoiceEvents = BoxStream<'static, (usize, Event)>;

/// The answer to one request: several prompts, each with several choices, merged once. Dropping it
/// cancels the choices that are still being generated; the policies that allowed the request are
/// then told what was used.
pub struct Answer {
    /// Taken when the answer ends. Dropped before `parts`, so that the runtime frees what the
    /// sequences hold before anybody is told.
    choices: Option<ChoiceEvents>,
    parts: Vec<PromptAnswer>,
    ready: VecDeque<Event>,
    /// Places in the list of requests that are being answered.
    registrations: Vec<Registration>,
    /// Failure before anything was answered.
    refusal: Option<ServiceError>,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer")
            .field("model", &self.model())
            .field("prompts", &self.parts.len())
            .finish_non_exhaustive()
    }
}

/// One prompt with its choices, submitted.
pub(crate) struct StartedPart {
    /// Dropped before `part`, for the same reason as in [`Answer`].
    pub(crate) choices: Vec<ChoiceSource>,
    /// Guardrails of each choice; empty if nobody looks.
    pub(crate) watchers: Vec<Watchers>,
    pub(crate) part: PromptAnswer,
    pub(crate) registration: Registration,
}

impl Answer {
    pub(crate) fn new(started: Vec<StartedPart>) -> Self {
        let mut streams = Vec::new();
        let mut parts = Vec::with_capacity(started.len());
        let mut registrations = Vec::with_capacity(started.len());
        for (index, one) in started.into_iter().enumerate() {
            let StartedPart {
                choices,
                watchers,
                part,
                registration,
            } = one;
            parts.push(part);
            registrations.push(registration);
            let watchers = watchers.into_iter().chain(std::iter::repeat_with(Vec::new));
            let watched = choices.into_iter().zip(watchers);
            streams.extend(watched.map(|(choice, watchers)| events(index, choice, watchers)));
        }
        Self {
            choices: Some(merged(streams)),
            parts,
            ready: VecDeque::new(),
            registrations,
            refusal: None,
        }
    }

    /// End before anything was answered.
    pub(crate) fn refuse(&mut self, error: ServiceError) {
        if let Event::Failed(error) = self.abort(error) {
            self.refusal = Some(error);
        }
    }

    /// The failure of an answer that ended before anything was answered. Nothing follows it.
    pub fn refusal(&mut self) -> Option<ServiceError> {
        self.refusal.take()
    }

    /// Public name of the model that answers.
    pub fn model(&self) -> &str {
        self.parts.first().map_or("", |part| part.summary().model)
    }

    /// Response headers that the policies add.
    pub fn headers(&self) -> &[(String, String)] {
        let last = self.parts.last();
        last.map_or(&[], |part| &part.admission().allowance().headers)
    }

    /// Outcome of looking the answer up in the cache, if it was: a hit if all prompts were there.
    pub fn cache(&self) -> Option<CacheUse> {
        let mut all = self.parts.iter().map(PromptAnswer::cache);
        let first = all.next()??;
        let hit = first == CacheUse::Hit && all.all(|came| came == Some(CacheUse::Hit));
        Some(if hit { CacheUse::Hit } else { CacheUse::Miss })
    }

    /// Caller of the request.
    pub fn principal(&self) -> Option<&Principal> {
        let last = self.parts.last()?;
        Some(&last.admission().allowance().principal)
    }

    /// Ids of each prompt; empty unless they were requested.
    pub fn prompts(&self) -> impl Iterator<Item = &[u32]> {
        self.parts.iter().map(PromptAnswer::prompt)
    }

    /// Tokens used so far.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        self.parts.iter().for_each(|part| usage += part.usage());
        usage
    }

    /// Figures so far, over all prompts. Until the answer has ended, it counts as cancelled.
    pub fn summary(&self) -> Option<Summary<'_>> {
        let mut parts = self.parts.iter().map(PromptAnswer::summary);
        let first = parts.next()?;
        Some(parts.fold(first, |all, part| Summary {
            outcome: worse(all.outcome, part.outcome),
            usage: {
                let mut usage = all.usage;
                usage += part.usage;
                usage
            },
            queued: all.queued.max(part.queued),
            first_token: match (all.first_token, part.first_token) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            },
            ..all
        }))
    }

    /// Millionths of the currency that the answer has cost so far, if it has a price.
    pub fn cost_micros(&self) -> Option<u64> {
        let costs = self.parts.iter().filter_map(|part| {
            let summary = part.summary();
            part.admission().cost_micros(summary.usage, summary.outcome)
        });
        costs.reduce(u64::saturating_add)
    }

    /// The next event; `None` after `Completed` or `Failed`. A call that is dropped before it
    /// returns loses nothing.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.parts.iter().all(PromptAnswer::is_finished) {
                return self.complete();
            }
            if self.registrations.iter().any(Registration::is_cancelled) {
                return Some(self.cancel());
            }
            // An event that is there needs no wait for what might come before it.
            let event = tokio::select! {
                biased;
                event = self.choices.as_mut()?.next() => event,
                () = cancelled(&mut self.registrations) => return Some(self.cancel()),
            };
            match event {
                None => return Some(self.fail(None, ServiceError::Stopping)),
                Some((part, Event::Failed(error))) => return Some(self.fail(Some(part), error)),
                Some((part, event)) => {
                    if let Some(part) = self.parts.get_mut(part) {
                        part.accept(event, &mut self.ready);
                    }
                }
            }
        }
    }

    /// Abort the answer with an error.
    pub fn abort(&mut self, error: ServiceError) -> Event {
        self.ready.clear();
        self.fail(None, error)
    }

    /// End since an operator wants it so.
    fn cancel(&mut self) -> Event {
        self.choices = None;
        self.registrations.clear();
        for part in &mut self.parts {
            part.end(Outcome::Cancelled);
        }
        Event::Failed(ServiceError::CancelledByOperator)
    }

    fn complete(&mut self) -> Option<Event> {
        drop(self.choices.take()?);
        self.registrations.clear();
        let usage = self.usage();
        Some(Event::Completed { usage })
    }

    /// End with an error: of one part, or of all.
    fn fail(&mut self, failed: Option<usize>, error: ServiceError) -> Event {
        self.choices = None;
        self.registrations.clear();
        for (index, part) in self.parts.iter_mut().enumerate() {
            part.end(match failed {
                Some(failed) if failed != index => Outcome::Cancelled,
                _ => Outcome::Failed,
            });
        }
        Event::Failed(error)
    }
}

/// Wait until the request is cancelled. All prompts of a request are cancelled together, so one is enough to wait for.
async fn cancelled(registrations: &mut [Registration]) {
    match registrations.first_mut() {
        Some(registration) => registration.cancelled().await,
        None => std::future::pending().await,
    }
}

/// Events of all choices as they come. One choice, the usual case, comes as it is.
fn merged(mut streams: Vec<ChoiceEvents>) -> ChoiceEvents {
    match (streams.pop(), streams.is_empty()) {
        (Some(only), true) => only,
        (last, _) => {
            streams.extend(last);
            select_all(streams).boxed()
        }
    }
}

/// Events of a choice of the part at `part`.
fn events(part: usize, choice: ChoiceSource, watchers: Watchers) -> ChoiceEvents {
    // The state lives in the stream, so a poll that is given up loses nothing.
    let events = unfold(choice, |mut choice| async move {
        let event = choice.next().await?;
        Some((event, choice))
    });
    match watchers.is_empty() {
        true => events.map(move |event| (part, event)).boxed(),
        false => watched(events.boxed(), watchers)
            .map(move |event| (part, event))
            .boxed(),
    }
}

/// The outcome of two parts together.
fn worse(one: Outcome, other: Outcome) -> Outcome {
    match (one, other) {
        (Outcome::Failed, _) | (_, Outcome::Failed) => Outcome::Failed,
        (Outcome::Cancelled, _) | (_, Outcome::Cancelled) => Outcome::Cancelled,
        (Outcome::Finished(reason), Outcome::Finished(_)) => Outcome::Finished(reason),
    }
}
