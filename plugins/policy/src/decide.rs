//! Decision on one request, and settlement of its reservation when it has ended.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::address;
use crate::caller::{self, Caller, forbidden};
use crate::glob;
use crate::rates;
use crate::settings::{Settings, Terms};
pub use crate::wit::{Allow, Decision, Deny, Facts, Host, Quota, Unit, Verdict, Withdrawal};

/// Decide on a request.
pub fn authorize(settings: &Settings, host: &impl Host, facts: Facts<'_>) -> Decision {
    match decide(settings, host, facts) {
        Ok(allow) => Decision::Allow(allow),
        Err(deny) => Decision::Deny(deny),
    }
}

fn decide(settings: &Settings, host: &impl Host, facts: Facts<'_>) -> Result<Allow, Deny> {
    let client = address::client(settings, facts.peer, facts.headers);
    check_address(settings, client)?;
    if any(&settings.public_routes, facts.route) {
        return Ok(Allow {
            subject: "anonymous".to_owned(),
            tenant: None,
            priority: 0,
            max_tokens: None,
            denied_tools: Vec::new(),
            denied_server_tools: Vec::new(),
            headers: Vec::new(),
            lease: None,
        });
    }
    let caller = caller::recognise(settings, host, facts, client)?;
    check_scope(settings, &caller, facts)?;
    let taken = rates::take(settings, host, &caller, facts)?;
    Ok(Allow {
        denied_tools: denied(&caller.limits.tools, facts.tools),
        denied_server_tools: denied(&caller.limits.server_tools, facts.server_tools),
        subject: caller.subject,
        tenant: caller.tenant,
        priority: caller.limits.priority,
        max_tokens: caller.limits.max_tokens,
        headers: taken.headers,
        lease: taken.lease,
    })
}

/// Settle the reservation of a finished request: charge what it used beyond, or give back what it did not.
pub fn account(host: &impl Host, lease: Option<&str>, tokens: u64) {
    if let Some(lease) = lease {
        rates::settle(host, lease, tokens);
    }
}

/// Limits that requests of a caller count against, by its kind, id, tenant and terms as the host tells them.
///
/// # Errors
/// When the terms cannot be read; the text says why.
pub fn quotas(
    settings: &Settings,
    kind: String,
    id: String,
    tenant: Option<String>,
    terms: &str,
) -> Result<Vec<Quota>, String> {
    let unreadable =
        |problem: String| format!("the terms of this caller cannot be read: {problem}");
    let terms: Terms =
        serde_json::from_str(terms).map_err(|error| unreadable(error.to_string()))?;
    let caller = Caller::known(kind, id, tenant, terms).map_err(unreadable)?;
    Ok(rates::quotas(settings, &caller))
}

fn check_address(settings: &Settings, client: Option<IpAddr>) -> Result<(), Deny> {
    let listed =
        |networks: &[IpNet]| client.is_some_and(|client| address::within(networks, client));
    let allowed = settings.allowed_addresses.is_empty() || listed(&settings.allowed_addresses);
    if allowed && !listed(&settings.denied_addresses) {
        return Ok(());
    }
    Err(forbidden(
        "address_not_allowed",
        "this server does not answer at your address; ask its operator".to_owned(),
    ))
}

/// Refuse what the caller's scopes leave out: the route, the environment, the model.
fn check_scope(settings: &Settings, caller: &Caller, facts: Facts<'_>) -> Result<(), Deny> {
    let (subject, limits) = (&caller.subject, &caller.limits);
    if !any(&limits.routes, facts.route) {
        return Err(forbidden(
            "route_not_allowed",
            format!(
                "`{subject}` may not use this route; ask the operator of this server to allow it"
            ),
        ));
    }
    if !any(&limits.environments, &settings.environment) {
        return Err(forbidden(
            "environment_not_allowed",
            format!("`{subject}` is for another environment than this server's; use its own key"),
        ));
    }
    match facts.model {
        Some(model) if !any(&limits.models, model) => Err(forbidden(
            "model_not_allowed",
            format!(
                "`{subject}` may not use the model `{}`; ask the operator of this server to allow it",
                excerpt(model)
            ),
        )),
        _ => Ok(()),
    }
}

fn any(patterns: &[String], text: &str) -> bool {
    patterns.iter().any(|pattern| glob::matches(pattern, text))
}

/// The names that no pattern matches.
fn denied(patterns: &[String], names: &[String]) -> Vec<String> {
    names
        .iter()
        .filter(|name| !any(patterns, name))
        .cloned()
        .collect()
}

/// The start of a name that a caller chose.
fn excerpt(name: &str) -> String {
    name.chars().take(64).filter(|c| !c.is_control()).collect()
}
