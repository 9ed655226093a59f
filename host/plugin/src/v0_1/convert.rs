//! Between the types of version 0.1 and the host's own: the one place that knows what was different then.

use super::bindings::imports::mortise::plugin::types;
use super::bindings::policy::exports::mortise::plugin::policy;
pub(crate) use super::unchanged::*;
use crate::{Allowance, Decision, Facts, Fault, ToolGrant, UsageReport};

pub(crate) fn fault(fault: types::Fault) -> Fault {
    match fault {
        types::Fault::Invalid(text) => Fault::Invalid(text),
        types::Fault::Unsupported(text) => Fault::Unsupported(text),
        types::Fault::Internal(text) => Fault::Internal(text),
    }
}

/// Policies of that time hear of no tools.
pub(crate) fn facts(facts: Facts) -> policy::Facts {
    policy::Facts {
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

pub(crate) fn usage(usage: UsageReport) -> policy::Usage {
    policy::Usage {
        request_id: usage.request_id,
        lease: usage.lease,
        subject: usage.subject,
        model: usage.model,
        prompt_tokens: usage.prompt_tokens,
        cached_tokens: usage.cached_tokens,
        completion_tokens: usage.completion_tokens,
        finish: finish(usage.finish),
        wall_ms: usage.wall_ms,
    }
}

/// And have no say in them: what such a policy allows may use all.
pub(crate) fn decision(decision: policy::Decision) -> Decision {
    match decision {
        policy::Decision::Abstain => Decision::Abstain,
        policy::Decision::Deny(deny) => Decision::Deny(denial(deny)),
        policy::Decision::Allow(allow) => Decision::Allow(Allowance {
            principal: principal(allow.principal),
            priority: allow.priority,
            max_tokens: allow.max_tokens,
            tools: ToolGrant::All,
            server_tools: ToolGrant::All,
            headers: allow.headers,
            lease: allow.lease,
        }),
    }
}
