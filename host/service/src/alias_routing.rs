//! Requests to aliases: the model that is meant for a caller.

use mortise_models::AliasCaller;

use crate::admission::ApiCall;
use crate::routed::Routed;
use crate::service::{Generation, Service};

/// Headers that tell one caller from another.
const CREDENTIALS: [&str; 2] = ["authorization", "x-api-key"];

impl Service {
    /// The model that a name means, whoever asks.
    pub(crate) fn meant(&self, serving: &Generation, name: &str) -> String {
        match serving.is_public(name) {
            true => None,
            false => self.aliases().target(name),
        }
        .unwrap_or_else(|| name.to_owned())
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
        let mut tenant = None;
        if aliases.asks_who(name) {
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
        let chosen = match serving.is_public(name) {
            true => None,
            false => aliases.choose(name, caller),
        };
        match chosen {
            Some(chosen) => Routed {
                model: chosen.target,
                counters: Some(chosen.counters),
            },
            None => Routed {
                model: name.to_owned(),
                counters: None,
            },
        }
    }
}
