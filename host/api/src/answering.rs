//! An answer while a dialect writes it: the service's events, the server's shutdown, and the access
//! record.

use std::sync::Arc;

use mortise_http::{AccessRecord, AnswerRecord, Problem, WaitEnd, WaitLimits};
use mortise_service::{Answer, Event, Principal, ServiceError, Summary, Usage};
use tokio::sync::watch;

use crate::active::Active;
use crate::problem::problem_of;

/// Events of one answer. When it is dropped, the access record gets the answer's figures, and an
/// incomplete answer is cancelled.
pub(crate) struct Answering {
    answer: Answer,
    record: Arc<AccessRecord>,
    /// Turns true when the time to drain is over.
    abort: watch::Receiver<bool>,
    limits: WaitLimits,
    _active: Active,
}

impl Answering {
    pub(crate) fn new(
        answer: Answer,
        record: Arc<AccessRecord>,
        abort: watch::Receiver<bool>,
        limits: WaitLimits,
        active: Active,
    ) -> Self {
        Self {
            answer,
            record,
            abort,
            limits,
            _active: active,
        }
    }

    /// The answer leaves as it is made: once it has begun, it is not ended for being late.
    pub(crate) fn streams(&mut self) {
        self.limits.streams();
    }

    /// The next event. Nothing follows `Completed` and `Failed`. A call that is dropped before it
    /// returns loses nothing.
    pub(crate) async fn next(&mut self) -> Event {
        if *self.abort.borrow() {
            return self.answer.abort(ServiceError::Stopping);
        }
        // An event that is there needs no wait for what might come before it.
        let event = tokio::select! {
            biased;
            event = self.answer.next() => Ok(event),
            _ = self.abort.wait_for(|abort| *abort) => Err(ServiceError::Stopping),
            end = self.limits.passed() => Err(match end {
                WaitEnd::Client => ServiceError::ClientTimeout,
                WaitEnd::Queue => ServiceError::QueueTimeout,
            }),
        };
        match event {
            Ok(Some(event)) => {
                self.limits.begun();
                event
            }
            Ok(None) => {
                let lost = ServiceError::Engine("the answer broke off".to_owned());
                self.answer.abort(lost)
            }
            Err(error) => self.answer.abort(error),
        }
    }

    /// The problem of an answer that failed, in the access record as well.
    pub(crate) fn failed(&self, error: ServiceError) -> Problem {
        let problem = problem_of(error);
        self.record.error(&problem.code);
        problem
    }

    /// Tokens so far.
    pub(crate) fn usage(&self) -> Usage {
        self.answer.usage()
    }

    /// Ids of each prompt; empty unless they were requested.
    pub(crate) fn prompts(&self) -> Vec<Vec<u32>> {
        self.answer.prompts().map(<[u32]>::to_vec).collect()
    }

    /// Tokens of the prompt; 0 where only another server knows them before the answer.
    pub(crate) fn prompt_tokens(&self) -> u32 {
        self.usage().prompt_tokens
    }

    /// Figures so far.
    pub(crate) fn summary(&self) -> Option<Summary<'_>> {
        self.answer.summary()
    }

    /// Caller of the request.
    pub(crate) fn principal(&self) -> Principal {
        self.answer.principal().cloned().unwrap_or_default()
    }

    /// Access record of the request.
    pub(crate) fn record(&self) -> &Arc<AccessRecord> {
        &self.record
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let Some(summary) = self.answer.summary() else {
            return;
        };
        self.record.answered(AnswerRecord {
            prompt_tokens: summary.usage.prompt_tokens,
            cached_tokens: summary.usage.cached_tokens,
            replayed: summary.replayed,
            completion_tokens: summary.usage.completion_tokens,
            queued: summary.queued,
            first_token: summary.first_token,
            finish: summary.outcome.name(),
            cost_micros: self.answer.cost_micros(),
        });
    }
}
