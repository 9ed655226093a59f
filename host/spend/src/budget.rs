//! Budgets of callers and of tenants.

use mortise_service::Principal;
use wildmatch::WildMatch;

use crate::money::Money;

/// Party that a budget is for.
#[derive(Debug, Clone)]
pub enum Holder {
    /// Each caller whose name fits one of these patterns, for itself.
    Callers(Vec<WildMatch>),
    /// Each tenant whose name fits one of these patterns, all its callers together.
    Tenants(Vec<WildMatch>),
}

impl Holder {
    /// Each caller whose name fits one of these patterns, `*` for any text.
    pub fn callers(patterns: &[String]) -> Self {
        Self::Callers(patterns.iter().map(|text| WildMatch::new(text)).collect())
    }

    /// Each tenant whose name fits one of these patterns.
    pub fn tenants(patterns: &[String]) -> Self {
        Self::Tenants(patterns.iter().map(|text| WildMatch::new(text)).collect())
    }
}

/// Money that a party may spend.
#[derive(Debug, Clone)]
pub struct Budget {
    /// Party.
    pub holder: Holder,
    /// In a day.
    pub per_day: Option<Money>,
    /// For one request.
    pub per_request: Option<Money>,
}

/// Account that a budget is kept by: of a caller, or of a tenant.
pub(crate) fn account_of(holder: &Holder, principal: &Principal) -> Option<String> {
    let fits =
        |patterns: &[WildMatch], name: &str| patterns.iter().any(|known| known.matches(name));
    match holder {
        Holder::Callers(patterns) => {
            let name = &principal.subject;
            fits(patterns, name).then(|| format!("caller {name}"))
        }
        Holder::Tenants(patterns) => {
            let name = principal.tenant.as_deref()?;
            fits(patterns, name).then(|| format!("tenant {name}"))
        }
    }
}
