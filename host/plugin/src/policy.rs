//! Decisions of a plugin on requests.

use std::sync::atomic::Ordering;

use crate::attribution::{self, Control, attribute, attribute_to_plugin};
use crate::handle::kind_handle;
use crate::headers::CredentialHandle;
use crate::policy_headers as headers;
use crate::quotas;
use crate::state::{Grants, StoreData, escape};
use crate::versions::{PolicyExports, quotas_of};
use crate::{
    CallContext, CallerQuota, Decision, Facts, Fault, PluginError, QuotaCaller, QuotaUse,
    QuotasUntold, Rate, Rewrite, UsageReport,
};

/// Longest text of a header, subject or label that a policy may give.
const MAX_TEXT_BYTES: usize = 1024;

/// Longest message of a refusal, and longest lease.
const MAX_MESSAGE_BYTES: usize = 8 << 10;

/// Bytes of facts up to which a policy has no reason to take more than it may: several times what clients send.
const ORDINARY_FACTS_BYTES: usize = 8 << 10;

/// Labels that a policy may give.
const MAX_LABELS: usize = 32;

/// Longest system prompt that a policy may give.
const MAX_SYSTEM_BYTES: usize = 64 << 10;

/// Names that a grant of tools may list: several times what a request can declare.
const MAX_TOOL_NAMES: usize = 1024;

kind_handle!(
    /// A policy with its settings.
    Policy,
    PolicyExports
);

impl Policy {
    /// Ask whether a request may be served.
    ///
    /// # Errors
    /// When the facts take more than the plugin may use, or it fails. The caller must not take that for consent.
    pub async fn authorize(
        &self,
        context: &CallContext,
        facts: Facts,
    ) -> Result<Decision, PluginError> {
        let (facts, handles) = self.granted(facts);
        let control = Controlled::of(&facts);
        match self.authorize_once(context, facts, handles).await {
            Err(error) => Err(self.attribute(context, error, control).await),
            decision => decision,
        }
    }

    async fn authorize_once(
        &self,
        context: &CallContext,
        facts: Facts,
        handles: Vec<CredentialHandle>,
    ) -> Result<Decision, PluginError> {
        self.handle
            .call(
                context,
                "policy.authorize",
                self.handle.deadlines().authorize_ms,
                async |exports, store| {
                    store.data_mut().call.handles = handles;
                    exports.authorize.call(store, facts).await
                },
                |decision, state| {
                    check_counters(state)?;
                    check(&decision, &state.grants.rewrites).map_err(Fault::InvalidResult)?;
                    Ok(with_passed_headers(decision, &state.grants))
                },
            )
            .await
    }

    /// Ask what the decision on a request would be by what is known before its body. Nothing is taken from the
    /// ledger for it. `None` for a policy that may ask other services, which would be asked twice.
    ///
    /// # Errors
    /// As [`Self::authorize`].
    pub async fn identify(
        &self,
        context: &CallContext,
        facts: Facts,
    ) -> Result<Option<Decision>, PluginError> {
        if !self.handle.pool().grants().http.grant().origins.is_empty() {
            return Ok(None);
        }
        let (facts, handles) = self.granted(facts);
        let control = Controlled::of(&facts);
        match self.identify_once(context, facts, handles).await {
            Err(error) => Err(self.attribute(context, error, control).await),
            decision => decision.map(Some),
        }
    }

    /// Attribute the excess of a call: to large facts, if the plugin does well with small ones, and
    /// else to the plugin. The control call takes nothing from the ledger.
    async fn attribute(
        &self,
        context: &CallContext,
        error: PluginError,
        control: Option<Controlled>,
    ) -> PluginError {
        let pool = self.handle.pool();
        let Some(Controlled(smallest)) = control else {
            return attribute_to_plugin(pool, error);
        };
        let called = self.identify_once(context, smallest, Vec::new());
        let control = async { Control::of(&called.await) };
        attribute(pool, error, to_caller, control).await
    }

    async fn identify_once(
        &self,
        context: &CallContext,
        facts: Facts,
        handles: Vec<CredentialHandle>,
    ) -> Result<Decision, PluginError> {
        self.handle
            .call(
                context,
                "policy.identify",
                self.handle.deadlines().authorize_ms,
                async |exports, store| {
                    store.data_mut().call.takes_nothing = true;
                    store.data_mut().call.handles = handles;
                    exports.authorize.call(store, facts).await
                },
                |decision, state| {
                    check_counters(state)?;
                    check(&decision, &state.grants.rewrites).map_err(Fault::InvalidResult)?;
                    Ok(with_passed_headers(decision, &state.grants))
                },
            )
            .await
    }

