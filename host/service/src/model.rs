//! A model as the service serves it: its names, and once it is loaded its runtimes with the plugins that
//! are bound to it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use mortise_models::lifecycle::{LifecycleError, ModelEvent, ModelLease, ModelManager};
use mortise_models::{Generator, HasName, Listing, Model};
use tokio::sync::broadcast::Receiver;

use crate::error::ServiceError;
use crate::plugin_routing::ModelPlugins;

/// A model that requests can name.
#[derive(Clone)]
pub struct ServedModel {
    /// Names, and what lists of models show.
    pub listing: Arc<Listing>,
    /// There while it is loaded.
    pub loaded: Option<LoadedModel>,
}

/// A loaded model with its plugins.
#[derive(Clone)]
pub struct LoadedModel {
    /// Capabilities and runtimes.
    pub model: Arc<Model>,
    /// Chat templates, output parsers and grammars.
    pub plugins: ModelPlugins,
}

impl LoadedModel {
    /// Generator of text.
    ///
    /// # Errors
    /// When the model has no such capability.
    pub(crate) fn generator(&self) -> Result<&Generator, ServiceError> {
        self.model
            .generator
            .as_ref()
            .ok_or_else(|| ServiceError::Invalid {
                param: None,
                code: "invalid_request",
                message: "this model makes embeddings and generates no text".to_owned(),
            })
    }
}

impl HasName for ServedModel {
    fn name(&self) -> &str {
        &self.listing.name
    }

    fn aliases(&self) -> &[String] {
        &self.listing.aliases
    }
}

/// A hold on a model, or the reason against it.
pub type ModelHold<'a> =
    Pin<Box<dyn Future<Output = Result<Option<ModelLease>, LifecycleError>> + Send + 'a>>;

/// Keeps models loaded while requests use them, and loads them where requests may do that.
pub trait HoldModels: Send + Sync {
    /// Hold the model of this public name until the lease is dropped. `None`: it needs no hold.
    fn hold<'a>(&'a self, name: &'a str) -> ModelHold<'a>;

    /// Keep the model of this public name loaded for so long after its last request.
    fn keep(&self, _name: &str, _time: Duration) {}

    /// Time for which the model of this public name stays loaded if no further request comes; `None` if nothing
    /// ends it.
    fn time_left(&self, _name: &str) -> Option<Duration> {
        None
    }

    /// Events of models from now on, if callers are to hear of those that they wait for.
    fn swap_notices(&self) -> Option<Receiver<ModelEvent>> {
        None
    }
}

/// All models are loaded and stay so.
#[derive(Debug, Clone, Copy)]
pub struct AlwaysLoaded;

impl HoldModels for AlwaysLoaded {
    fn hold<'a>(&'a self, _: &'a str) -> ModelHold<'a> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

impl HoldModels for ModelManager {
    fn hold<'a>(&'a self, name: &'a str) -> ModelHold<'a> {
        Box::pin(async move { self.acquire(name).await.map(Some) })
    }

    fn keep(&self, name: &str, time: Duration) {
        Self::keep(self, name, time);
    }

    fn time_left(&self, name: &str) -> Option<Duration> {
        Self::time_left(self, name)
    }

    fn swap_notices(&self) -> Option<Receiver<ModelEvent>> {
        Self::swap_notices(self)
    }
}
