//! Faults of calls into plugins, and their causes.

use std::sync::Arc;

use crate::Kind;

/// A failed call, with what operator and author need to find its cause. The text is for them: it may quote
/// what the plugin printed. See [`Fault::is_refusal`] for what a caller may read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("plugin `{plugin}` {version}: {function}: {fault}")]
pub struct PluginError {
    /// Name of the plugin.
    pub plugin: Box<str>,
    /// Version that the plugin gave, or its digest's first 12 digits.
    pub version: Box<str>,
    /// Kind that it was called as.
    pub kind: Kind,
    /// The exported function, such as `chat-template.render`.
    pub function: &'static str,
    /// The server's id of the request that it was called for; `-` if no request asked for the call.
    pub request_id: Arc<str>,
    /// Kind of failure.
    pub fault: Fault,
    /// Lines that the plugin printed and logged in the call, the last of them if they were many, and what its
    /// own account of the fault said beyond one line: a traceback. For operators and authors only.
    pub printed: Box<str>,
}

/// Party that caused a fault. Only faults of the plugin count for its breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The request: it is wrong, or asks for more work than one may.
    Caller,
    /// The generated text.
    Model,
    /// The plugin.
    Plugin,
    /// This server: it has no instance left, or does not call the plugin at present.
    Host,
}

/// Kind of a failed call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The plugin says the request is wrong: the caller's fault.
    #[error("{0}")]
    Invalid(String),
    /// The plugin says the request takes more work than it spends on one: the caller's fault too.
    #[error("too complex: {0}")]
    TooComplex(String),
    /// The plugin says it cannot serve this input.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// The plugin reports a defect of its own.
    #[error("internal fault: {0}")]
    Internal(String),
    /// The call ran past its deadline.
    #[error("did not answer within its deadline of {deadline_ms} ms")]
    Deadline {
        /// The deadline of the call.
        deadline_ms: u64,
    },
    /// All calls of a session or matcher together took too long.
    #[error("ran for more than {budget_ms} ms over all calls of one request")]
    Budget {
        /// The time that they may take.
        budget_ms: u64,
    },
    /// The plugin asked for more memory than it is granted.
    #[error("asked for more than {limit_bytes} bytes of memory")]
    Memory {
        /// The granted bytes.
        limit_bytes: usize,
    },
    /// The call stack was used up.
    #[error("overflowed its stack")]
    Stack,
    /// The answer was larger than allowed.
    #[error("answered with more than {limit_bytes} bytes")]
    Output {
        /// The allowed bytes.
        limit_bytes: usize,
    },
    /// Any other trap: a panic, an illegal instruction, a broken handle.
    #[error("trapped: {0}")]
    Trap(String),
    /// The answer has the right type and makes no sense.
    #[error("gave an invalid answer: {0}")]
    InvalidResult(String),
    /// The generated text cannot be passed on: the model's fault.
    #[error("the model's output {0}")]
    ModelOutput(String),
    /// No instance came free in time.
    #[error("all {instances} instances are busy")]
    Overloaded {
        /// Instances that may live at once.
        instances: usize,
    },
    /// The plugin failed too often of late, and was not called.
    #[error("failed too often and is not called for another {retry_after_ms} ms")]
    Suspended {
        /// Time until it may be called again.
        retry_after_ms: u64,
    },
    /// Counters that the decision needs cannot be reached.
    #[error("the counters that several hosts share cannot be reached")]
    CountersLost,
}

impl Fault {
    /// All labels, in the order in which metrics show them.
    pub const LABELS: [&'static str; 15] = [
        "invalid",
        "unsupported",
        "internal",
        "deadline",
        "memory",
        "stack",
        "output",
        "trap",
        "invalid-result",
        "overloaded",
        "suspended",
        "budget",
        "too-complex",
        "model-output",
        "counters-lost",
    ];

    /// A short name for metrics: one of [`Fault::LABELS`].
    pub fn label(&self) -> &'static str {
        Self::LABELS[self.index()]
    }

    /// The party that caused it. Excess in a call whose work the caller determines becomes
    /// [`Fault::TooComplex`] before it leaves this crate, if the plugin does well with a small input.
    pub fn cause(&self) -> Cause {
        match self {
            Fault::Invalid(_) | Fault::TooComplex(_) | Fault::Unsupported(_) => Cause::Caller,
            Fault::ModelOutput(_) => Cause::Model,
            Fault::Overloaded { .. } | Fault::Suspended { .. } | Fault::CountersLost => Cause::Host,
            Fault::Internal(_)
            | Fault::Deadline { .. }
            | Fault::Budget { .. }
            | Fault::Memory { .. }
            | Fault::Stack
            | Fault::Output { .. }
            | Fault::Trap(_)
            | Fault::InvalidResult(_) => Cause::Plugin,
        }
    }

    /// Whether the plugin broke down, as opposed to refusing a request in an orderly way, to being short
    /// of room, and to what a model wrote.
    pub fn is_breakdown(&self) -> bool {
        self.cause() == Cause::Plugin
    }

    /// Whether the call took more than it was granted, as opposed to doing what it must not.
    pub(crate) fn is_excess(&self) -> bool {
        matches!(
            self,
            Fault::Deadline { .. }
                | Fault::Budget { .. }
                | Fault::Memory { .. }
                | Fault::Stack
                | Fault::Output { .. }
        )
    }

    /// Whether the text is written for the caller. All other texts are for whoever runs the server: they
    /// may quote a panic.
    pub fn is_refusal(&self) -> bool {
        matches!(self.cause(), Cause::Caller | Cause::Model)
    }

    /// Whether another plugin would not do better: the caller or the model is the cause. All else is
    /// answered by the failure policy of the binding.
    pub fn is_callers(&self) -> bool {
        self.is_refusal() && !matches!(self, Fault::Unsupported(_))
    }

    pub(crate) fn index(&self) -> usize {
        match self {
            Fault::Invalid(_) => 0,
            Fault::Unsupported(_) => 1,
            Fault::Internal(_) => 2,
            Fault::Deadline { .. } => 3,
            Fault::Memory { .. } => 4,
            Fault::Stack => 5,
            Fault::Output { .. } => 6,
            Fault::Trap(_) => 7,
            Fault::InvalidResult(_) => 8,
            Fault::Overloaded { .. } => 9,
            Fault::Suspended { .. } => 10,
            Fault::Budget { .. } => 11,
            Fault::TooComplex(_) => 12,
            Fault::ModelOutput(_) => 13,
            Fault::CountersLost => 14,
        }
    }
}
