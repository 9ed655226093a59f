//! A model as the plugin manager keeps it: with what plugins are told of it while it is loaded.

use std::sync::Arc;

use mortise_models::lifecycle::KnownModel;
use mortise_service::{LoadedModel, ModelPlugins, ServedModel};

use crate::model::ModelFacts;

/// A model that the server knows, with what plugins are told of it while it is loaded.
#[derive(Debug, Clone)]
pub struct ManagedModel {
    /// The model.
    pub known: KnownModel,
    /// `None` if it is not loaded, or is rendered elsewhere.
    pub facts: Option<ModelFacts>,
}

impl ManagedModel {
    /// A model with its facts. Takes a while for a large vocabulary.
    pub fn new(known: KnownModel) -> Self {
        let facts = known.loaded.as_deref().and_then(ModelFacts::of_model);
        Self { known, facts }
    }

    /// Identity: true if both are the same load of a model.
    pub(crate) fn is_same(&self, other: &KnownModel) -> bool {
        match (&self.known.loaded, &other.loaded) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            _ => false,
        }
    }

    /// The model with its plugins; an error if some are missing.
    pub fn served(
        &self,
        plugins_of: impl FnOnce(&ModelFacts) -> Option<ModelPlugins>,
    ) -> Result<ServedModel, String> {
        let loaded = match (&self.known.loaded, &self.facts) {
            (None, _) => None,
            // It is rendered elsewhere.
            (Some(model), None) => Some((model, ModelPlugins::default())),
            (Some(model), Some(facts)) => {
                let plugins = plugins_of(facts);
                let missing = || format!("no plugins were bound for the model `{}`", facts.name());
                Some((model, plugins.ok_or_else(missing)?))
            }
        };
        Ok(ServedModel {
            listing: Arc::clone(&self.known.listing),
            loaded: loaded.map(|(model, plugins)| LoadedModel {
                model: Arc::clone(model),
                plugins,
            }),
        })
    }
}
