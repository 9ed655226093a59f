//! The `[response_cache]` table: whose answers are kept for requests that are the same.

use std::time::Duration;

use mortise_service::{CacheConfig, CacheRule, Semantic};
use serde::Deserialize;

use super::{ConfigError, invalid};

/// A size or an age in `[response_cache]`.
const SETTING_MAX: u64 = 1 << 30;

/// The table as it is written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawResponseCache {
    max_mib: usize,
    tenant_max_mib: usize,
    max_answer_kib: usize,
    max_age_seconds: u64,
    rules: Vec<RawRule>,
}

/// A rule as it is written.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawRule {
    models: Vec<String>,
    tenants: Vec<String>,
    routes: Vec<String>,
    sampled: bool,
    similarity: Option<f32>,
    embedding_model: Option<String>,
}

impl Default for RawResponseCache {
    fn default() -> Self {
        Self {
            max_mib: 64,
            tenant_max_mib: 16,
            max_answer_kib: 1024,
            max_age_seconds: 3600,
            rules: Vec::new(),
        }
    }
}

impl RawResponseCache {
    pub(crate) fn check(self) -> Result<CacheConfig, ConfigError> {
        for (name, value) in [
            ("max_mib", self.max_mib as u64),
            ("tenant_max_mib", self.tenant_max_mib as u64),
            ("max_answer_kib", self.max_answer_kib as u64),
            ("max_age_seconds", self.max_age_seconds),
        ] {
            if !(1..=SETTING_MAX).contains(&value) {
                let problem = format!("it must be from 1 to {SETTING_MAX}; it is {value}");
                return Err(invalid(&format!("response_cache.{name}"), problem));
            }
        }
        let rules = self.rules.into_iter().enumerate();
        let rules = rules.map(|(at, rule)| rule.check(at));
        Ok(CacheConfig {
            max_bytes: self.max_mib << 20,
            tenant_max_bytes: self.tenant_max_mib << 20,
            max_entry_bytes: self.max_answer_kib << 10,
            max_age: Duration::from_secs(self.max_age_seconds),
            rules: rules.collect::<Result<_, _>>()?,
        })
    }
}

impl RawRule {
    fn check(self, at: usize) -> Result<CacheRule, ConfigError> {
        let key = |name: &str| format!("response_cache.rules[{at}].{name}");
        let semantic = match (self.similarity, self.embedding_model) {
            (None, None) => None,
            (Some(least), Some(_)) if !(least > 0.0 && least <= 1.0) => {
                let problem = format!("it must be above 0 and at most 1; it is {least}");
                return Err(invalid(&key("similarity"), problem));
            }
            (Some(threshold), Some(model)) => Some(Semantic { model, threshold }),
            (Some(_), None) => {
                let problem = "`similarity` compares vectors; name the model that makes them";
                return Err(invalid(&key("embedding_model"), problem.to_owned()));
            }
            (None, Some(_)) => {
                let problem = "questions are compared only with a threshold; say one";
                return Err(invalid(&key("similarity"), problem.to_owned()));
            }
        };
        let routes = self.routes.iter();
        if let Some(route) = routes.clone().find(|route| !route.starts_with('/')) {
            let problem = format!("`{route}` is no route; they begin with `/`");
            return Err(invalid(&key("routes"), problem));
        }
        Ok(CacheRule {
            models: self.models,
            tenants: self.tenants,
            routes: self.routes,
            sampled: self.sampled,
            semantic,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<CacheConfig, String> {
        let raw: RawResponseCache = toml::from_str(text).expect("a table");
        raw.check().map_err(|error| error.to_string())
    }

    #[test]
    fn feature_k3_alike_takes_a_threshold_and_a_model() {
        let config = checked("[[rules]]\nsimilarity = 0.9\nembedding_model = 'e'").expect("valid");
        let semantic = config.rules[0].semantic.as_ref().expect("a threshold");
        assert_eq!((semantic.model.as_str(), semantic.threshold), ("e", 0.9));
        for (text, key) in [
            ("max_mib = 0", "response_cache.max_mib"),
            ("[[rules]]\nsimilarity = 0.9", "rules[0].embedding_model"),
            ("[[rules]]\nembedding_model = 'e'", "rules[0].similarity"),
            (
                "[[rules]]\nsimilarity = 1.5\nembedding_model = 'e'",
                "rules[0].similarity",
            ),
            ("[[rules]]\nroutes = ['v1']", "rules[0].routes"),
        ] {
            let error = checked(text).expect_err("refused");
            assert!(error.contains(key), "{error}");
        }
    }
}
