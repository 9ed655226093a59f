//! Model of a request after aliases, with the numbers of what becomes of it.

use std::sync::Arc;
use std::time::Duration;

use mortise_models::AliasCounters;
use mortise_models::lifecycle::LifecycleError;
use mortise_trace::Span;

use crate::admission::ApiCall;
use crate::error::ServiceError;
use crate::observer::{GuardedPart, ModelObserver, Outcome, Summary, ToolRun};

/// Model that a request is for.
pub(crate) struct Routed {
    /// Its name: a public one, or what the caller wrote.
    pub(crate) model: String,
    /// The alias that stands for it, if one was asked for. Its model is public.
    pub(crate) alias: Option<String>,
    pub(crate) counters: Option<Arc<AliasCounters>>,
}

impl Routed {
    /// An observer that counts for the alias as well.
    pub(crate) fn observe(&self, observer: Arc<dyn ModelObserver>) -> Arc<dyn ModelObserver> {
        match &self.counters {
            None => observer,
            Some(counters) => Arc::new(CountedByAlias {
                observer,
                counters: Arc::clone(counters),
            }),
        }
    }

    /// The request failed before its answer began.
    pub(crate) fn failed(&self, call: &ApiCall, error: &ServiceError) {
        let Some(counters) = &self.counters else {
            return;
        };
        counters.ended(true, call.arrived.elapsed(), None);
        if let ServiceError::Model(LifecycleError::NoRoom { .. }) = error {
            counters.found_no_room();
        }
    }
}

/// Counts the answers of an alias beside those of the model.
struct CountedByAlias {
    observer: Arc<dyn ModelObserver>,
    counters: Arc<AliasCounters>,
}

impl ModelObserver for CountedByAlias {
    fn admitted(&self, queued: Duration, span: &Span) {
        self.observer.admitted(queued, span);
    }

    fn first_token(&self, after: Duration, span: &Span) {
        self.observer.first_token(after, span);
    }

    fn next_token(&self, gap: Duration) {
        self.observer.next_token(gap);
    }

    fn tool_ran(&self, run: &ToolRun<'_>) {
        self.observer.tool_ran(run);
    }

    fn refused_by(&self, guardrail: &str, part: GuardedPart) {
        self.observer.refused_by(guardrail, part);
    }

    fn ended(&self, summary: &Summary<'_>) {
        let failed = summary.outcome == Outcome::Failed;
        self.counters
            .ended(failed, summary.elapsed, summary.first_token);
        self.observer.ended(summary);
    }
}
