//! Policies: who may ask for what.

use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use crate::bindings::lifecycle::exports::mortise::plugin::lifecycle;
use crate::bindings::policy::exports::mortise::plugin as wit;
use crate::bindings::quotas::exports::mortise::plugin::quotas;
use crate::{Fault, prepared};

pub use crate::bindings::imports::mortise::plugin::{ledger, secrets};
pub use crate::bindings::policy::exports::mortise::plugin::policy::{
    Allow, Decision, Deny, Facts, Principal, Rewrite, SystemPlace, SystemPrompt, ToolGrant, Usage,
};
pub use crate::bindings::quotas::exports::mortise::plugin::quotas::{Caller, Quota, Unit};

/// A policy. Make it a component with [`export!`](crate::export).
pub trait Policy: Sized + 'static {
    /// The operator's table of the configuration; [`NoSettings`](crate::NoSettings) if there is none.
    type Settings: DeserializeOwned;

    /// Called once on each instance, first.
    ///
    /// # Errors
    /// Settings that make no sense: the server then does not take the plugin.
    fn prepare(settings: Self::Settings) -> Result<Self, Fault>;

    /// Decide on a request, before anything else is done for it.
    ///
    /// # Errors
    /// [`Fault::Invalid`] and [`Fault::TooComplex`] are the caller's and become a 400; all else refuses
    /// the request with a 500, unless the operator said otherwise. To refuse, return [`Decision::Deny`].
    fn authorize(&self, facts: Facts) -> Result<Decision, Fault>;

    /// Learn what an allowed request used, after it has ended. Keeps no accounts unless you do.
    ///
    /// # Errors
    /// A fault is counted and logged; the request is over.
    fn account(&self, usage: Usage) -> Result<(), Fault> {
        let _ = usage;
        Ok(())
    }

    /// Tell the limits that requests of a caller count against, so that operators see how much of each is used. None
    /// unless you write it, and then operators are told that the policy does not say.
    ///
    /// ```
    /// # use mortise_plugin_sdk::policy::{Allow, Caller, Decision, Facts, Policy, Quota, Unit};
    /// # use mortise_plugin_sdk::{Fault, NoSettings};
    /// # struct Daily { requests: u64 }
    /// # impl Policy for Daily {
    /// #     type Settings = NoSettings;
    /// #     fn prepare(_: NoSettings) -> Result<Self, Fault> { Ok(Self { requests: 1000 }) }
    /// #     fn authorize(&self, _: Facts) -> Result<Decision, Fault> { Ok(Allow::subject("a").into()) }
    /// fn quotas(&self, caller: Caller) -> Result<Option<Vec<Quota>>, String> {
    ///     let Some(tenant) = caller.tenant else {
    ///         return Ok(Some(Vec::new()));
    ///     };
    ///     Ok(Some(vec![Quota {
    ///         name: "requests_per_day".to_owned(),
    ///         unit: Unit::Requests,
    ///         shared_by: Some(format!("tenant {tenant}")),
    ///         bucket: format!("requests/{tenant}"),
    ///         capacity: self.requests,
    ///         period_ms: 86_400_000,
    ///     }]))
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// The text is shown to the operator in place of the limits.
    fn quotas(&self, caller: Caller) -> Result<Option<Vec<Quota>>, String> {
        let _ = caller;
        Ok(None)
    }
}

impl Allow {
    /// Let a request pass as this subject, with normal priority and no limits of ours.
    pub fn subject(subject: impl Into<String>) -> Self {
        Self {
            principal: Principal {
                subject: subject.into(),
                tenant: None,
                labels: Vec::new(),
            },
            priority: 0,
            max_tokens: None,
            tools: ToolGrant::All,
            server_tools: ToolGrant::All,
            headers: Vec::new(),
            lease: None,
            rewrites: Vec::new(),
        }
    }

    /// Ask for a change of the request. Only those that the operator granted the binding are made; any
    /// other is a defect.
    #[must_use]
    pub fn rewrite(mut self, rewrite: Rewrite) -> Self {
        self.rewrites.push(rewrite);
        self
    }

    /// Keep usage and fairness by this tenant.
    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.principal.tenant = Some(tenant.into());
        self
    }

    /// Let the caller declare these functions only. A request that declares others is refused.
    #[must_use]
    pub fn only_tools<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        self.tools = ToolGrant::Only(names.into_iter().map(Into::into).collect());
        self
    }

    /// Let the caller opt in to these tools of the server only. A request for others is refused.
    #[must_use]
    pub fn only_server_tools<T: Into<String>>(
        mut self,
        names: impl IntoIterator<Item = T>,
    ) -> Self {
        self.server_tools = ToolGrant::Only(names.into_iter().map(Into::into).collect());
        self
    }
}

impl Deny {
    /// Refuse with a status of 400 to 499, the error's `type`, its `code`, and a message.
    pub fn new(status: u16, kind: &str, code: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            kind: kind.to_owned(),
            code: code.to_owned(),
            message: message.into(),
            retry_after_ms: None,
            headers: Vec::new(),
        }
    }
}

impl From<Allow> for Decision {
    fn from(allow: Allow) -> Self {
        Self::Allow(allow)
    }
}

impl From<Deny> for Decision {
    fn from(deny: Deny) -> Self {
        Self::Deny(deny)
    }
}

impl Default for Facts {
    /// A request for an answer that says nothing of itself, for tests to begin with.
    fn default() -> Self {
        Self {
            request_id: "test".to_owned(),
            route: "/v1/chat/completions".to_owned(),
            method: "POST".to_owned(),
            peer: "127.0.0.1".to_owned(),
            headers: Vec::new(),
            model: None,
            streaming: false,
            max_tokens: None,
            tools: Vec::new(),
            server_tools: Vec::new(),
        }
    }
}

impl Facts {
    /// The value of a request header that was granted. Its name may be written in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let (_, value) = headers.find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        Some(value)
    }
}

/// Exports of [`export!`](crate::export) for a policy.
#[doc(hidden)]
pub struct Component<P>(PhantomData<P>);

impl<P: Policy> lifecycle::Guest for Component<P> {
    fn prepare() -> Result<(), Fault> {
        prepared::keep(P::prepare(prepared::settings()?)?)
    }
}

impl<P: Policy> wit::policy::Guest for Component<P> {
    fn authorize(facts: Facts) -> Result<Decision, Fault> {
        prepared::plugin::<P>()?.authorize(facts)
    }

    fn account(usage: Usage) -> Result<(), Fault> {
        prepared::plugin::<P>()?.account(usage)
    }
}

impl<P: Policy> quotas::Guest for Component<P> {
    fn describe(caller: Caller) -> Result<Option<Vec<Quota>>, String> {
        let plugin = prepared::plugin::<P>().map_err(|fault| fault.to_string())?;
        plugin.quotas(caller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_found_in_any_case() {
        let facts = Facts {
            headers: vec![("x-tenant".to_owned(), "acme".to_owned())],
            ..Facts::default()
        };
        assert_eq!(facts.header("X-Tenant"), Some("acme"));
        assert_eq!(facts.header("x-plan"), None);
    }
}
