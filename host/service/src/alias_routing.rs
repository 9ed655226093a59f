//! Requests to aliases: the model that is meant for a caller.

use std::sync::Arc;

use mortise_models::{ADAPTER_SEPARATOR, AliasCaller};

use crate::admission::ApiCall;
use crate::error::ServiceError;
use crate::meant::Meant;
use crate::model::ServedModel;
use crate::routed::Routed;
use crate::service::{Generation, Service};

/// Headers that tell one caller from another.
const CREDENTIALS: [&str; 2] = ["authorization", "x-api-key"];

impl Service {
    /// The alias that a name means, in other case if that is allowed, and what is behind it: nothing, or the name of
    /// an adapter with its separator. `None` if the name means a model by itself.
    fn alias_in<'a>(&self, serving: &Generation, name: &'a str) -> Option<(String, &'a str)> {
        let models = serving.models();
        // The public name of a model is no alias; one of its further names may be switched.
        let alias = |name: &str| match serving.is_public(name) {
            true => None,
            false => {
                let any_case = models.ignores_case() && models.spelled(name).is_none();
                self.aliases().spelled(name, any_case)
            }
        };
        if let Some(whole) = alias(name) {
            return Some((whole, ""));
        }
        let behind = name.rfind(ADAPTER_SEPARATOR)?;
        let (base, adapter) = name.split_at(behind);
        match models.spelled(name) {
            Some(_) => None,
            None => alias(base).map(|alias| (alias, adapter)),
        }
    }

    /// The model that a name means, whoever asks.
    pub(crate) fn meant(&self, serving: &Generation, name: &str) -> Routed {
        let target = self.alias_in(serving, name).and_then(|(alias, adapter)| {
            let target = self.aliases().target(&alias)?;
            Some((alias, target + adapter))
        });
        let (alias, model) = target.unzip();
        Routed {
            alias,
            model: model.unwrap_or_else(|| name.to_owned()),
            counters: None,
        }
    }

    /// The alias that a name means as a whole.
    pub fn alias_named(&self, name: &str) -> Option<String> {
        let alias = self.alias_in(&self.serving(), name);
        alias.and_then(|(alias, adapter)| adapter.is_empty().then_some(alias))
    }

    /// Aliases that can be switched and that a caller is shown, with the models that they stand for at present, by
    /// name. An alias shows a hidden model, too: that is how callers find it.
    pub async fn permitted_aliases(&self, call: &ApiCall) -> Vec<(String, Arc<ServedModel>)> {
        let serving = self.serving();
        let mut shown = Vec::new();
        for (alias, target) in self.aliases().targets() {
            let hidden = serving.is_public(&alias);
            let Some(model) = serving.models().get(&target).filter(|_| !hidden) else {
                continue;
            };
            if self.permits(call, &target).await {
                shown.push((alias, Arc::clone(model)));
            }
        }
        shown
    }

    /// The model that a name means for this caller. Requests of one `session` stay together; without one, those
    /// of one tenant, credential or address do.
    pub(crate) async fn route(
        &self,
        serving: &Generation,
        call: &ApiCall,
        name: &str,
        session: Option<&str>,
    ) -> Routed {
        let aliases = self.aliases();
        let Some((alias, adapter)) = self.alias_in(serving, name) else {
            return Routed {
                model: name.to_owned(),
                alias: None,
                counters: None,
            };
        };
        let mut tenant = None;
        if aliases.asks_who(&alias) {
            // Who may not ask is refused by what follows.
            tenant = self
                .identify(call)
                .await
                .ok()
                .and_then(|caller| caller.tenant);
        }
        let credential = CREDENTIALS.iter().find_map(|wanted| {
            let header = call.headers.iter().find(|(name, _)| name == wanted);
            header.map(|(_, value)| value.as_str())
        });
        let key = session.or(tenant.as_deref()).or(credential);
        let caller = AliasCaller {
            tenant: tenant.as_deref(),
            key: key.unwrap_or(&call.peer),
        };
        match aliases.choose(&alias, caller) {
            Some(chosen) => Routed {
                model: chosen.target + adapter,
                alias: Some(alias),
                counters: Some(chosen.counters),
            },
            // It was removed meanwhile.
            None => Routed {
                model: name.to_owned(),
                alias: None,
                counters: None,
            },
        }
    }
}

impl Generation {
    /// The model that a request is for, with its adapter. An alias stands for the model of exactly that name: where it is
    /// gone, no other one answers.
    ///
    /// # Errors
    /// When there is no such model, or it has no such adapter.
    pub(crate) fn find_routed(
        &self,
        routed: &Routed,
        field: Option<&str>,
    ) -> Result<Meant, ServiceError> {
        let model = &routed.model;
        let base = model.rsplit_once(ADAPTER_SEPARATOR);
        let known = self.is_public(model) || base.is_some_and(|(base, _)| self.is_public(base));
        match &routed.alias {
            Some(alias) if !known => Err(ServiceError::ModelNotFound {
                model: routed.model.clone(),
                alias: Some(alias.clone()),
                available: self.public_names(),
            }),
            _ => self.find(&routed.model, field),
        }
    }

    fn public_names(&self) -> Vec<String> {
        let models = self.models().models().iter();
        models.map(|model| model.listing.name.clone()).collect()
    }
}
