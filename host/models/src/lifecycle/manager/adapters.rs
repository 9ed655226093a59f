//! Adapters that are loaded and unloaded while their model serves.

use std::sync::Arc;

use tokio::task::JoinError;

use super::ModelManager;
use crate::adapters::{ADAPTER_SEPARATOR, AdapterConfig, AdapterError, AdapterStatus, Adapters};
use crate::lifecycle::error::LifecycleError;
use crate::lifecycle::lease::ModelLease;
use crate::lifecycle::state::ModelState;

/// Reason why an adapter was not loaded or unloaded.
#[derive(Debug, thiserror::Error)]
pub enum AdapterRefusal {
    /// Its model cannot be used now, or there is no room.
    #[error(transparent)]
    Model(#[from] LifecycleError),
    /// The adapter itself.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
}

impl ModelManager {
    /// Load an adapter of a loaded model, and count its memory. It stays until it is unloaded, or the model is. The
    /// load goes on if the caller gives up waiting.
    ///
    /// # Errors
    /// When the model is not loaded, there is no room, or the adapter cannot be loaded.
    pub async fn load_adapter(
        &self,
        model: &str,
        config: AdapterConfig,
    ) -> Result<AdapterStatus, AdapterRefusal> {
        let (lease, adapters) = self.adapters_of(model).await?;
        let this = self.this.upgrade().ok_or(LifecycleError::Stopping)?;
        let (model, name) = (model.to_owned(), config.name.clone());
        let load = async move {
            let loaded = this.load_counted(&model, &adapters, config).await;
            drop(lease);
            loaded
        };
        match tokio::spawn(load).await {
            Ok(loaded) => loaded,
            Err(panic) => Err(broken_off(name, &panic).into()),
        }
    }

    async fn load_counted(
        &self,
        model: &str,
        adapters: &Arc<Adapters>,
        config: AdapterConfig,
    ) -> Result<AdapterStatus, AdapterRefusal> {
        let name = config.name.clone();
        let loading = Arc::clone(adapters);
        let loaded = tokio::task::spawn_blocking(move || loading.load(config)).await;
        let (status, new) = loaded.map_err(|panic| {
            adapters.load_failed(&name, "the load panicked; the log says where");
            broken_off(name.clone(), &panic)
        })??;
        if !new {
            return Ok(status);
        }
        let bytes = status.loaded.as_ref().map_or(0, |adapter| adapter.bytes());
        let grown = self.lock().table.grow(model, bytes);
        if let Err(free) = grown {
            // Nobody waits for it yet, but for requests that found it at once.
            drop(status);
            adapters.unload(&name).await?;
            let room = self.config.room;
            return Err(AdapterRefusal::Model(LifecycleError::NoRoom {
                model: format!("{model}{ADAPTER_SEPARATOR}{name}"),
                needed: bytes,
                free,
                budget: room.bytes,
                models: room.models,
            }));
        }
        tracing::info!(model, adapter = name, bytes, "adapter loaded");
        Ok(status)
    }

    /// Unload an adapter once no request uses it; new requests are refused at once. Returns the place that it had.
    /// The unload goes on if the caller gives up waiting.
    ///
    /// # Errors
    /// When the model is not loaded, or the adapter is not.
    pub async fn unload_adapter(&self, model: &str, name: &str) -> Result<usize, AdapterRefusal> {
        let (lease, adapters) = self.adapters_of(model).await?;
        let this = self.this.upgrade().ok_or(LifecycleError::Stopping)?;
        let (model, adapter) = (model.to_owned(), name.to_owned());
        let unload = async move {
            let (slot, bytes) = adapters.unload(&adapter).await?;
            this.lock().table.shrink(&model, bytes);
            drop(lease);
            tracing::info!(model, adapter, "adapter unloaded");
            Ok(slot)
        };
        match tokio::spawn(unload).await {
            Ok(unloaded) => unloaded,
            Err(panic) => Err(broken_off(name.to_owned(), &panic).into()),
        }
    }

    /// The adapters of a loaded model, and a hold on the model.
    async fn adapters_of(
        &self,
        model: &str,
    ) -> Result<(ModelLease, Arc<Adapters>), AdapterRefusal> {
        let status = self.status(model);
        let status = status.ok_or_else(|| LifecycleError::Unknown(model.to_owned()))?;
        if status.state != ModelState::Loaded {
            let error = status.last_error.as_deref();
            return Err(LifecycleError::of_state(model, status.state, error).into());
        }
        let adapters = status.loaded.as_ref().and_then(|model| model.adapters());
        let Some(adapters) = adapters.map(Arc::clone) else {
            return Err(AdapterRefusal::Adapter(AdapterError::Unsupported {
                model: model.to_owned(),
                reason: "this server's engine computes neither its answers nor its vectors"
                    .to_owned(),
            }));
        };
        Ok((self.acquire(model).await?, adapters))
    }
}

fn broken_off(adapter: String, panic: &JoinError) -> AdapterError {
    AdapterError::Files {
        adapter,
        error: format!("it broke off: {panic}"),
    }
}
