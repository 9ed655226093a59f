//! Models that a caller may use. Lists and hints in errors show no others.

use std::sync::Arc;

use mortise_plugin::{Decision, Facts};

use crate::admission::{Call, Policies, facts, routing_key};
use crate::error::ServiceError;
use crate::model::ServedModel;
use crate::service::Service;

/// Statuses of a refusal that concerns the model. Others, such as that of a limit that is used up, pass.
const HIDING: [u16; 2] = [403, 404];

impl Service {
    /// The models that a caller is shown, in the order of the configuration. The policies are asked about each of
    /// them, and nothing is taken for that.
    pub async fn permitted(&self, call: &Call) -> Vec<Arc<ServedModel>> {
        let mut shown = Vec::new();
        for model in self.models() {
            if !model.listing.hidden && self.permits(call, &model.listing.name).await {
                shown.push(model);
            }
        }
        shown
    }

    /// The model that a caller means by `name`.
    ///
    /// # Errors
    /// When there is none; the error names those that the caller may use.
    pub async fn model_for(
        &self,
        call: &Call,
        name: &str,
    ) -> Result<Arc<ServedModel>, ServiceError> {
        match self.model(name) {
            Ok(model) => Ok(model),
            Err(error) => Err(self.discreet(call, error).await),
        }
    }

    /// An error that names no model which the caller may not use.
    pub(crate) async fn discreet(&self, call: &Call, error: ServiceError) -> ServiceError {
        match error {
            ServiceError::ModelNotFound { model, .. } => {
                let shown = self.permitted(call).await;
                let names = shown.iter().map(|model| model.listing.name.clone());
                let available = names.collect();
                ServiceError::ModelNotFound { model, available }
            }
            other => other,
        }
    }

    async fn permits(&self, call: &Call, model: &str) -> bool {
        let facts = facts(call, Some(model), false, None);
        self.serving().policies.show(call, &facts).await
    }
}

impl Policies {
    /// Whether a caller may know of the model that the facts name. As for the decision, the policies that are bound
    /// to no tenant are asked in turn, then those of the tenant. One that cannot be asked twice hides nothing; one
    /// that fails and is required hides the model.
    async fn show(&self, call: &Call, facts: &Facts) -> bool {
        if call.granted.is_some() {
            return true;
        }
        let mut tenant = None;
        let key = routing_key(facts, None);
        let free = self.chain.iter().filter(|policy| !policy.is_by_tenant());
        for policy in free.filter(|policy| policy.concerns(&key)) {
            match policy.identify(&call.request_id, facts.clone()).await {
                Ok(Some(Decision::Abstain)) => {}
                Ok(Some(Decision::Deny(denial))) => return !HIDING.contains(&denial.status),
                Ok(Some(Decision::Allow(allowance))) => {
                    tenant = allowance.principal.tenant;
                    break;
                }
                Ok(None) => return true,
                Err(error) if !policy.is_required() && !error.fault.is_callers() => {}
                Err(_) => return false,
            }
        }
        let key = routing_key(facts, tenant.as_deref());
        let bound = self.chain.iter().filter(|policy| policy.is_by_tenant());
        for policy in bound.filter(|policy| policy.concerns(&key)) {
            match policy.identify(&call.request_id, facts.clone()).await {
                Ok(Some(Decision::Deny(denial))) if HIDING.contains(&denial.status) => {
                    return false;
                }
                Err(error) if policy.is_required() || error.fault.is_callers() => return false,
                _ => {}
            }
        }
        true
    }
}
