//! The WIT world `policy-plugin` over [`crate::decide`].

use std::sync::OnceLock;

use crate::decide::{self, Decision, Facts, Unit, Verdict, Withdrawal};
use crate::settings::Settings;

#[allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    clippy::all,
    reason = "generated from wit/v0.3"
)]
mod bindings {
    wit_bindgen::generate!({
        path: "../../wit/v0.3",
        inline: "
            package mortise:policy;
            world policy-with-quotas {
                include mortise:plugin/policy-plugin@0.3.0;
                export mortise:plugin/quotas@0.3.0;
            }
        ",
        world: "mortise:policy/policy-with-quotas",
        generate_all,
    });
    use super::Plugin;
    export!(Plugin);
}

use bindings::exports::mortise::plugin::{lifecycle, policy, quotas};
use bindings::mortise::plugin::types::Fault;
use bindings::mortise::plugin::{clock, ledger, secrets, settings};

/// Settings that `prepare` read. An instance serves one binding and has one thread.
static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// The schema of the settings: the host tells a misspelt one by its line.
#[used]
#[allow(
    unsafe_code,
    reason = "a section of the component, which no code reads"
)]
#[unsafe(link_section = "mortise:settings-schema")]
static SCHEMA: [u8; include_bytes!("../settings.schema.json").len()] =
    *include_bytes!("../settings.schema.json");

struct Plugin;

struct Imports;

impl decide::Host for Imports {
    fn take_all(&self, withdrawals: &[Withdrawal<'_>]) -> Vec<Verdict> {
        let withdrawals = withdrawals.iter().map(|one| ledger::Withdrawal {
            bucket: one.bucket.to_owned(),
            cost: one.cost,
            capacity: one.capacity,
            period_ms: one.period_ms,
        });
        let withdrawals: Vec<_> = withdrawals.collect();
        let verdicts = ledger::take_all(&withdrawals).into_iter();
        let verdicts = verdicts.map(|verdict| Verdict {
            allowed: verdict.allowed,
            remaining: verdict.remaining,
            retry_after_ms: verdict.retry_after_ms,
        });
        verdicts.collect()
    }

    fn adjust(&self, bucket: &str, delta: i64, capacity: u64, period_ms: u64) {
        ledger::adjust(bucket, delta, capacity, period_ms);
    }

    fn find_secret(&self, candidate: &str) -> Option<String> {
        secrets::find(candidate)
    }

    fn now_ms(&self) -> u64 {
        clock::unix_millis()
    }
}

fn prepared() -> Result<&'static Settings, Fault> {
    SETTINGS
        .get()
        .ok_or_else(|| Fault::Internal("a call arrived before `prepare`".to_owned()))
}

fn grant(denied: Vec<String>) -> policy::ToolGrant {
    match denied.is_empty() {
        true => policy::ToolGrant::All,
        false => policy::ToolGrant::AllBut(denied),
    }
}

impl lifecycle::Guest for Plugin {
    fn prepare() -> Result<(), Fault> {
        let read =
            Settings::parse(&settings::get()).map_err(|error| Fault::Invalid(error.to_string()))?;
        SETTINGS
            .set(read)
            .map_err(|_| Fault::Internal("`prepare` was called twice".to_owned()))
    }
}

impl policy::Guest for Plugin {
    fn authorize(facts: policy::Facts) -> Result<policy::Decision, Fault> {
        let decision = decide::authorize(
            prepared()?,
            &Imports,
            Facts {
                route: &facts.route,
                peer: &facts.peer,
                headers: &facts.headers,
                model: facts.model.as_deref(),
                max_tokens: facts.max_tokens,
                tools: &facts.tools,
                server_tools: &facts.server_tools,
            },
        );
        Ok(match decision {
            Decision::Allow(allow) => policy::Decision::Allow(policy::Allow {
                principal: policy::Principal {
                    labels: vec![("key".to_owned(), allow.subject.clone())],
                    subject: allow.subject,
                    tenant: allow.tenant,
                },
                priority: allow.priority,
                max_tokens: allow.max_tokens,
                tools: grant(allow.denied_tools),
                server_tools: grant(allow.denied_server_tools),
                headers: allow.headers,
                lease: allow.lease,
                rewrites: Vec::new(),
            }),
            Decision::Deny(deny) => policy::Decision::Deny(policy::Deny {
                status: deny.status,
                kind: deny.kind.to_owned(),
                code: deny.code,
                message: deny.message,
                retry_after_ms: deny.retry_after_ms,
                headers: deny.headers,
            }),
        })
    }

    fn account(usage: policy::Usage) -> Result<(), Fault> {
        let tokens = u64::from(usage.prompt_tokens) + u64::from(usage.completion_tokens);
        decide::account(&Imports, usage.lease.as_deref(), tokens);
        Ok(())
    }
}

impl quotas::Guest for Plugin {
    fn describe(caller: quotas::Caller) -> Result<Option<Vec<quotas::Quota>>, String> {
        let quotas::Caller {
            id,
            kind,
            tenant,
            terms,
        } = caller;
        let settings = prepared().map_err(|fault| fault.to_string())?;
        let limits = decide::quotas(settings, kind, id, tenant, &terms)?;
        let told = limits.into_iter().map(|quota| quotas::Quota {
            name: quota.name.to_owned(),
            unit: match quota.unit {
                Unit::Requests => quotas::Unit::Requests,
                Unit::Tokens => quotas::Unit::Tokens,
                Unit::Answers => quotas::Unit::Answers,
            },
            shared_by: quota.shared_by,
            bucket: quota.bucket,
            capacity: quota.capacity,
            period_ms: quota.period_ms,
        });
        Ok(Some(told.collect()))
    }
}
