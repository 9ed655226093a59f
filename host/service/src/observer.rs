//! What a server may want to count. The service keeps no metrics of its own.

use std::time::Duration;

use crate::error::ServiceError;
use crate::event::{ToolOutcome, Usage};

/// Hears of requests as they go. Calls are made on the path of the request and must be quick.
/// Every method has a default that does nothing.
pub trait Observer: Send + Sync {
    /// [`crate::Service::start`] refused or failed a request.
    fn refused(&self, model: &str, error: &ServiceError) {
        let _ = (model, error);
    }

    /// The first token of a choice came, this long after the request.
    fn first_token(&self, model: &str, after: Duration) {
        let _ = (model, after);
    }

    /// A further token of a choice came, this long after the one before.
    fn next_token(&self, model: &str, after: Duration) {
        let _ = (model, after);
    }

    /// A tool of the server has run.
    fn tool_ran(&self, run: &ToolRun<'_>) {
        let _ = run;
    }

    /// An answer has ended, however it ended. Heard exactly once for each answer.
    fn ended(&self, summary: &Summary<'_>) {
        let _ = summary;
    }
}

/// One run of a tool of the server.
#[derive(Debug, Clone, Copy)]
pub struct ToolRun<'a> {
    /// Public name of the model that called.
    pub model: &'a str,
    /// Name of the tool, one that a plugin has declared.
    pub tool: &'a str,
    /// What came of it.
    pub outcome: ToolOutcome,
    /// How long it took, its wait for a turn included.
    pub took: Duration,
}

/// What an answer came to.
#[derive(Debug, Clone, Copy)]
pub struct Summary<'a> {
    /// The server's id of the request.
    pub request_id: &'a str,
    /// Public name of the model.
    pub model: &'a str,
    /// How it ended.
    pub outcome: Outcome,
    /// Tokens that it took.
    pub usage: Usage,
    /// From arrival to the end.
    pub wall: Duration,
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The model ended it, or a stop string did.
    Stop,
    /// A limit was reached.
    Length,
    /// It ended in tool calls.
    ToolCalls,
    /// The client went away.
    Cancelled,
    /// It failed.
    Error,
}

impl Outcome {
    /// A short name, fit for a label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
            Self::Cancelled => "cancelled",
            Self::Error => "error",
        }
    }
}

/// Hears nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}
