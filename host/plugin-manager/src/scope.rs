//! Scopes and routing rules: the requests that a plugin serves.

use mortise_service::RoutingKey;

use crate::config::BindingConfig;
use crate::pattern::{self, ANY};
use crate::precedence::Claim;

/// The requests that a plugin is for, by patterns; `*` includes requests that name nothing.
#[derive(Clone, PartialEq)]
pub(crate) struct PluginScope {
    pub(crate) tenants: Vec<String>,
    pub(crate) routes: Vec<String>,
    pub(crate) models: Vec<String>,
}

impl PluginScope {
    pub(crate) fn all() -> Self {
        let any = || vec![ANY.to_owned()];
        Self {
            tenants: any(),
            routes: any(),
            models: any(),
        }
    }

    pub(crate) fn of(binding: Option<&BindingConfig>) -> Self {
        binding.map_or_else(Self::all, |binding| Self {
            tenants: binding.tenants.clone(),
            routes: binding.routes.clone(),
            models: binding.models.clone(),
        })
    }

    /// Whether a request is within.
    pub(crate) fn holds(&self, key: &RoutingKey<'_>) -> bool {
        any_holds(&self.routes, Some(key.route))
            && any_holds(&self.models, key.model)
            && any_holds(&self.tenants, key.tenant)
    }

    /// Whether requests of this tenant may be within.
    pub(crate) fn holds_tenant(&self, tenant: Option<&str>) -> bool {
        any_holds(&self.tenants, tenant)
    }

    /// Whether it depends on the tenant.
    pub(crate) fn is_by_tenant(&self) -> bool {
        !any_holds(&self.tenants, None)
    }
}

fn any_holds(patterns: &[String], name: Option<&str>) -> bool {
    patterns.iter().any(|pattern| holds(pattern, name))
}

fn holds(pattern: &str, name: Option<&str>) -> bool {
    pattern == ANY || name.is_some_and(|name| pattern::matches(pattern, name))
}

/// Rule of an assignment: it serves requests of these tenants to these routes that no rule of a lower
/// number takes.
#[derive(Clone, PartialEq)]
pub(crate) struct RoutingRule {
    pub(crate) number: usize,
    tenants: String,
    routes: String,
}

impl RoutingRule {
    pub(crate) fn of(number: usize, claim: &Claim<'_>) -> Self {
        Self {
            number,
            tenants: claim.tenants.to_owned(),
            routes: claim.routes.to_owned(),
        }
    }

    /// The rule for all requests, after all others.
    pub(crate) fn last() -> Self {
        Self {
            number: usize::MAX,
            tenants: ANY.to_owned(),
            routes: ANY.to_owned(),
        }
    }

    /// Whether a request is of these tenants and routes.
    pub(crate) fn holds(&self, key: &RoutingKey<'_>) -> bool {
        holds(&self.routes, Some(key.route)) && holds(&self.tenants, key.tenant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_holds_tenants_routes_and_models() {
        let texts = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
        let holds = |tenants: &[&str], routes: &[&str], models: &[&str], key: RoutingKey<'_>| {
            let scope = PluginScope {
                tenants: texts(tenants),
                routes: texts(routes),
                models: texts(models),
            };
            scope.holds(&key)
        };
        let (any, chat) = (&["*"], "/v1/chat/completions");
        let key = |tenant, route, model| RoutingKey {
            tenant,
            route,
            model,
        };
        let list = key(None, "/v1/models", None);
        assert!(PluginScope::all().holds(&list));
        assert!(holds(any, &["/v1/chat/*"], any, key(None, chat, Some("m"))));
        assert!(!holds(any, &["/v1/chat/*"], any, list));
        let qwen = key(Some("acme"), chat, Some("qwen3"));
        let llama = key(Some("umbrella"), chat, Some("llama"));
        assert!(holds(any, any, &["qwen*"], qwen));
        assert!(!holds(any, any, &["qwen*"], llama));
        assert!(!holds(any, any, &["qwen*"], list));
        assert!(holds(&["umbrella", "a*"], any, any, qwen));
        assert!(!holds(&["acme"], any, any, llama));
        let of_acme = PluginScope {
            tenants: texts(&["ac*"]),
            ..PluginScope::all()
        };
        let tenants = [Some("acme"), Some("umbrella"), None];
        let held = tenants.map(|tenant| of_acme.holds_tenant(tenant));
        assert_eq!(held, [true, false, false]);
        assert!(
            !holds(&["acme"], any, any, list),
            "no tenant is none of those"
        );
    }
}
