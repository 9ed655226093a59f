//! Observation of requests. Latencies, outcomes and token counts are measured in the service and
//! nowhere else; metrics and the access log are listeners.

use std::sync::Arc;
use std::time::Duration;

use mortise_models::{FinishReason, Usage};
use mortise_trace::Span;

use crate::error::ServiceError;
use crate::event::ToolOutcome;

/// Listener for the requests of a server.
pub trait Observer: Send + Sync {
    /// Listener for the requests of one model, by its public name. The service asks once for each
    /// model that it serves, so that measuring a token costs no lookup.
    fn model(&self, name: &str) -> Arc<dyn ModelObserver>;

    /// A request was refused, or failed before its answer began. `model` is the public name, if the
    /// request named a model that exists.
    fn refused(&self, model: Option<&str>, error: &ServiceError);
}

/// Listener for the requests of one model. Calls are made on the path of the request, some of them
/// for each token: they must be quick and must not block.
pub trait ModelObserver: Send + Sync {
    /// A request, whose answer is `span`, got its first step after `queued` in the queue. Once for each request at most.
    fn admitted(&self, queued: Duration, span: &Span);

    /// The first token of a request came, `after` its arrival. Once for each request at most.
    fn first_token(&self, after: Duration, span: &Span);

    /// A further token of a choice came, `gap` after the one before (inter-token latency). The wait
    /// while tools run is no such gap.
    fn next_token(&self, gap: Duration);

    /// A tool of the server has run.
    fn tool_ran(&self, run: &ToolRun<'_>);

    /// A guardrail, named after its plugin, refused a request or a choice.
    fn refused_by(&self, guardrail: &str, part: GuardedPart);

    /// An answer has ended, however it ended. Exactly once for each prompt that was admitted.
    fn ended(&self, summary: &Summary<'_>);
}

/// Part that a guardrail refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardedPart {
    /// The prompt of a request.
    Input,
    /// A choice of an answer.
    Output,
}

impl GuardedPart {
    /// Name of the part, fit for a label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
        }
    }
}

/// One run of a tool of the server.
#[derive(Debug, Clone, Copy)]
pub struct ToolRun<'a> {
    /// Name of the tool, one that a plugin has declared.
    pub tool: &'a str,
    /// Outcome.
    pub outcome: ToolOutcome,
    /// Duration, the wait for a free slot included.
    pub took: Duration,
}

/// Figures of an answer.
#[derive(Debug, Clone, Copy)]
pub struct Summary<'a> {
    /// Server's id of the request.
    pub request_id: &'a str,
    /// Public name of the model.
    pub model: &'a str,
    /// Flag of an answer that was replayed from the response cache: no prompt was computed and no token sampled.
    pub replayed: bool,
    /// Outcome.
    pub outcome: Outcome,
    /// Tokens.
    pub usage: Usage,
    /// Time in the queue, if the request left it.
    pub queued: Option<Duration>,
    /// Time from arrival to the first token, if there was one.
    pub first_token: Option<Duration>,
    /// Time from arrival to the end.
    pub elapsed: Duration,
    /// Span of the answer.
    pub span: &'a Span,
}

/// Outcome of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The answer is complete; the reason is that of the first choice.
    Finished(FinishReason),
    /// The client went away, or the server cancelled it.
    Cancelled,
    /// The answer failed.
    Failed,
}

impl Outcome {
    /// Name of the outcome, fit for a label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Finished(reason) => reason.name(),
            Self::Cancelled => "cancelled",
            Self::Failed => "error",
        }
    }
}

/// Observer without a listener.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn model(&self, _: &str) -> Arc<dyn ModelObserver> {
        Arc::new(Self)
    }

    fn refused(&self, _: Option<&str>, _: &ServiceError) {}
}

impl ModelObserver for NoObserver {
    fn admitted(&self, _: Duration, _: &Span) {}

    fn first_token(&self, _: Duration, _: &Span) {}

    fn next_token(&self, _: Duration) {}

    fn tool_ran(&self, _: &ToolRun<'_>) {}

    fn refused_by(&self, _: &str, _: GuardedPart) {}

    fn ended(&self, _: &Summary<'_>) {}
}
