//! Reasons for which a request is refused or an answer breaks off. No HTTP in here: the server turns kinds into
//! statuses in one place.

use mortise_models::lifecycle::LifecycleError;
use mortise_models::{AdapterError, UnknownModel};
use mortise_plugin::{Denial, PluginError};

/// Every way in which the service can fail a request.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ServiceError {
    /// A field of the request is wrong.
    #[error("{message}")]
    Invalid {
        /// The field, as the caller named it, with its path: `messages[2].content`.
        param: Option<String>,
        /// A machine-readable code, such as `invalid_value`.
        code: &'static str,
        /// Problem, and a right value.
        message: String,
    },
    /// No model of this name.
    #[error("{}; available: {}", absent(model, alias.as_deref()), named(available))]
    ModelNotFound {
        /// The name asked for, or that of the model that an alias stands for.
        model: String,
        /// The alias that was asked for.
        alias: Option<String>,
        /// Names that exist.
        available: Vec<String>,
    },
    /// The model has no loaded adapter of this name, or takes none.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    /// The model is known and cannot be used now.
    #[error(transparent)]
    Model(#[from] LifecycleError),
    /// A policy refused.
    #[error("{}", .0.message)]
    Denied(Denial),
    /// The prompt, with the tokens asked for, exceeds the context.
    #[error(
        "this model's context holds {context} tokens; the prompt has {}{prompt} and {requested} more were asked for",
        if *at_least { "at least " } else { "" }
    )]
    ContextLength {
        /// The field that holds the prompt.
        param: &'static str,
        /// Tokens of the prompt.
        prompt: usize,
        /// The prompt has as many or more: it was not encoded to its end.
        at_least: bool,
        /// Tokens asked for.
        requested: usize,
        /// Tokens that the context holds.
        context: usize,
    },
    /// Too many requests are waiting.
    #[error("the server's queue of {limit} {unit} is full; retry later")]
    QueueFull {
        /// Contents of the queue.
        limit: usize,
        /// Of what: `requests` or `prompt tokens`.
        unit: &'static str,
        /// Seconds until what waits now will have been answered.
        retry_after: u32,
    },
    /// The caller's tenant crowds the queue.
    #[error(
        "{waiting} requests of your tenant wait already, and what is left of the queue is for \
         others; retry later"
    )]
    TenantQueueFull {
        /// The tenant's requests that wait.
        waiting: usize,
        /// Seconds until what waits now will have been answered.
        retry_after: u32,
    },
    /// The request would wait for too long.
    #[error(
        "the server has more to do than it can: an answer would begin in about {seconds} s; retry later"
    )]
    Overloaded {
        /// Expected wait.
        seconds: u64,
    },
    /// A plugin failed, through no fault of the caller unless the fault says `Invalid`.
    #[error(transparent)]
    Plugin(#[from] PluginError),
    /// The engine failed this request.
    #[error("generation failed: {0}")]
    Engine(String),
    /// The model's server cannot be reached, or broke its protocol.
    #[error("{0}")]
    Upstream(String),
    /// The model's server takes no requests at present.
    #[error("{message}")]
    Unavailable {
        /// Description of the failure.
        message: String,
        /// Seconds after which to retry.
        retry_after: u32,
    },
    /// Counters that a decision needs cannot be reached.
    #[error("the counters that several hosts share cannot be reached; retry later")]
    CountersLost,
    /// Identity of the caller cannot be found out at present.
    #[error("{message}")]
    Unrecognised {
        /// Description of the failure.
        message: String,
        /// Seconds after which to retry.
        retry_after: u32,
    },
    /// The caller no longer waits for the answer.
    #[error("the answer was not there within the time that its caller waits")]
    ClientTimeout,
    /// The answer has not begun within the time that the server lets requests wait.
    #[error("the request has waited as long as this server lets requests wait; retry later")]
    QueueTimeout,
    /// An operator cancelled the request.
    #[error("an operator of this server cancelled the request")]
    CancelledByOperator,
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopping,
}

impl ServiceError {
    /// Name of the kind of error, fit for a label.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "invalid",
            Self::ModelNotFound { .. } => "model_not_found",
            Self::Adapter(_) => "lora_not_found",
            Self::Model(error) => error.code(),
            Self::Denied(_) => "denied",
            Self::ContextLength { .. } => "context_length",
            Self::QueueFull { .. } => "queue_full",
            Self::TenantQueueFull { .. } => "tenant_queue_full",
            Self::Overloaded { .. } => "overloaded",
            Self::Plugin(_) => "plugin",
            Self::Engine(_) => "engine",
            Self::Upstream(_) => "upstream",
            Self::Unavailable { .. } => "unavailable",
            Self::CountersLost => "counters_unavailable",
            Self::Unrecognised { .. } => "unrecognised",
            Self::ClientTimeout => "client_timeout",
            Self::QueueTimeout => "queue_timeout",
            Self::CancelledByOperator => "cancelled_by_operator",
            Self::Stopping => "stopping",
        }
    }
}

/// Names that exist, as a sentence ends with them.
fn named(available: &[String]) -> String {
    match available {
        [] => "none".to_owned(),
        names => names.join(", "),
    }
}

/// Beginning of the message about a model that is not there.
fn absent(model: &str, alias: Option<&str>) -> String {
    match alias {
        None => format!("the model `{model}` does not exist"),
        Some(alias) => {
            format!("`{alias}` is an alias of the model `{model}`, which does not exist")
        }
    }
}

impl From<UnknownModel> for ServiceError {
    fn from(unknown: UnknownModel) -> Self {
        Self::ModelNotFound {
            model: unknown.name,
            alias: None,
            available: unknown.available,
        }
    }
}
