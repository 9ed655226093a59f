//! Definitions of models that change while the server runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Entry, Inner, ModelManager, company_of};
use crate::config::ModelConfig;
use crate::lifecycle::contract::MemorySource;
use crate::lifecycle::state::ModelState;
use crate::model::Listing;

/// Change of the models that a server knows, by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Redefinition {
    /// Models that are new. None of them is loaded by this.
    pub added: Vec<String>,
    /// Models that are gone.
    pub removed: Vec<String>,
    /// Models that are defined in another way.
    pub updated: Vec<String>,
    /// Models that stay as they are.
    pub unchanged: Vec<String>,
}

/// Change that a model's state does not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedefinitionConflict {
    /// Public name.
    pub model: String,
    /// State of the model.
    pub state: ModelState,
    /// Flag of a model that was to be removed; the others were to be updated.
    pub removed: bool,
}

impl ModelManager {
    /// Compare these models with the models that the server knows: the changes that [`Self::redefine`] would make.
    ///
    /// # Errors
    /// When that would invalidate models that are loaded, or about to be.
    pub fn compare(
        &self,
        models: &[ModelConfig],
    ) -> Result<Redefinition, Vec<RedefinitionConflict>> {
        self.lock().compare(models)
    }

    /// Compare as [`Self::compare`] does, and return the changes together with the conflicts.
    pub fn difference(&self, models: &[ModelConfig]) -> (Redefinition, Vec<RedefinitionConflict>) {
        self.lock().difference(models)
    }

    /// Know these models, and no others, from now on. Nothing is loaded or unloaded by it.
    ///
    /// # Errors
    /// As [`ModelManager::compare`]; then nothing changes.
    pub async fn redefine(
        &self,
        models: Vec<ModelConfig>,
    ) -> Result<Redefinition, Vec<RedefinitionConflict>> {
        let sizes: Vec<Option<u64>> = models
            .iter()
            .map(|model| self.loader.artifact_bytes(model))
            .collect();
        let redefinition = {
            let mut inner = self.lock();
            let redefinition = inner.compare(&models)?;
            self.loader.redefine(&models);
            inner.order = models.iter().map(|model| model.name.clone()).collect();
            for name in &redefinition.removed {
                inner.entries.remove(name);
                inner.table.remove(name);
            }
            for (model, size) in models.into_iter().zip(sizes) {
                inner.define(model, size);
            }
            redefinition
        };
        for names in [&redefinition.added, &redefinition.updated] {
            names.iter().for_each(|name| self.tell(name));
        }
        self.publish_known("").await;
        Ok(redefinition)
    }
}

impl Inner {
    fn compare(&self, models: &[ModelConfig]) -> Result<Redefinition, Vec<RedefinitionConflict>> {
        let (change, conflicts) = self.difference(models);
        match conflicts.is_empty() {
            true => Ok(change),
            false => Err(conflicts),
        }
    }

    fn difference(&self, models: &[ModelConfig]) -> (Redefinition, Vec<RedefinitionConflict>) {
        let mut change = Redefinition::default();
        let mut conflicts = Vec::new();
        let idle = |state| matches!(state, ModelState::Unloaded | ModelState::Failed);
        let mut conflict = |name: &str, removed| {
            let state = self.table.slot(name).map(|slot| slot.state);
            if let Some(state) = state.filter(|state| !idle(*state)) {
                let model = name.to_owned();
                conflicts.push(RedefinitionConflict {
                    model,
                    state,
                    removed,
                });
            }
        };
        for model in models {
            let name = model.name.clone();
            match self.entries.get(&name) {
                None => change.added.push(name),
                Some(entry) if *entry.config == *model => change.unchanged.push(name),
                Some(entry) => {
                    if !entry.config.has_runtime_of(model) {
                        conflict(&name, false);
                    }
                    change.updated.push(name);
                }
            }
        }
        let kept: BTreeSet<&String> = models.iter().map(|model| &model.name).collect();
        for name in self.order.iter().filter(|name| !kept.contains(name)) {
            conflict(name, true);
            change.removed.push(name.clone());
        }
        (change, conflicts)
    }

    /// Add a model, or define it anew. A loaded one keeps its runtime.
    fn define(&mut self, model: ModelConfig, size: Option<u64>) {
        let (name, pinned) = (model.name.clone(), model.lifecycle.pinned);
        let overrides = self.entries.get(&name);
        let overrides = overrides.and_then(|entry| entry.overrides.as_ref());
        let pinned = overrides.map_or(pinned, |overrides| overrides.pins(pinned));
        self.table.add(&name, size.unwrap_or(0), pinned);
        self.table.set_pinned(&name, pinned);
        self.table.set_company(&name, company_of(&model));
        self.table.set_elsewhere(&name, model.upstream.is_some());
        let Some(entry) = self.entries.get_mut(&name) else {
            self.entries.insert(name, Entry::new(model, size));
            return;
        };
        if *entry.config == model {
            return;
        }
        if !entry.config.has_runtime_of(&model) {
            self.table.set_bytes(&name, size.unwrap_or(0));
            entry.memory_source = MemorySource::of_files(size);
            entry.observed = None;
        }
        entry.listing = Arc::new(Listing {
            created: entry.listing.created,
            ..Listing::of(&model)
        });
        entry.config = Arc::new(model);
    }
}
