//! An answer as it is made: the events of all its choices in one stream.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll, select_all, unfold};
use mortise_plugin::{Finish, Principal};

use crate::admission::Admission;
use crate::choice::{ChoiceEvent, Tally};
use crate::error::ServiceError;
use crate::event::{AnswerEvent, FinishReason, Usage};
use crate::observer::{Observer, Outcome, Summary};
use crate::ranking::Ranking;
use crate::rounds::Rounds;

/// The answer to one request. Dropping it cancels what is still being generated; the policy that
/// allowed the request is then told what was used.
pub struct Answer {
    model: Arc<str>,
    /// Where only the best choices are given.
    ranking: Option<Ranking>,
    /// Taken when the answer ends.
    choices: Option<SelectAll<BoxStream<'static, (u32, ChoiceEvent)>>>,
    tallies: Vec<Arc<Tally>>,
    unfinished: usize,
    first_finish: FinishReason,
    prompt_tokens: u32,
    max_tokens: u32,
    /// Dropped with the answer, which tells the policy.
    admission: Admission,
    observer: Arc<dyn Observer>,
    /// Decided when the answer ends; until then a drop is a cancellation.
    outcome: Outcome,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer")
            .field("model", &self.model)
            .field("unfinished", &self.unfinished)
            .finish_non_exhaustive()
    }
}

pub(crate) struct AnswerParts {
    pub(crate) model: Arc<str>,
    pub(crate) choices: Vec<Rounds>,
    /// How many of the choices are given, the best ones.
    pub(crate) given: u32,
    pub(crate) prompt_tokens: u32,
    pub(crate) max_tokens: u32,
    pub(crate) admission: Admission,
    pub(crate) observer: Arc<dyn Observer>,
}

impl Answer {
    pub(crate) fn new(parts: AnswerParts) -> Self {
        let tallies = parts.choices.iter().map(Rounds::tally).collect();
        let unfinished = parts.choices.len();
        let ranked = (parts.given as usize) < unfinished;
        let ranking = ranked.then(|| Ranking::new(parts.given, unfinished));
        let streams = parts
            .choices
            .into_iter()
            .zip(0u32..)
            .map(|(choice, index)| {
                unfold(choice, move |mut choice| async move {
                    let event = choice.next().await?;
                    Some(((index, event), choice))
                })
                .boxed()
            });
        Self {
            model: parts.model,
            ranking,
            choices: Some(select_all(streams)),
            tallies,
            unfinished,
            first_finish: FinishReason::Stop,
            prompt_tokens: parts.prompt_tokens,
            max_tokens: parts.max_tokens,
            admission: parts.admission,
            observer: parts.observer,
            outcome: Outcome::Cancelled,
        }
    }

    /// Public name of the model that answers.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Response headers that the policy adds.
    pub fn headers(&self) -> &[(String, String)] {
        &self.admission.allowance().headers
    }

    /// Who is asking.
    pub fn principal(&self) -> &Principal {
        &self.admission.allowance().principal
    }

    /// Tokens of the prompt that the answer begins with.
    pub fn prompt_tokens(&self) -> u32 {
        self.prompt_tokens
    }

    /// Most tokens of each choice, after all limits.
    pub fn max_tokens(&self) -> u32 {
        self.max_tokens
    }

    /// Tokens used so far.
    pub fn usage(&self) -> Usage {
        let sum =
            |count: fn(&Tally) -> u32| self.tallies.iter().map(|tally| count(tally)).sum::<u32>();
        Usage {
            prompt_tokens: self.prompt_tokens
                + sum(|tally| tally.later_prompt_tokens.load(Ordering::Relaxed)),
            // The prompt counts once, so what only a later choice found cached does not count.
            cached_tokens: self
                .tallies
                .iter()
                .map(|tally| tally.cached_tokens.load(Ordering::Relaxed))
                .min()
                .unwrap_or(0)
                + sum(|tally| tally.later_cached_tokens.load(Ordering::Relaxed)),
            completion_tokens: sum(|tally| tally.completion_tokens.load(Ordering::Relaxed)),
            reasoning_tokens: sum(|tally| tally.reasoning_tokens.load(Ordering::Relaxed)),
        }
    }

    /// The next event; `None` after `Completed` or `Failed`. A call that is dropped before it
    /// returns loses nothing.
    pub async fn next(&mut self) -> Option<AnswerEvent> {
        loop {
            if let Some(event) = self.ranking.as_mut().and_then(Ranking::next) {
                return Some(event);
            }
            if self.unfinished == 0 {
                return self.complete();
            }
            let Some((choice, event)) = self.choices.as_mut()?.next().await else {
                return Some(self.fail(ServiceError::Stopping));
            };
            let event = self.take(choice, event);
            let Some(ranking) = &mut self.ranking else {
                return Some(event);
            };
            if matches!(event, AnswerEvent::Failed(_)) {
                return Some(event);
            }
            ranking.hold(choice, event);
            if self.unfinished == 0 {
                let scores: Vec<f64> = self
                    .tallies
                    .iter()
                    .map(|tally| tally.mean_logprob())
                    .collect();
                ranking.decide(&scores);
            }
        }
    }

    fn take(&mut self, choice: u32, event: ChoiceEvent) -> AnswerEvent {
        match event {
            ChoiceEvent::Delta { delta, logprobs } => AnswerEvent::Delta {
                choice,
                delta,
                logprobs,
            },
            ChoiceEvent::Finished(reason) => {
                self.unfinished -= 1;
                if choice == 0 {
                    self.first_finish = reason;
                }
                AnswerEvent::Finished { choice, reason }
            }
            ChoiceEvent::Failed(error) => self.fail(error),
        }
    }

    fn complete(&mut self) -> Option<AnswerEvent> {
        drop(self.choices.take()?);
        self.outcome = match self.first_finish {
            FinishReason::Stop => Outcome::Stop,
            FinishReason::Length => Outcome::Length,
            FinishReason::ToolCalls => Outcome::ToolCalls,
        };
        let usage = self.usage();
        Some(AnswerEvent::Completed { usage })
    }

    fn fail(&mut self, error: ServiceError) -> AnswerEvent {
        self.outcome = Outcome::Error;
        self.choices = None;
        AnswerEvent::Failed(error)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // Whoever has read the end of every choice has read the answer.
        if self.unfinished == 0 {
            self.complete();
        }
        // The engine frees what the sequences hold before anybody is told.
        self.choices = None;
        let usage = self.usage();
        let spent = self.admission.spent();
        spent.prompt_tokens = usage.prompt_tokens;
        spent.cached_tokens = usage.cached_tokens;
        spent.completion_tokens = usage.completion_tokens;
        spent.finish = match self.outcome {
            Outcome::Stop | Outcome::ToolCalls => Finish::Stop,
            Outcome::Length => Finish::Length,
            Outcome::Cancelled => Finish::Cancelled,
            Outcome::Error => Finish::Error,
        };
        self.observer.ended(&Summary {
            request_id: self.admission.request_id(),
            model: &self.model,
            outcome: self.outcome,
            usage,
            wall: self.admission.elapsed(),
        });
    }
}