    /// The facts with the headers that the binding is granted, and the handles of credentials among them.
    fn granted(&self, facts: Facts) -> (Facts, Vec<CredentialHandle>) {
        let grants = self.handle.pool().grants();
        let (facts, handles) = grants.headers.apply(facts);
        let told = handles.is_empty() || grants.component.is_embedded();
        if !told && !grants.told_of_handles.swap(true, Ordering::Relaxed) {
            tracing::info!(
                target: "mortise::plugin",
                plugin = grants.component.name(),
                version = grants.component.version(),
                "the policy gets a handle in place of each credential; where it must see one, name the header \
                 in `headers` of its binding, such as headers = [\"*\", \"authorization\"]"
            );
        }
        (facts, handles)
    }

    /// Limits that requests of a caller count against, with how much of each is used. Nothing is taken from the ledger, and
    /// no HTTP request is sent.
    ///
    /// # Errors
    /// When the policy does not tell them, or the counters cannot be reached.
    pub async fn quotas(
        &self,
        context: &CallContext,
        caller: &QuotaCaller,
    ) -> Result<Vec<QuotaUse>, QuotasUntold> {
        let grants = self.handle.pool().grants();
        if !grants.component.exports_interface("quotas") {
            return Err(QuotasUntold::NotExported);
        }
        if grants.quotas_rest.lasts() {
            return Err(QuotasUntold::FailedLately);
        }
        let told = self
            .handle
            .call(
                context,
                "quotas.describe",
                self.handle.deadlines().authorize_ms,
                async |exports, store| {
                    let Some(function) = &exports.quotas else {
                        return Ok(Ok(None));
                    };
                    let call = &mut store.data_mut().call;
                    (call.takes_nothing, call.sends_nothing) = (true, true);
                    quotas_of(function, store, caller).await
                },
                |told: Option<Vec<CallerQuota>>, _| {
                    quotas::check(told.as_deref().unwrap_or_default())?;
                    Ok(told)
                },
            )
            .await;
        let quotas = match told {
            Ok(told) => told.ok_or(QuotasUntold::NotTold)?,
            Err(error) => {
                if error.fault.is_breakdown() {
                    grants.quotas_rest.begin();
                }
                return Err(QuotasUntold::Failed(Box::new(error)));
            }
        };
        let buckets = quotas
            .iter()
            .map(|quota| (quota.bucket.clone(), quota.rate));
        let buckets: Vec<(String, Rate)> = buckets.collect();
        let levels = grants.ledger.levels(&buckets).await?;
        let used = quotas.into_iter().zip(levels);
        Ok(used
            .map(|(quota, level)| QuotaUse { quota, level })
            .collect())
    }

    /// Report the usage of a request that has ended.
    ///
    /// # Errors
    /// When the plugin fails.
    pub async fn account(
        &self,
        context: &CallContext,
        usage: UsageReport,
    ) -> Result<(), PluginError> {
        self.handle
            .call(
                context,
                "policy.account",
                self.handle.deadlines().account_ms,
                async |exports, store| exports.account.call(store, usage).await,
                |(), _| Ok(()),
            )
            .await
    }
}

/// Facts of a control call: those of the request without what its caller can make large.
struct Controlled(Facts);

impl Controlled {
    /// `None` where the facts are ordinary.
    fn of(facts: &Facts) -> Option<Self> {
        let headers = facts.headers.iter();
        let headers = headers.map(|(name, value)| name.len() + value.len());
        let names = facts.tools.iter().chain(&facts.server_tools);
        let names = names.chain(&facts.model).map(String::len);
        if headers.chain(names).sum::<usize>() <= ORDINARY_FACTS_BYTES {
            return None;
        }
        Some(Self(Facts {
            request_id: facts.request_id.clone(),
            route: facts.route.clone(),
            method: facts.method.clone(),
            peer: facts.peer.clone(),
            ..Facts::default()
        }))
    }
}

fn to_caller(fault: Fault) -> Fault {
    attribution::too_complex(fault, "send fewer or shorter headers and names of tools")
}

