//! Models that a caller may use. Lists and hints in errors show no others.

use std::sync::Arc;

use mortise_models::AdapterError;
use mortise_plugin::{Decision, Facts};

use crate::admission::{ApiCall, Policies, facts, routing_key};
use crate::error::ServiceError;
use crate::model::ServedModel;
use crate::service::Service;

/// Statuses of a refusal that concerns the model. Others, such as that of a limit that is used up, pass.
const HIDING: [u16; 2] = [403, 404];

impl Service {
    /// The models that a caller is shown, in the order of the configuration. The policies are asked about each of
    /// them, and nothing is taken for that.
    pub async fn permitted(&self, call: &ApiCall) -> Vec<Arc<ServedModel>> {
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
        call: &ApiCall,
        name: &str,
    ) -> Result<Arc<ServedModel>, ServiceError> {
        match self.model(name) {
            Ok(model) => Ok(model),
            Err(error) => Err(self.discreet(call, error).await),
        }
    }

    /// An error that names no model which the caller may not use.
    pub(crate) async fn discreet(&self, call: &ApiCall, error: ServiceError) -> ServiceError {
        match error {
            ServiceError::ModelNotFound { model, alias, .. } => {
                let shown = self.permitted(call).await;
                let names = shown.iter().map(|model| model.listing.name.clone());
                let aliases = self.permitted_aliases(call).await.into_iter();
                let available = names.chain(aliases.map(|(alias, _)| alias)).collect();
                ServiceError::ModelNotFound {
                    model,
                    alias,
                    available,
                }
            }
            ServiceError::Adapter(AdapterError::Unknown { model, adapter, .. }) => {
                let shown = self.permitted_adapters(call).await.into_iter();
                let shown = shown.filter(|(served, _)| served.listing.name == model);
                ServiceError::Adapter(AdapterError::Unknown {
                    available: shown.map(|(_, adapter)| adapter).collect(),
                    model,
                    adapter,
                })
            }
            other => other,
        }
    }

    /// True if a caller is shown what has this name.
    pub(crate) async fn permits(&self, call: &ApiCall, model: &str) -> bool {
        let facts = facts(call, Some(model), false, None);
        let serving = self.serving();
        match serving.policies.recognised(call, facts).await {
            Ok(facts) => serving.policies.show(call, &facts).await,
            // Nobody knows who asks.
            Err(_) => false,
        }
    }
}

impl Policies {
    /// Whether a caller may know of the model that the facts name. As for the decision, the policies that are bound
    /// to no tenant are asked in turn, then those of the tenant. One that cannot be asked twice hides nothing; one
    /// that fails and is required hides the model.
    async fn show(&self, call: &ApiCall, facts: &Facts) -> bool {
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

#[cfg(test)]
mod tests {
    use futures::future::BoxFuture;
    use mortise_plugin::{Allowance, Denial, Fault, PluginError, Principal, UsageReport};

    use super::*;
    use crate::config::ServiceConfig;
    use crate::fakes::{call, fault, model, rename, says};
    use crate::plugins::{DecidePolicy, RequestId};

    /// Says in a rehearsal what it is told to say of the model `secret`, and allows the others.
    struct OfSecret {
        said: Result<Option<Decision>, PluginError>,
        by_tenant: bool,
        required: bool,
    }

    fn allowed() -> Decision {
        Decision::Allow(Allowance {
            principal: Principal {
                tenant: Some("lab".to_owned()),
                ..Principal::default()
            },
            ..Allowance::default()
        })
    }

    impl DecidePolicy for OfSecret {
        fn is_by_tenant(&self) -> bool {
            self.by_tenant
        }

        fn is_required(&self) -> bool {
            self.required
        }

        fn identify<'a>(
            &'a self,
            _: &'a RequestId,
            facts: Facts,
        ) -> BoxFuture<'a, Result<Option<Decision>, PluginError>> {
            let said = match facts.model.as_deref() {
                Some("secret") => self.said.clone(),
                _ => Ok(Some(allowed())),
            };
            Box::pin(async move { said })
        }

        fn authorize<'a>(
            &'a self,
            _: &'a RequestId,
            _: Facts,
        ) -> BoxFuture<'a, Result<Decision, PluginError>> {
            panic!("to ask what may be shown takes nothing")
        }

        fn account<'a>(
            &'a self,
            _: &'a RequestId,
            _: UsageReport,
        ) -> BoxFuture<'a, Result<(), PluginError>> {
            panic!("nothing was taken")
        }
    }

    fn denied(status: u16) -> Result<Option<Decision>, PluginError> {
        Ok(Some(Decision::Deny(Denial {
            status,
            kind: "permission_error".to_owned(),
            code: "no".to_owned(),
            message: "no".to_owned(),
            retry_after_ms: None,
            headers: Vec::new(),
        })))
    }

    async fn shown(policies: Vec<OfSecret>) -> Vec<String> {
        let models = ["open", "secret", "hidden"].map(|name| {
            let mut served = model(says("x"));
            rename(&mut served, name, &[]);
            Arc::make_mut(&mut served.listing).hidden = name == "hidden";
            served
        });
        let policies = policies.into_iter();
        let chain = policies.map(|policy| Arc::new(policy) as Arc<dyn DecidePolicy>);
        let config = ServiceConfig::default();
        let service = Service::new(config, models.into(), chain.collect(), &[], Vec::new());
        let service = service.expect("a good setup");
        let shown = service.permitted(&call()).await;
        let names: Vec<String> = shown.iter().map(|m| m.listing.name.clone()).collect();
        let unknown = service.model_for(&call(), "nothing").await;
        assert!(
            matches!(unknown, Err(ServiceError::ModelNotFound { available, .. }) if available == names)
        );
        names
    }

    fn free(said: Result<Option<Decision>, PluginError>) -> OfSecret {
        OfSecret {
            said,
            by_tenant: false,
            required: true,
        }
    }

    #[tokio::test]
    async fn feature_e5_what_a_policy_refuses_is_not_shown() {
        let failed = || Err(fault("policy.identify", Fault::Trap("broken".to_owned())));
        let (all, some) = (["open", "secret"], ["open"]);
        assert_eq!(shown(Vec::new()).await, all);
        for (said, expected) in [
            (Ok(Some(allowed())), &all[..]),
            (Ok(Some(Decision::Abstain)), &all[..]),
            (Ok(None), &all[..]),
            (denied(403), &some[..]),
            (denied(404), &some[..]),
            // The model is not what is refused.
            (denied(429), &all[..]),
            (failed(), &some[..]),
        ] {
            let told = format!("{said:?}");
            assert_eq!(shown(vec![free(said)]).await, expected, "{told}");
        }
        let dispensable = OfSecret {
            required: false,
            ..free(failed())
        };
        assert_eq!(shown(vec![dispensable]).await, all);
    }

    #[tokio::test]
    async fn feature_e5_policies_of_the_tenant_hide_models_too() {
        let of_tenant = |said| OfSecret {
            by_tenant: true,
            ..free(said)
        };
        let first = || free(Ok(Some(allowed())));
        assert_eq!(shown(vec![first(), of_tenant(denied(403))]).await, ["open"]);
        let rate = of_tenant(denied(429));
        assert_eq!(shown(vec![first(), rate]).await, ["open", "secret"]);
        // The first that decides does so for those behind it.
        let late = free(denied(403));
        assert_eq!(shown(vec![first(), late]).await, ["open", "secret"]);
    }
}
