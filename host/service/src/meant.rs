//! The model that a request is for, perhaps with an adapter.

use std::borrow::Cow;
use std::sync::Arc;

use mortise_models::{ADAPTER_SEPARATOR, AdapterError, Generator};

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
        reason: "its answers are not computed by the engine of this server".to_owned(),
    }
}
