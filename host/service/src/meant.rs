//! The model that a request is for, perhaps with an adapter.

use std::borrow::Cow;
use std::sync::Arc;

use mortise_models::{ADAPTER_SEPARATOR, AdapterError, Generator, Model};

use crate::error::ServiceError;
use crate::model::{LoadedModel, ServedModel};

/// The model that a request is for, and its adapter.
pub(crate) struct Meant {
    pub(crate) entry: Arc<ServedModel>,
    pub(crate) adapter: Option<String>,
}

impl Meant {
    /// The public name of the model, with that of the adapter.
    pub(crate) fn name(&self) -> String {
        match &self.adapter {
            None => self.entry.listing.name.clone(),
            Some(adapter) => adapted_name(&self.entry, adapter),
        }
    }

    /// Embedding model with the adapter, under the name of both; the adapter stays loaded as long as this is there.
    /// Other models as they are.
    ///
    /// # Errors
    /// When the adapter is not loaded.
    pub(crate) fn embedding(&self, model: &Arc<Model>) -> Result<Arc<Model>, AdapterError> {
        match &self.adapter {
            Some(adapter) if model.embedder.is_some() => {
                let adapted = model.embedding_with(adapter)?;
                Ok(Arc::new(Model {
                    name: self.name(),
                    ..adapted
                }))
            }
            _ => Ok(Arc::clone(model)),
        }
    }

    /// The generator of the loaded model, with the adapter, which stays loaded as long as this is there.
    ///
    /// # Errors
    /// When the model does not generate, or the adapter is not loaded.
    pub(crate) fn generator<'a>(
        &self,
        loaded: &'a LoadedModel,
    ) -> Result<(String, Cow<'a, Generator>), ServiceError> {
        let generator = loaded.generator()?;
        let generator = match (&self.adapter, generator) {
            (None, generator) => Cow::Borrowed(generator),
            (Some(adapter), Generator::Tokens(tokens)) => {
                Cow::Owned(Generator::Tokens(tokens.adapted(adapter)?))
            }
            (Some(_), _) => return Err(takes_none(&self.entry).into()),
        };
        Ok((self.name(), generator))
    }
}

/// The name of a model with an adapter.
pub fn adapted_name(model: &ServedModel, adapter: &str) -> String {
    format!("{}{ADAPTER_SEPARATOR}{adapter}", model.listing.name)
}

/// The error of a model that takes no adapters.
pub(crate) fn takes_none(entry: &ServedModel) -> AdapterError {
    AdapterError::Unsupported {
        model: entry.listing.name.clone(),
        reason: "this server's engine computes neither its answers nor its vectors".to_owned(),
    }
}
