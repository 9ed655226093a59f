//! Attributes of a request by which its plugins are selected.

/// Tenant, route and model of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoutingKey<'a> {
    /// Tenant that the policies named; `None` before they have, or if they named none.
    pub tenant: Option<&'a str>,
    /// Route pattern.
    pub route: &'a str,
    /// Public name of the model; `None` on routes without a model.
    pub model: Option<&'a str>,
}
