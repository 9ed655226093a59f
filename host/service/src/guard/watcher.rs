//! One guardrail that looks at one choice.

use std::collections::BTreeMap;
use std::sync::Arc;

use mortise_models::{Delta, FinishReason};
use mortise_plugin::{AnswerPart, Finish, GuardTraits, GuardVerdict, PluginError, Refusal};

use crate::error::ServiceError;
use crate::event::Event;
use crate::observer::{GuardedPart, ModelObserver};
use crate::plugins::{GuardAnswer, RequestId, WatchChoice};

/// A guardrail with its session for one choice.
pub(crate) struct Watcher {
    pub(crate) guard: Arc<dyn GuardAnswer>,
    /// `None` once it is closed, or has failed without being required.
    pub(crate) session: Option<Box<dyn WatchChoice>>,
    pub(crate) request: RequestId,
    pub(crate) observer: Arc<dyn ModelObserver>,
}

impl Watcher {
    /// The verdict that a session gave; a failure that is passed over lets all text out.
    ///
    /// # Errors
    /// When the guardrail failed and is required.
    pub(super) fn verdict(
        &mut self,
        said: Result<GuardVerdict, PluginError>,
    ) -> Result<GuardVerdict, ServiceError> {
        match said {
            Ok(verdict) => Ok(verdict),
            Err(error) => {
                self.session = None;
                passed_over(&*self.guard, &self.request, error)?;
                Ok(GuardVerdict::Pass)
            }
        }
    }

    /// The last event of a choice that was refused.
    pub(super) fn refused(&self, choice: u32, refusal: &Refusal) -> Event {
        self.observer
            .refused_by(self.guard.name(), GuardedPart::Output);
        tracing::info!(request_id = %self.request, guardrail = self.guard.name(),
            code = refusal.code, choice, "a guardrail ended a choice");
        Event::Finished {
            choice,
            reason: FinishReason::ContentFilter,
            stop: None,
            tokens: Vec::new(),
        }
    }
}

/// Go on without a guardrail that failed, if that is its failure policy.
pub(super) fn passed_over(
    guard: &dyn GuardAnswer,
    request: &RequestId,
    error: PluginError,
) -> Result<(), ServiceError> {
    if guard.is_required() || error.fault.is_callers() {
        return Err(error.into());
    }
    tracing::warn!(request_id = %request, %error,
        "a guardrail that is not required failed, and the answer goes on unguarded");
    Ok(())
}

/// Parts of a choice, as its deltas tell them.
#[derive(Default)]
pub(super) struct Parts {
    /// Names of the calls so far.
    calls: BTreeMap<u32, String>,
}

impl Parts {
    /// The part and the text of a delta, if the guardrail looks at it.
    pub(super) fn looked_at<'a>(
        &mut self,
        delta: &'a Delta,
        traits: GuardTraits,
    ) -> Option<(AnswerPart, &'a str)> {
        match delta {
            Delta::Content(text) if traits.content => Some((AnswerPart::Content, text)),
            Delta::Reasoning(text) if traits.reasoning => Some((AnswerPart::Reasoning, text)),
            Delta::CallArguments { index, delta } if traits.call_arguments => {
                let part = AnswerPart::CallArguments {
                    index: *index,
                    name: self.calls.get(index).cloned().unwrap_or_default(),
                };
                Some((part, delta))
            }
            Delta::CallBegin { index, name, .. } => {
                self.calls.insert(*index, name.clone());
                None
            }
            _ => None,
        }
    }
}

/// The end of a choice as a guardrail is told it.
pub(super) fn finish_of(reason: FinishReason) -> Finish {
    match reason {
        FinishReason::Length => Finish::Length,
        FinishReason::Stop | FinishReason::ToolCalls | FinishReason::ContentFilter => Finish::Stop,
    }
}
