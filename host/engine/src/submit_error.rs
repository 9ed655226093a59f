//! Refusals of [`submit`](crate::EngineHandle::submit).

/// The reason that a submission was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The request breaks a rule of [`SequenceRequest`](crate::SequenceRequest).
    #[error("{0}")]
    Invalid(String),
    /// The prompt does not fit the context.
    #[error("the prompt has {prompt} tokens and the context holds {context}")]
    ContextLength {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens that the context holds, prompt and output together.
        context: usize,
    },
    /// The queue has its most sequences.
    #[error("the queue holds {limit} sequences and is full")]
    QueueFull {
        /// Configured length of the queue.
        limit: usize,
    },
    /// The queue has its most prompt tokens.
    #[error("the queue holds prompts of {limit} tokens and is full")]
    QueuedTokens {
        /// Configured bound of the tokens in the queue.
        limit: usize,
    },
    /// The tenant has its share of the queue; the free places are reserved for other tenants.
    #[error(
        "{waiting} of your sequences wait already, and what is left of the queue is for others"
    )]
    TenantQueue {
        /// Queued sequences of the tenant.
        waiting: usize,
    },
    /// The expected wait in the queue, as measured, is longer than is allowed.
    #[error("it would wait for about {} s", wait.as_secs_f64().ceil())]
    ExpectedWait {
        /// Expected wait.
        wait: std::time::Duration,
    },
    /// The engine failed again and again, or is stuck.
    #[error("the engine has failed, and takes no requests for {} s", retry_after.as_secs_f64().ceil())]
    Broken {
        /// Time after which the engine takes requests again.
        retry_after: std::time::Duration,
    },
    /// The engine is stopping or has stopped.
    #[error("the engine has stopped")]
    Stopped,
}
