//! A policy: each tenant may make so many requests a day, told by the header `x-tenant`. The host keeps
//! the count, so it holds over all instances, swaps and faults; it refills evenly over the day.
//! Settings: `{"requests": 1000, "tenants": {"acme": 50}}`.

use std::collections::BTreeMap;

use mortise_plugin_sdk::Fault;
use mortise_plugin_sdk::policy::{Allow, Decision, Deny, Facts, Policy, ledger};
use serde::Deserialize;

mortise_plugin_sdk::export!(policy: DailyQuota, settings: "settings.schema.json");

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// The settings, which are also the whole plugin.
#[derive(Deserialize)]
struct DailyQuota {
    /// Requests a day of a tenant that is not named.
    requests: u64,
    /// Requests a day of those that are.
    #[serde(default)]
    tenants: BTreeMap<String, u64>,
}

impl Policy for DailyQuota {
    type Settings = Self;

    fn prepare(settings: Self) -> Result<Self, Fault> {
        Ok(settings)
    }

    fn authorize(&self, facts: Facts) -> Result<Decision, Fault> {
        let sane = |tenant: &&str| (1..=256).contains(&tenant.len());
        let Some(tenant) = facts.header("x-tenant").filter(sane) else {
            let message = "say in the header `x-tenant`, in 256 bytes at most, whom you belong to";
            return Ok(Deny::new(401, "authentication_error", "no_tenant", message).into());
        };
        let requests = *self.tenants.get(tenant).unwrap_or(&self.requests);
        let verdict = ledger::take(&format!("requests/{tenant}"), 1, requests, DAY_MS);
        if verdict.allowed {
            return Ok(Allow::subject(tenant).tenant(tenant).into());
        }
        let message = format!("`{tenant}` has made its {requests} requests of today");
        let mut deny = Deny::new(429, "rate_limit_error", "daily_quota", message);
        deny.retry_after_ms = Some(verdict.retry_after_ms);
        Ok(deny.into())
    }
}
