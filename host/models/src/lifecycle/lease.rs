//! Lease of a model: held by a request from its admission to its end.

use std::sync::Weak;

use tokio::sync::watch;

/// Counts leases.
pub(super) trait CountLeases: Send + Sync {
    /// A lease of the model has ended; `served` if the request used the model.
    fn release(&self, model: &str, served: bool);
}

/// Keeps a model from being released. It is given back when it is dropped.
pub struct ModelLease {
    manager: Weak<dyn CountLeases>,
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
        manager: Weak<dyn CountLeases>,
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
