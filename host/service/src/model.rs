//! A model as the service serves it: its descriptor with the plugins that are bound to it.

use std::sync::Arc;

use mortise_models::{Generator, Model, Named};

use crate::error::ServiceError;
use crate::plugin_routing::ModelPlugins;

/// A model with its plugins.
#[derive(Clone)]
pub struct ServedModel {
    /// Names, capabilities and runtimes.
    pub model: Arc<Model>,
    /// Chat templates, output parsers and grammars.
    pub plugins: ModelPlugins,
}

impl ServedModel {
    /// What generates text.
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

impl Named for ServedModel {
    fn name(&self) -> &str {
        &self.model.name
    }

    fn aliases(&self) -> &[String] {
        &self.model.aliases
    }
}
