//! Events of models: changes of state and progress of loads.

use tokio::sync::broadcast;

use super::clock::now_ms;
use super::progress::LoadStatus;
use super::state::ModelState;
use crate::limits::MAX_EVENT_BACKLOG;

/// Event of one model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelEvent {
    /// Public name.
    pub model: String,
    /// State now.
    pub state: ModelState,
    /// Progress, while it is loading.
    pub progress: Option<LoadStatus>,
    /// Reason of a failure.
    pub error: Option<String>,
    /// Milliseconds since 1970.
    pub at_ms: u64,
}

/// Sends events to whoever listens.
#[derive(Debug)]
pub(crate) struct LifecycleEvents(broadcast::Sender<ModelEvent>);

impl Default for LifecycleEvents {
    fn default() -> Self {
        Self(broadcast::channel(MAX_EVENT_BACKLOG).0)
    }
}

impl LifecycleEvents {
    pub(crate) fn send(
        &self,
        model: &str,
        state: ModelState,
        progress: Option<LoadStatus>,
        error: Option<String>,
    ) {
        // An error says that nobody listens.
        let _ = self.0.send(ModelEvent {
            model: model.to_owned(),
            state,
            progress,
            error,
            at_ms: now_ms(),
        });
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<ModelEvent> {
        self.0.subscribe()
    }
}
