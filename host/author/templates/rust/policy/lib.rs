//! A policy: it refuses callers of some tenants and lets all others pass. A caller says in the header
//! `x-tenant` whom it belongs to; the settings say who is refused: `{"blocked": ["acme"]}`.

use mortise_plugin_sdk::Fault;
use mortise_plugin_sdk::policy::{Allow, Decision, Deny, Facts, Policy};
use serde::Deserialize;

mortise_plugin_sdk::export!(policy: Tenants, settings: "settings.schema.json");

/// The settings, which are also the whole plugin.
#[derive(Deserialize)]
struct Tenants {
    /// Tenants that are refused.
    #[serde(default)]
    blocked: Vec<String>,
}

impl Policy for Tenants {
    type Settings = Self;

    fn prepare(settings: Self) -> Result<Self, Fault> {
        Ok(settings)
    }

    fn authorize(&self, facts: Facts) -> Result<Decision, Fault> {
        let Some(tenant) = facts.header("x-tenant") else {
            return Ok(Allow::subject("anonymous").into());
        };
        if tenant.is_empty() || tenant.len() > 256 {
            let fault = "the header `x-tenant` must have 1 to 256 bytes";
            return Err(Fault::Invalid(fault.to_owned()));
        }
        if self.blocked.iter().any(|blocked| blocked == tenant) {
            let message = format!("the tenant `{tenant}` may not use this server");
            return Ok(Deny::new(403, "permission_error", "tenant_blocked", message).into());
        }
        Ok(Allow::subject(tenant).tenant(tenant).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_tenant_is_refused() {
        let policy = Tenants {
            blocked: vec!["acme".to_owned()],
        };
        let facts = |tenant: &str| Facts {
            headers: vec![("x-tenant".to_owned(), tenant.to_owned())],
            ..Facts::default()
        };
        assert!(matches!(policy.authorize(facts("acme")), Ok(Decision::Deny(_))));
        assert!(matches!(policy.authorize(facts("umbrella")), Ok(Decision::Allow(_))));
        assert!(matches!(policy.authorize(facts("")), Err(Fault::Invalid(_))));
    }
}
