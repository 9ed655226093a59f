//! Adapters of requests: named beside the model, or behind its name and a colon.

use std::sync::Arc;

use mortise_models::{ADAPTER_SEPARATOR, AdapterError};

use crate::admission::ApiCall;
use crate::error::ServiceError;
use crate::meant::{Meant, adapted_name, takes_none};
use crate::model::{LoadedModel, ServedModel};
use crate::refusal::invalid;
use crate::service::{Generation, Service};

/// Field of a request that names an adapter.
const FIELD: &str = "lora_adapter";

impl Generation {
    /// The model, and the adapter, that a name means, or a name and the field `lora_adapter`.
    ///
    /// # Errors
    /// When there is no such model, or it has no such adapter.
    pub(crate) fn find(&self, name: &str, field: Option<&str>) -> Result<Meant, ServiceError> {
        let models = self.models();
        let behind = name.rsplit_once(ADAPTER_SEPARATOR);
        let behind = behind.filter(|_| models.spelled(name).is_none());
        // A model without adapters may be called by any name that matches.
        let behind = behind.and_then(|(base, adapter)| match models.spelled(base) {
            Some(entry) => entry.knows_adapters().then_some((entry, adapter)),
            // A name that finds the model by another rule may end in what is no adapter.
            None => {
                let entry = models.resolve(base).ok()?;
                let known = entry.adapter_names().iter().any(|known| known == adapter);
                known.then_some((entry, adapter))
            }
        });
        let (entry, adapter) = match behind {
            Some((entry, adapter)) => (entry, Some(adapter)),
            None => (models.resolve(name)?, None),
        };
        let adapter = match (adapter, field) {
            (Some(one), Some(other)) if one != other => {
                let message = format!(
                    "it is `{other}`, and `model` names the adapter `{one}`; leave one of them out"
                );
                return Err(invalid(FIELD, message));
            }
            (adapter, field) => adapter.or(field),
        };
        if let Some(adapter) = adapter {
            check(entry, adapter)?;
        }
        Ok(Meant {
            entry: Arc::clone(entry),
            adapter: adapter.map(str::to_owned),
        })
    }
}

impl ServedModel {
    /// True if it has adapters, loaded or not.
    fn knows_adapters(&self) -> bool {
        match &self.loaded {
            None => !self.listing.adapters.is_empty(),
            Some(loaded) => {
                let adapters = loaded.model.adapters();
                adapters.is_some_and(|adapters| !adapters.is_empty())
            }
        }
    }

    /// Names of the adapters that requests can use: those that are loaded, or will be with the model.
    pub fn adapter_names(&self) -> Vec<String> {
        match &self.loaded {
            None => self.listing.adapters.clone(),
            Some(loaded) => {
                let adapters = loaded.model.adapters();
                adapters.map_or_else(Vec::new, |adapters| adapters.names())
            }
        }
    }
}

impl Service {
    /// The model that a caller means by `name`, and its public name, with that of the adapter if one is meant.
    ///
    /// # Errors
    /// When there is no such model, or it has no such adapter.
    pub fn model_and_name(&self, name: &str) -> Result<(Arc<ServedModel>, String), ServiceError> {
        let serving = self.serving();
        let meant = serving.find_routed(&self.meant(&serving, name), None)?;
        let name = meant.name();
        Ok((meant.entry, name))
    }

    /// Adapters that a caller is shown, with their models, in the order of the configuration.
    pub async fn permitted_adapters(&self, call: &ApiCall) -> Vec<(Arc<ServedModel>, String)> {
        let mut shown = Vec::new();
        for model in self.models() {
            if model.listing.hidden {
                continue;
            }
            for adapter in model.adapter_names() {
                if self.permits(call, &adapted_name(&model, &adapter)).await {
                    shown.push((Arc::clone(&model), adapter));
                }
            }
        }
        shown
    }
}

/// Check that requests can use an adapter of a model.
fn check(entry: &ServedModel, adapter: &str) -> Result<(), AdapterError> {
    let elsewhere = |loaded: &LoadedModel| loaded.model.adapters().is_none();
    if entry.loaded.as_ref().is_some_and(elsewhere) {
        return Err(takes_none(entry));
    }
    let available = entry.adapter_names();
    if available.iter().any(|known| known == adapter) {
        return Ok(());
    }
    Err(AdapterError::Unknown {
        model: entry.listing.name.clone(),
        adapter: adapter.chars().take(200).collect(),
        available,
    })
}
