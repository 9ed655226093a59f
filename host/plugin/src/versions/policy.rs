//! Policies, whose types differ from version to version: functions of each, and the conversions between its types
//! and the host's own.

use wasmtime::Store;
use wasmtime::component::{InstancePre, TypedFunc};

use super::bindings::v0_1::mortise::plugin::{policy as v0_1, types as types_v0_1};
use super::bindings::v0_2::mortise::plugin::policy as v0_2;
use super::bindings::v0_3::mortise::plugin::{policy as v0_3, quotas};
use super::convert;
use super::exports::exports;
use super::functions::{Fallible, Functions, KindFunctions};
use crate::call::GuestResult;
use crate::instance::Exports;
use crate::kind::ContractVersion;
use crate::state::StoreData;
use crate::{
    Allowance, CallerQuota, Decision, Denial, Facts, Fault, Finish, Kind, Principal, QuotaCaller,
    QuotaUnit, Rate, Rewrite, SystemPlace, ToolGrant, UsageReport,
};

exports!(
    /// Functions of `policy`.
    PolicyExports: Policy {
        authorize: Authorize = authorize("authorize"),
        account: Account = account("account"),
        quotas: Option<DescribeQuotas> = optional("quotas#describe"),
    }
);

/// `quotas.describe`, of components that have it.
pub(crate) type DescribeQuotas =
    TypedFunc<(quotas::Caller,), (Result<Option<Vec<quotas::Quota>>, String>,)>;

/// Limits that a policy tells of a caller; `None` if it tells none.
pub(crate) async fn quotas_of(
    function: &DescribeQuotas,
    store: &mut Store<StoreData>,
    caller: &QuotaCaller,
) -> GuestResult<Option<Vec<CallerQuota>>> {
    let caller = quotas::Caller {
        id: caller.id.clone(),
        kind: caller.kind.to_owned(),
        tenant: caller.tenant.clone(),
        terms: caller.terms.clone(),
    };
    let (said,) = function.call_async(store, (caller,)).await?;
    let quota = |quota: quotas::Quota| CallerQuota {
        name: quota.name,
        unit: match quota.unit {
            quotas::Unit::Requests => QuotaUnit::Requests,
            quotas::Unit::Tokens => QuotaUnit::Tokens,
            quotas::Unit::Answers => QuotaUnit::Answers,
            quotas::Unit::Other => QuotaUnit::Other,
        },
        shared_by: quota.shared_by,
        bucket: quota.bucket,
        rate: Rate {
            capacity: quota.capacity,
            period_ms: quota.period_ms,
        },
    };
    let said = said.map(|quotas| quotas.map(|quotas| quotas.into_iter().map(quota).collect()));
    Ok(said.map_err(Fault::Unsupported))
}

impl Functions<'_> {
    fn authorize(&mut self, name: &str) -> wasmtime::Result<Authorize> {
        Ok(match self.contract() {
            ContractVersion::V0_1 => Authorize::V0_1(self.typed(name)?),
            ContractVersion::V0_2 => Authorize::V0_2(self.fallible(name)?),
            ContractVersion::V0_3 => Authorize::V0_3(self.fallible(name)?),
        })
    }

    fn account(&mut self, name: &str) -> wasmtime::Result<Account> {
        Ok(match self.contract() {
            ContractVersion::V0_1 => Account::V0_1(self.typed(name)?),
            // They are alike.
            ContractVersion::V0_2 | ContractVersion::V0_3 => {
                Account::Since0_2(self.fallible(name)?)
            }
        })
    }
}

/// `policy.authorize`
pub(crate) enum Authorize {
    V0_1(TypedFunc<(v0_1::Facts,), (Result<v0_1::Decision, types_v0_1::Fault>,)>),
    V0_2(Fallible<(v0_3::Facts,), v0_2::Decision>),
    V0_3(Fallible<(v0_3::Facts,), v0_3::Decision>),
}

impl Authorize {
    pub(crate) async fn call(
        &self,
        store: &mut Store<StoreData>,
        facts: Facts,
    ) -> GuestResult<Decision> {
        Ok(match self {
            Self::V0_1(function) => {
                let (said,) = function.call_async(store, (facts_of_v0_1(facts),)).await?;
                said.map(decision_of_v0_1).map_err(Fault::from)
            }
            Self::V0_2(function) => {
                let said = function.call(store, (facts_of(facts),)).await?;
                said.map(decision_of_v0_2)
            }
            Self::V0_3(function) => {
                let said = function.call(store, (facts_of(facts),)).await?;
                said.map(decision_of)
            }
        })
    }
}

/// `policy.account`
pub(crate) enum Account {
    V0_1(TypedFunc<(v0_1::Usage,), (Result<(), types_v0_1::Fault>,)>),
    Since0_2(Fallible<(v0_3::Usage,), ()>),
}

impl Account {
    pub(crate) async fn call(
        &self,
        store: &mut Store<StoreData>,
        usage: UsageReport,
    ) -> GuestResult<()> {
        match self {
            Self::V0_1(function) => {
                let (said,) = function.call_async(store, (usage_of_v0_1(usage),)).await?;
                Ok(said.map_err(Fault::from))
            }
            Self::Since0_2(function) => function.call(store, (usage_of(usage),)).await,
        }
    }
}

