//! Rules of the response cache: the requests whose answers are kept, and the wishes of callers and policies.

use super::key::CacheAttributes;

/// Requests whose answers are kept. An empty list means all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CacheRule {
    /// Public names of models.
    pub models: Vec<String>,
    /// Tenants.
    pub tenants: Vec<String>,
    /// Routes.
    pub routes: Vec<String>,
    /// Answers that were drawn at random are kept too: every caller gets the first draw.
    pub sampled: bool,
    /// Answers to questions that are alike.
    pub semantic: Option<Semantic>,
}

/// Answers to questions that are alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Semantic {
    /// Model that makes the vectors of questions.
    pub model: String,
    /// Least cosine.
    pub threshold: f32,
}

impl CacheRule {
    pub(super) fn meets(&self, identity: &CacheAttributes<'_>) -> bool {
        let among =
            |names: &[String], name: &str| names.is_empty() || names.iter().any(|n| n == name);
        among(&self.models, identity.model)
            && among(&self.routes, identity.route)
            && among(&self.tenants, identity.tenant.unwrap_or_default())
    }
}

/// Header of a request that says what its caller wants.
pub(crate) const OF_CALLERS: &str = "cache-control";

/// Header of a policy's decision that says what it wants, in the same words.
pub(crate) const OF_POLICIES: &str = "x-mortise-cache-control";

/// Wish of a caller or a policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    /// No lookup: the caller wants an answer that is made anew.
    pub(crate) fresh: bool,
    /// No store: the answer is not kept.
    pub(crate) unkept: bool,
}

impl Wish {
    /// The wish of all headers of a name together.
    pub(crate) fn of(name: &str, headers: &[(String, String)]) -> Self {
        let mut wish = Self::default();
        let values = headers
            .iter()
            .filter(|(other, _)| other.eq_ignore_ascii_case(name));
        for word in values.flat_map(|(_, value)| value.split(',')) {
            match word.trim().to_ascii_lowercase().as_str() {
                "no-store" => (wish.fresh, wish.unkept) = (true, true),
                "no-cache" | "max-age=0" => wish.fresh = true,
                _ => {}
            }
        }
        wish
    }

    /// Both wishes together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            fresh: self.fresh || other.fresh,
            unkept: self.unkept || other.unkept,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_control_is_read_as_http_has_it() {
        let of = |value: &str| {
            let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
            let headers = [header("Accept", "no-store"), header("Cache-Control", value)];
            let wish = Wish::of(OF_CALLERS, &headers);
            (wish.fresh, wish.unkept)
        };
        assert_eq!(of("max-age=60"), (false, false));
        assert_eq!(of("private, No-Cache"), (true, false));
        assert_eq!(of("no-store"), (true, true));
    }

    #[test]
    fn a_rule_is_met_by_what_it_lists() {
        let identity = CacheAttributes {
            model: "m",
            tenant: Some("a"),
            route: "/v1/chat/completions",
        };
        let list = |name: &str| vec![name.to_owned()];
        assert!(CacheRule::default().meets(&identity));
        let of = |models: &str, tenants: &str| CacheRule {
            models: list(models),
            tenants: list(tenants),
            ..CacheRule::default()
        };
        assert!(of("m", "a").meets(&identity));
        assert!(!of("n", "a").meets(&identity) && !of("m", "b").meets(&identity));
        let nobody = CacheAttributes {
            tenant: None,
            ..identity
        };
        assert!(!of("m", "a").meets(&nobody));
    }
}