/// The decision with the headers that are passed on; the others are left out, and logged once.
fn with_passed_headers(mut decision: Decision, grants: &Grants) -> Decision {
    let dropped = match &mut decision {
        Decision::Abstain => Vec::new(),
        Decision::Allow(allow) => {
            headers::retain(&mut allow.headers, headers::DecisionKind::Allowed)
        }
        Decision::Deny(deny) => headers::retain(&mut deny.headers, headers::DecisionKind::Denied),
    };
    if let Some(name) = dropped.first()
        && !grants.told_of_headers.swap(true, Ordering::Relaxed)
    {
        tracing::warn!(target: "mortise::plugin", plugin = grants.component.name(),
            version = grants.component.version(), header = %escape(name),
            "a policy gave a response header that is not passed on; it may give `x-…` and \
             `ratelimit-…`, and `www-authenticate` where it denies (further ones are not logged)");
    }
    decision
}

/// A decision by counters that cannot be reached is none.
fn check_counters(state: &StoreData) -> Result<(), Fault> {
    match state.call.counters_lost {
        true => Err(Fault::CountersLost),
        false => Ok(()),
    }
}

/// A decision becomes a status line, headers and log fields: nothing in it may break those.
fn check(decision: &Decision, granted: &[String]) -> Result<(), String> {
    match decision {
        Decision::Abstain => Ok(()),
        Decision::Allow(allow) => {
            check_text("subject", &allow.principal.subject)?;
            if allow.principal.subject.is_empty() {
                return Err("allowed a request without naming a subject".to_owned());
            }
            check_text(
                "tenant",
                allow.principal.tenant.as_deref().unwrap_or_default(),
            )?;
            check_labels(&allow.principal.labels)?;
            check_names("tools", allow.tools.names())?;
            check_names("server tools", allow.server_tools.names())?;
            check_length("lease", allow.lease.as_deref().unwrap_or_default())?;
            check_rewrites(&allow.rewrites, granted)?;
            headers::check(&allow.headers)
        }
        Decision::Deny(deny) => {
            if !(400..=499).contains(&deny.status) {
                return Err(format!(
                    "denied with status {}, not one of 400 to 499",
                    deny.status
                ));
            }
            check_text("kind", &deny.kind)?;
            check_text("code", &deny.code)?;
            check_length("message", &deny.message)?;
            headers::check(&deny.headers)
        }
    }
}

/// A policy changes what the operator lets it change, and each thing once.
fn check_rewrites(rewrites: &[Rewrite], granted: &[String]) -> Result<(), String> {
    for (at, rewrite) in rewrites.iter().enumerate() {
        let name = rewrite.name();
        if !granted.iter().any(|known| known == name) {
            return Err(format!(
                "asked for the rewrite `{name}`, which `rewrite` of its binding does not grant"
            ));
        }
        if rewrites.iter().take(at).any(|other| other.name() == name) {
            return Err(format!("asked for the rewrite `{name}` twice"));
        }
        match rewrite {
            Rewrite::System { text, .. } if text.len() > MAX_SYSTEM_BYTES => {
                return Err(format!(
                    "gave a system prompt of {} bytes, of at most {MAX_SYSTEM_BYTES}",
                    text.len()
                ));
            }
            Rewrite::Model(name) => check_text("the model of a rewrite", name)?,
            Rewrite::MaxTokens(0) => {
                return Err("asked for the rewrite `max_tokens` with 0 tokens".to_owned());
            }
            Rewrite::Temperature(value) if !(0.0..=2.0).contains(value) => {
                return Err(format!(
                    "asked for the rewrite `temperature` with {value}, not 0 to 2"
                ));
            }
            Rewrite::System { .. } | Rewrite::MaxTokens(_) | Rewrite::Temperature(_) => {}
        }
    }
    Ok(())
}

fn check_labels(labels: &[(String, String)]) -> Result<(), String> {
    if labels.len() > MAX_LABELS {
        return Err(format!(
            "gave {} labels of at most {MAX_LABELS}",
            labels.len()
        ));
    }
    labels.iter().try_for_each(|(name, value)| {
        check_text("labels", name)?;
        check_text("labels", value)
    })
}

