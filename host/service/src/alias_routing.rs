//! Requests to aliases: the model that is meant for a caller, and the numbers of what became of it.

use std::sync::Arc;
use std::time::Duration;

use mortise_models::{AliasCounters, Caller};

use crate::admission::Call;
use crate::observer::{ModelObserver, Outcome, Summary, ToolRun};
use crate::service::{Generation, Service};

/// Headers that tell one caller from another.
const CREDENTIALS: [&str; 2] = ["authorization", "x-api-key"];

/// Model that a request is for.
pub(crate) struct Routed {
    /// Its name: a public one, or what the caller wrote.
    pub(crate) model: String,
    counters: Option<Arc<AliasCounters>>,
}

impl Routed {
    /// An observer that counts for the alias as well.
    pub(crate) fn observe(&self, observer: Arc<dyn ModelObserver>) -> Arc<dyn ModelObserver> {
        match &self.counters {
            None => observer,
            Some(counters) => Arc::new(CountedByAlias {
                observer,
                counters: Arc::clone(counters),
            }),
        }
    }

    /// The request failed before its answer began.
    pub(crate) fn failed(&self, call: &Call) {
        if let Some(counters) = &self.counters {
            counters.ended(true, call.arrived.elapsed(), None);
        }
    }
}

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
        call: &Call,
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
        let caller = Caller {
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

/// Counts the answers of an alias beside those of the model.
struct CountedByAlias {
    observer: Arc<dyn ModelObserver>,
    counters: Arc<AliasCounters>,
}

impl ModelObserver for CountedByAlias {
    fn admitted(&self, queued: Duration) {
        self.observer.admitted(queued);
    }

    fn first_token(&self, after: Duration) {
        self.observer.first_token(after);
    }

    fn next_token(&self, gap: Duration) {
        self.observer.next_token(gap);
    }

    fn tool_ran(&self, run: &ToolRun<'_>) {
        self.observer.tool_ran(run);
    }

    fn ended(&self, summary: &Summary<'_>) {
        let failed = summary.outcome == Outcome::Failed;
        self.counters
            .ended(failed, summary.elapsed, summary.first_token);
        self.observer.ended(summary);
    }
}
