//! Precedence of bindings: the most specific one serves a request. Policies and tools have none; they
//! serve side by side.

use std::cmp::Reverse;

use mortise_plugin::Kind;

use crate::config::{BindingConfig, at_line};
use crate::error::PluginSetError;
use crate::model::ModelKey;
use crate::pattern::{self, ANY, Specificity, most_specific};

/// Claim of a binding to requests for one model: a pattern of tenants and one of routes.
pub(crate) struct Claim<'a> {
    /// The entry of `[[plugins.bindings]]`, from 0.
    pub(crate) index: usize,
    pub(crate) binding: &'a BindingConfig,
    pub(crate) tenants: &'a str,
    pub(crate) routes: &'a str,
    /// Specificity of the patterns for tenant, route, model and architecture; the first difference decides.
    rank: [Specificity; 4],
}

impl Claim<'_> {
    /// Whether it covers all requests to the model.
    pub(crate) fn is_for_all(&self) -> bool {
        (self.tenants, self.routes) == (ANY, ANY)
    }

    fn ties_with(&self, other: &Self) -> bool {
        self.index != other.index
            && self.rank == other.rank
            && pattern::overlap(self.tenants, other.tenants)
            && pattern::overlap(self.routes, other.routes)
    }
}

/// The claims of a kind's bindings to a model, the most specific first, up to the one that is for
/// all: what comes after it never serves. The second list are the less specific ones.
///
/// # Errors
/// When two bindings claim the same requests and neither is more specific.
pub(crate) fn claims<'a>(
    kind: Kind,
    bindings: impl Iterator<Item = (usize, &'a BindingConfig)>,
    model: ModelKey<'_>,
) -> Result<(Vec<Claim<'a>>, Vec<Claim<'a>>), PluginSetError> {
    let mut claims = Vec::new();
    for (index, binding) in bindings {
        let names = most_specific(&binding.models, model.name);
        let architectures = most_specific(&binding.architectures, model.architecture);
        let (Some(name), Some(architecture)) = (names, architectures) else {
            continue;
        };
        for tenants in &binding.tenants {
            for routes in &binding.routes {
                let [tenant, route] = [tenants, routes].map(|pattern| Specificity::of(pattern));
                claims.push(Claim {
                    index,
                    binding,
                    tenants,
                    routes,
                    rank: [tenant, route, name, architecture],
                });
            }
        }
    }
    claims.sort_by_key(|claim| Reverse(claim.rank));
    let last = claims.iter().position(Claim::is_for_all);
    let reached = last.map_or(claims.len(), |last| last + 1);
    for (at, one) in claims.iter().enumerate().take(reached) {
        if let Some(other) = claims[at + 1..].iter().find(|other| one.ties_with(other)) {
            return Err(tie(kind, model, one, other));
        }
    }
    let rest = claims.split_off(reached);
    Ok((claims, rest))
}