fn check_names(what: &str, names: &[String]) -> Result<(), String> {
    if names.len() > MAX_TOOL_NAMES {
        return Err(format!(
            "named {} {what} of at most {MAX_TOOL_NAMES}",
            names.len()
        ));
    }
    names.iter().try_for_each(|name| check_text(what, name))
}

/// Text that goes into a JSON body or back to the policy may hold any character, in bounds.
fn check_length(what: &str, text: &str) -> Result<(), String> {
    match text.len() {
        0..=MAX_MESSAGE_BYTES => Ok(()),
        bytes => Err(format!(
            "gave a {what} of {bytes} bytes, of at most {MAX_MESSAGE_BYTES}"
        )),
    }
}

fn check_text(what: &str, text: &str) -> Result<(), String> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(format!(
            "gave a text of {} bytes in {what}, of at most {MAX_TEXT_BYTES}",
            text.len()
        ));
    }
    if text.chars().any(char::is_control) {
        return Err(format!("gave a control character in {what}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Allowance, Denial, Principal, SystemPlace};

    fn deny(status: u16) -> Denial {
        Denial {
            status,
            kind: "k".to_owned(),
            code: "c".to_owned(),
            message: "m\nof two lines".to_owned(),
            retry_after_ms: None,
            headers: vec![("www-authenticate".to_owned(), "Bearer".to_owned())],
        }
    }

    fn allow(subject: &str) -> Allowance {
        Allowance {
            principal: Principal {
                subject: subject.to_owned(),
                ..Principal::default()
            },
            ..Allowance::default()
        }
    }

    #[test]
    fn sound_decisions_pass() {
        assert_eq!(check(&Decision::Abstain, &[]), Ok(()));
        assert_eq!(check(&Decision::Allow(allow("alice")), &[]), Ok(()));
        for status in [400, 401, 429, 499] {
            assert_eq!(check(&Decision::Deny(deny(status)), &[]), Ok(()));
        }
    }

    #[test]
    fn a_denial_is_the_callers_fault_only() {
        for status in [0, 200, 302, 399, 500, 503, 999] {
            let message = check(&Decision::Deny(deny(status)), &[]).unwrap_err();
            assert!(message.contains(&status.to_string()), "{message}");
        }
    }

    #[test]
    fn messages_and_leases_are_bounded() {
        let long = "m".repeat(MAX_MESSAGE_BYTES + 1);
        let mut denial = deny(401);
        denial.message = long.clone();
        assert!(check(&Decision::Deny(denial), &[]).is_err());
        let mut allowance = allow("alice");
        allowance.lease = Some(long);
        assert!(check(&Decision::Allow(allowance), &[]).is_err());
    }

    #[test]
    fn principals_are_fit_for_logs() {
        assert!(check(&Decision::Allow(allow("")), &[]).is_err());
        assert!(check(&Decision::Allow(allow("a\nb")), &[]).is_err());
        assert!(check(&Decision::Allow(allow(&"a".repeat(2000))), &[]).is_err());
    }

    #[test]
    fn only_granted_rewrites_are_made_and_each_once() {
        let asked = |rewrites: &[Rewrite], granted: &[&str]| {
            let granted: Vec<String> = granted.iter().map(|name| (*name).to_owned()).collect();
            let allowance = Allowance {
                rewrites: rewrites.to_vec(),
                ..allow("alice")
            };
            check(&Decision::Allow(allowance), &granted)
        };
        let model = Rewrite::Model("small".to_owned());
        let limit = Rewrite::MaxTokens(7);
        let both = [model.clone(), limit.clone()];
        assert_eq!(asked(&both, &["max_tokens", "model"]), Ok(()));
        let message = asked(&both, &["model"]).unwrap_err();
        assert!(message.contains("`max_tokens`"), "{message}");
        let message = asked(&[limit.clone(), limit], &["max_tokens"]).unwrap_err();
        assert!(message.contains("twice"), "{message}");
        let all = Rewrite::NAMES;
        for wrong in [
            Rewrite::MaxTokens(0),
            Rewrite::Temperature(f32::NAN),
            Rewrite::Temperature(2.5),
            Rewrite::Model("a\nb".to_owned()),
            Rewrite::System {
                text: "x".repeat(MAX_SYSTEM_BYTES + 1),
                place: SystemPlace::Before,
            },
        ] {
            assert!(
                asked(std::slice::from_ref(&wrong), &all).is_err(),
                "{wrong:?}"
            );
        }
    }
}
