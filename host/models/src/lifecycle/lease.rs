//! Lease of a model: held by a request from its admission to its end.

use std::sync::Weak;

use tokio::sync::watch;

use super::manager::ModelManager;

/// Keeps a model from being released. It is given back when it is dropped.
pub struct ModelLease {
    manager: Weak<ModelManager>,
    model: String,
    closing: watch::Receiver<bool>,
    served: bool,
}

impl std::fmt::Debug for ModelLease {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "ModelLease({})", self.model)
    }
}

impl ModelLease {
    /// A lease that its maker has counted.
    pub(super) fn new(
        manager: Weak<ModelManager>,
        model: &str,
        closing: watch::Receiver<bool>,
    ) -> Self {
        Self {
            manager,
            model: model.to_owned(),
            closing,
            served: false,
        }
    }

    /// The model is loaded, and the request uses it.
    pub(super) fn serves(&mut self) {
        self.served = true;
    }

    /// Public name of the model.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Turns true when requests that have not begun are to end.
    pub fn closing(&self) -> watch::Receiver<bool> {
        self.closing.clone()
    }
}

impl Drop for ModelLease {
    fn drop(&mut self) {
        if let Some(manager) = self.manager.upgrade() {
            manager.release(&self.model, self.served);
        }
    }
}