fn tie(kind: Kind, model: ModelKey<'_>, one: &Claim<'_>, other: &Claim<'_>) -> PluginSetError {
    let (first, second) = match one.index < other.index {
        true => (one, other),
        false => (other, one),
    };
    let told = |claim: &Claim<'_>| {
        format!(
            "plugins.bindings[{}]{} (tenants `{}`, routes `{}`)",
            claim.index,
            at_line(claim.binding.line_of("")),
            claim.tenants,
            claim.routes
        )
    };
    PluginSetError {
        message: format!(
            "{} and {} claim the same requests for the {kind} plugin of the model `{}`, and neither \
             is more specific; narrow one of them, or leave it out",
            told(first),
            told(second),
            model.name
        ),
        blame: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use serde_json::Value;

    use super::*;

    const MODEL: ModelKey<'_> = ModelKey {
        name: "qwen-small",
        architecture: "qwen3",
    };

    /// A binding that stands at a line, by its conditions.
    fn binding(line: usize, conditions: &[(&str, &[&str])]) -> BindingConfig {
        let of = |name: &str| {
            let given = conditions.iter().find(|(condition, _)| *condition == name);
            let patterns: &[&str] = given.map_or(&[ANY], |(_, patterns)| patterns);
            patterns.iter().map(|&text| text.to_owned()).collect()
        };
        BindingConfig {
            tenants: of("tenants"),
            routes: of("routes"),
            models: of("models"),
            architectures: of("architectures"),
            lines: BTreeMap::from([(String::new(), line)]),
            ..BindingConfig::of_file(Kind::Grammar, PathBuf::new(), Value::Null)
        }
    }

    fn ordered(bindings: &[BindingConfig]) -> Result<Vec<usize>, String> {
        let all = bindings.iter().enumerate();
        match claims(Kind::Grammar, all, MODEL) {
            Ok((claims, _)) => Ok(claims.iter().map(|claim| claim.index).collect()),
            Err(unfit) => Err(unfit.message),
        }
    }

    #[test]
    fn tenant_then_route_then_model_then_architecture_decide() {
        let bindings = [
            binding(1, &[]),
            binding(2, &[("architectures", &["qwen3"])]),
            binding(3, &[("models", &["qwen-*"])]),
            binding(4, &[("models", &["qwen-small"])]),
            binding(5, &[("routes", &["/v1/chat/*"])]),
            binding(6, &[("tenants", &["acme"])]),
            binding(7, &[("tenants", &["acme"]), ("routes", &["/v1/chat/*"])]),
            binding(8, &[("tenants", &["a*"]), ("models", &["qwen-small"])]),
            binding(9, &[("models", &["llama"])]),
        ];
        // Behind the first that is for all, nothing serves; another model's does not either.
        assert_eq!(ordered(&bindings), Ok(vec![6, 5, 7, 4, 3]));
        let all = bindings.iter().enumerate();
        let (_, rest) = claims(Kind::Grammar, all, MODEL).expect("no tie");
        let rest: Vec<usize> = rest.iter().map(|claim| claim.index).collect();
        assert_eq!(rest, [2, 1, 0]);
    }

    #[test]
    fn the_most_specific_pattern_of_a_list_counts() {
        let listed = binding(1, &[("models", &["*", "qwen-small"])]);
        let pattern = binding(2, &[("models", &["qwen-*"])]);
        assert_eq!(ordered(&[pattern, listed]), Ok(vec![1]));
    }

    #[test]
    fn ties_name_both_lines() {
        for (one, other) in [
            (binding(3, &[]), binding(9, &[])),
            (
                binding(3, &[("tenants", &["umbrella", "acme"])]),
                binding(9, &[("tenants", &["acme"])]),
            ),
            (
                binding(3, &[("tenants", &["a*"])]),
                binding(9, &[("tenants", &["*e"])]),
            ),
            (
                binding(3, &[("models", &["qwen-*"])]),
                binding(9, &[("models", &["*small", "llama"])]),
            ),
        ] {
            let rest = binding(12, &[("models", &["*"])]);
            let message = ordered(&[one, other, rest]).expect_err("a tie");
            for part in ["bindings[0] (line 3)", "bindings[1] (line 9)", "qwen-small"] {
                assert!(message.contains(part), "{message}");
            }
        }
    }

    #[test]
    fn what_does_not_meet_or_never_serves_is_no_tie() {
        let apart = [
            binding(1, &[("tenants", &["a*"]), ("routes", &["/v1/chat/*"])]),
            binding(2, &[("tenants", &["b*"]), ("routes", &["/v1/chat/*"])]),
            binding(3, &[("tenants", &["a*"]), ("routes", &["/v1/comp*"])]),
        ];
        assert_eq!(ordered(&apart), Ok(vec![0, 1, 2]));
        let hidden = [
            binding(1, &[("models", &["qwen*"])]),
            binding(2, &[("models", &["*small"])]),
            binding(3, &[("models", &["qwen-small"])]),
        ];
        assert_eq!(ordered(&hidden), Ok(vec![2]));
    }
}
