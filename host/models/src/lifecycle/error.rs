//! Refusals of the life cycle.

use super::state::ModelState;

/// Reason for which a model is not loaded, not unloaded, or cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LifecycleError {
    /// No model has the name.
    #[error("no model is called `{0}`")]
    Unknown(String),
    /// The model is not loaded, and requests do not load it.
    #[error("the model `{0}` is not loaded; an operator can load it")]
    NotLoaded(String),
    /// The model is loaded; settings for a load come too late.
    #[error("the model `{0}` is loaded; unload it first")]
    Loaded(String),
    /// The model is being loaded.
    #[error("the model `{0}` is being loaded; retry later")]
    Loading(String),
    /// The model is being unloaded.
    #[error("the model `{0}` is being unloaded; retry later")]
    Unloading(String),
    /// The last load of the model failed.
    #[error("the model `{model}` has failed: {error}")]
    Failed {
        /// Public name.
        model: String,
        /// Description of the failure.
        error: String,
    },
    /// Its last load took too long, and was given up.
    #[error("the model `{model}` was not loaded in time: {error}")]
    Late {
        /// Public name.
        model: String,
        /// Description of the bound.
        error: String,
    },
    /// The thread of a load that was given up has not ended, so that there is no other load.
    #[error(
        "a load of the model `{0}` was given up and its thread still waits, most likely for a file system; it can be \
         loaded again once that answers, or after a restart of the server"
    )]
    Stuck(String),
    /// The model was unloaded between admission and use.
    #[error("the model `{0}` was unloaded before the request began; retry later")]
    Unloaded(String),
    /// The settings for a load do not fit the model.
    #[error("the setting `{field}` is wrong: {message}")]
    BadOverride {
        /// Field of the settings.
        field: &'static str,
        /// Message: what is wrong and what would be right.
        message: String,
    },
    /// There is no room for the model.
    #[error("there is no room for the model `{model}`: {}", shortage(*needed, *free, *budget, *models))]
    NoRoom {
        /// Public name.
        model: String,
        /// Bytes that the model is expected to take.
        needed: u64,
        /// Bytes that could be freed.
        free: u64,
        /// Bound on the memory of all loaded models, 0 if there is none.
        budget: u64,
        /// Models that may be loaded at once, 0 if there is no bound.
        models: usize,
    },
    /// A pinned model is loaded beside which the model may not run.
    #[error(
        "the model `{model}` may not run beside `{by}`, which is pinned; unload that one, or give \
         both the same `group`"
    )]
    Excluded {
        /// Public name.
        model: String,
        /// Name of the pinned model.
        by: String,
    },
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopping,
}

/// Bounds that leave no room for a model, in words.
fn shortage(needed: u64, free: u64, budget: u64, models: usize) -> String {
    let most = format!("`max_loaded_models` is {models}, and what is loaded is pinned");
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let (needed, left, all) = (mib(needed), free >> 20, budget >> 20);
    let memory = format!(
        "it needs {needed} MiB, and beside what is pinned {left} of {all} MiB are left (`memory_budget_mib`)"
    );
    match (models, budget) {
        (_, 0) => most,
        (0, _) => memory,
        _ => format!("{memory}, at most {models} models at once (`max_loaded_models`)"),
    }
}

impl LifecycleError {
    /// Machine-readable code of the refusal.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "unknown_model",
            Self::NotLoaded(_) => "model_not_loaded",
            Self::Loaded(_) => "model_loaded",
            Self::Loading(_) => "model_loading",
            Self::Unloading(_) => "model_unloading",
            Self::Failed { .. } => "model_failed",
            Self::Late { .. } | Self::Stuck(_) => "model_load_timeout",
            Self::Unloaded(_) => "model_unloaded",
            Self::BadOverride { .. } => "invalid_load_request",
            Self::NoRoom { .. } => "insufficient_memory",
            Self::Excluded { .. } => "model_excluded",
            Self::Stopping => "stopping",
        }
    }

    /// The refusal that a state means to a request.
    pub(crate) fn of_state(model: &str, state: ModelState, last_error: Option<&str>) -> Self {
        let model = model.to_owned();
        match state {
            ModelState::Unloaded => Self::NotLoaded(model),
            ModelState::Loading => Self::Loading(model),
            ModelState::Loaded => Self::Loaded(model),
            ModelState::Unloading => Self::Unloading(model),
            ModelState::Failed => Self::Failed {
                model,
                error: last_error.unwrap_or("its runtime has ended").to_owned(),
            },
        }
    }
}
