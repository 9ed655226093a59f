//! Identity of the caller, as far as the headers of a request tell: asked before the body is read, so that a caller who
//! may not ask at all makes the server hold nothing.

use std::sync::Arc;

use mortise_plugin::{Decision, Facts};

use crate::admission::{ApiCall, Policies, account, anonymous, facts, routing_key};
use crate::error::ServiceError;
use crate::service::Service;

/// Statuses of a refusal that no body could change: the caller is unknown, or has used up a limit.
const FINAL: [u16; 2] = [401, 429];

/// A caller before its request is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// The tenant, if a policy named one.
    pub tenant: Option<String>,
    /// Account that a request counts against: of the tenant, or of a caller without one. `None` where the
    /// headers alone do not tell.
    pub account: Option<Arc<str>>,
}

impl Service {
    /// Ask the policies about a request of which the headers are known. Nothing is taken for it: the
    /// decision on the whole request follows.
    ///
    /// # Errors
    /// When the caller is refused whatever the body says, or a policy fails.
    pub async fn identify(&self, call: &ApiCall) -> Result<Identity, ServiceError> {
        let serving = self.serving();
        serving
            .policies
            .identify(call, facts(call, None, false, None))
            .await
    }
}

impl Policies {
    /// Ask the policies that are bound to no tenant in turn, as for the decision. One that cannot tell leaves
    /// all to the decision.
    async fn identify(&self, call: &ApiCall, facts: Facts) -> Result<Identity, ServiceError> {
        if let Some(granted) = &call.granted {
            return Ok(Identity {
                tenant: granted.principal.tenant.clone(),
                account: Some(account(&granted.principal)),
            });
        }
        let facts = self.recognised(call, facts).await?;
        let key = routing_key(&facts, None);
        let free = self.chain.iter().filter(|policy| !policy.is_by_tenant());
        let mut asked = false;
        for policy in free.filter(|policy| policy.concerns(&key)) {
            asked = true;
            let decision = match policy.identify(&call.request_id, facts.clone()).await {
                Ok(decision) => decision,
                // The decision meets the same, and passes over the policy or fails by it.
                Err(error) if !policy.is_required() && !error.fault.is_callers() => continue,
                Err(error) => return Err(error.into()),
            };
            match decision {
                Some(Decision::Abstain) => {}
                Some(Decision::Deny(denial)) if FINAL.contains(&denial.status) => {
                    return Err(ServiceError::Denied(denial));
                }
                Some(Decision::Allow(allowance)) => {
                    return Ok(Identity {
                        account: Some(account(&allowance.principal)),
                        tenant: allowance.principal.tenant,
                    });
                }
                Some(Decision::Deny(_)) | None => break,
            }
        }
        Ok(Identity {
            tenant: None,
            account: (!asked).then(|| account(&anonymous())),
        })
    }
}