fn facts_of(facts: Facts) -> v0_3::Facts {
    v0_3::Facts {
        request_id: facts.request_id,
        route: facts.route,
        method: facts.method,
        peer: facts.peer,
        headers: facts.headers,
        model: facts.model,
        streaming: facts.streaming,
        max_tokens: facts.max_tokens,
        tools: facts.tools,
        server_tools: facts.server_tools,
    }
}

/// Policies of that time hear of no tools.
fn facts_of_v0_1(facts: Facts) -> v0_1::Facts {
    v0_1::Facts {
        request_id: facts.request_id,
        route: facts.route,
        method: facts.method,
        peer: facts.peer,
        headers: facts.headers,
        model: facts.model,
        streaming: facts.streaming,
        max_tokens: facts.max_tokens,
    }
}

fn usage_of(usage: UsageReport) -> v0_3::Usage {
    v0_3::Usage {
        request_id: usage.request_id,
        lease: usage.lease,
        subject: usage.subject,
        tenant: usage.tenant,
        model: usage.model,
        prompt_tokens: usage.prompt_tokens,
        cached_tokens: usage.cached_tokens,
        completion_tokens: usage.completion_tokens,
        finish: convert::finish(usage.finish),
        wall_ms: usage.wall_ms,
    }
}

fn usage_of_v0_1(usage: UsageReport) -> v0_1::Usage {
    v0_1::Usage {
        request_id: usage.request_id,
        lease: usage.lease,
        subject: usage.subject,
        model: usage.model,
        prompt_tokens: usage.prompt_tokens,
        cached_tokens: usage.cached_tokens,
        completion_tokens: usage.completion_tokens,
        finish: match usage.finish {
            Finish::Stop => types_v0_1::Finish::Stop,
            Finish::Length => types_v0_1::Finish::Length,
            Finish::Cancelled => types_v0_1::Finish::Cancelled,
            Finish::Error => types_v0_1::Finish::Error,
        },
        wall_ms: usage.wall_ms,
    }
}

/// Conversion of a decision, of which all versions have a principal and a refusal alike.
macro_rules! decision {
    ($name:ident, $version:ident, |$allow:ident| $further:expr) => {
        fn $name(decision: $version::Decision) -> Decision {
            match decision {
                $version::Decision::Abstain => Decision::Abstain,
                $version::Decision::Deny(deny) => Decision::Deny(Denial {
                    status: deny.status,
                    kind: deny.kind,
                    code: deny.code,
                    message: deny.message,
                    retry_after_ms: deny.retry_after_ms,
                    headers: deny.headers,
                }),
                $version::Decision::Allow($allow) => {
                    let (tools, server_tools, rewrites) = $further;
                    Decision::Allow(Allowance {
                        principal: Principal {
                            subject: $allow.principal.subject,
                            tenant: $allow.principal.tenant,
                            labels: $allow.principal.labels,
                        },
                        priority: $allow.priority,
                        max_tokens: $allow.max_tokens,
                        tools,
                        server_tools,
                        headers: $allow.headers,
                        lease: $allow.lease,
                        rewrites,
                    })
                }
            }
        }
    };
}

// And have no say in them: what such a policy allows may use all.
decision!(decision_of_v0_1, v0_1, |allow| {
    (ToolGrant::All, ToolGrant::All, Vec::new())
});
decision!(decision_of_v0_2, v0_2, |allow| {
    let grant = |grant: v0_2::ToolGrant| match grant {
        v0_2::ToolGrant::All => ToolGrant::All,
        v0_2::ToolGrant::Only(names) => ToolGrant::Only(names),
        v0_2::ToolGrant::AllBut(names) => ToolGrant::AllBut(names),
    };
    (grant(allow.tools), grant(allow.server_tools), Vec::new())
});
decision!(decision_of, v0_3, |allow| {
    let grant = |grant: v0_3::ToolGrant| match grant {
        v0_3::ToolGrant::All => ToolGrant::All,
        v0_3::ToolGrant::Only(names) => ToolGrant::Only(names),
        v0_3::ToolGrant::AllBut(names) => ToolGrant::AllBut(names),
    };
    let rewrites = allow.rewrites.into_iter().map(rewrite).collect();
    (grant(allow.tools), grant(allow.server_tools), rewrites)
});

fn rewrite(rewrite: v0_3::Rewrite) -> Rewrite {
    match rewrite {
        v0_3::Rewrite::System(prompt) => Rewrite::System {
            text: prompt.text,
            place: match prompt.place {
                v0_3::SystemPlace::IfAbsent => SystemPlace::IfAbsent,
                v0_3::SystemPlace::Before => SystemPlace::Before,
                v0_3::SystemPlace::Instead => SystemPlace::Instead,
            },
        },
        v0_3::Rewrite::MaxTokens(limit) => Rewrite::MaxTokens(limit),
        v0_3::Rewrite::Model(name) => Rewrite::Model(name),
        v0_3::Rewrite::Temperature(value) => Rewrite::Temperature(value),
    }
}
