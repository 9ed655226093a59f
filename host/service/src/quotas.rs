//! Limits of a caller, with how much of each is used, as the policies tell them.

use mortise_plugin::{QuotaCaller, QuotaUse, QuotasUntold};

use crate::plugins::RequestId;
use crate::service::Service;

/// Id in place of that of a request, for the log.
const NO_REQUEST: &str = "-";

/// Limits of a caller that one policy tells.
#[derive(Debug, Clone)]
pub struct PolicyQuotas {
    /// Name of the plugin.
    pub policy: String,
    /// The limits, or the reason for which they are not told.
    pub told: Result<Vec<QuotaUse>, QuotasUntold>,
}

impl Service {
    /// Limits that requests of a caller count against, by policy in the order in which these are asked. Policies that are
    /// bound to other tenants are left out. Nothing is taken for it.
    pub async fn quotas(&self, caller: &QuotaCaller) -> Vec<PolicyQuotas> {
        let serving = self.serving();
        let request = RequestId::new(NO_REQUEST);
        let tenant = caller.tenant.as_deref();
        let policies = serving.policies.chain.iter();
        let mut all = Vec::new();
        for policy in policies.filter(|policy| policy.concerns_tenant(tenant)) {
            all.push(PolicyQuotas {
                policy: policy.name().to_owned(),
                told: policy.quotas(&request, caller).await,
            });
        }
        all
    }
}
