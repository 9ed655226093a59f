//! Requests to aliases: the model that is meant for a caller.

use std::sync::Arc;

use mortise_models::{ADAPTER_SEPARATOR, AliasCaller};

use crate::admission::ApiCall;
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
    pub(crate) fn meant(&self, serving: &Generation, name: &str) -> String {
        let target = self.alias_in(serving, name).and_then(|(alias, adapter)| {
            let target = self.aliases().target(&alias)?;
            Some(target + adapter)
        });
        target.unwrap_or_else(|| name.to_owned())
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
                counters: Some(chosen.counters),
            },
            // It was removed meanwhile.
            None => Routed {
                model: name.to_owned(),
                counters: None,
            },
        }
    }
}
