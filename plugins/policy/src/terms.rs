//! Scopes and limits of a caller, as the settings, issued keys and tokens give them.

use serde::Deserialize;

/// Bytes of a key's id, of a tenant's name and of a pattern.
pub const MAX_NAME_BYTES: usize = 128;
/// Patterns in one list.
pub const MAX_PATTERNS: usize = 1_000;

/// Limits on how much, and how fast.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rates {
    /// Requests a second, if limited.
    pub requests_per_second: Option<u64>,
    /// Requests a minute, if limited.
    pub requests_per_minute: Option<u64>,
    /// Requests a day, if limited.
    pub requests_per_day: Option<u64>,
    /// Prompt and answer tokens a minute, if limited.
    pub tokens_per_minute: Option<u64>,
    /// Prompt and answer tokens a day, if limited.
    pub tokens_per_day: Option<u64>,
    /// Answers under way at once, if limited.
    pub max_concurrent: Option<u64>,
}

impl Rates {
    pub(crate) fn check(&self) -> Result<(), String> {
        for (name, value) in [
            ("requests_per_second", self.requests_per_second),
            ("requests_per_minute", self.requests_per_minute),
            ("requests_per_day", self.requests_per_day),
            ("tokens_per_minute", self.tokens_per_minute),
            ("tokens_per_day", self.tokens_per_day),
            ("max_concurrent", self.max_concurrent),
        ] {
            check_positive(name, value)?;
        }
        Ok(())
    }
}

/// Checked scopes and limits of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Patterns of the models that may be named.
    pub models: Vec<String>,
    /// Patterns of the routes that may be asked.
    pub routes: Vec<String>,
    /// Patterns of the environments that may be asked.
    pub environments: Vec<String>,
    /// Patterns of the functions that may be declared.
    pub tools: Vec<String>,
    /// Patterns of the server's tools that may be opted in to.
    pub server_tools: Vec<String>,
    /// Limits of rate and number.
    pub rates: Rates,
    /// Generated tokens a request, if limited.
    pub max_tokens: Option<u32>,
    /// Higher is served first.
    pub priority: i32,
}

/// Declares a table that holds terms beside fields of its own.
macro_rules! terms_table {
    ($(#[$about:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        $(#[$about])*
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $name {
            $($field: $type,)*
            models: Option<Vec<String>>,
            routes: Option<Vec<String>>,
            environments: Option<Vec<String>>,
            tools: Option<Vec<String>>,
            server_tools: Option<Vec<String>>,
            requests_per_second: Option<u64>,
            requests_per_minute: Option<u64>,
            requests_per_day: Option<u64>,
            tokens_per_minute: Option<u64>,
            tokens_per_day: Option<u64>,
            max_concurrent: Option<u64>,
            max_tokens: Option<u32>,
            priority: Option<i32>,
        }

        impl $name {
            /// The terms, which are taken out.
            fn terms(&mut self) -> $crate::terms::Terms {
                $crate::terms::Terms {
                    models: self.models.take(),
                    routes: self.routes.take(),
                    environments: self.environments.take(),
                    tools: self.tools.take(),
                    server_tools: self.server_tools.take(),
                    requests_per_second: self.requests_per_second,
                    requests_per_minute: self.requests_per_minute,
                    requests_per_day: self.requests_per_day,
                    tokens_per_minute: self.tokens_per_minute,
                    tokens_per_day: self.tokens_per_day,
                    max_concurrent: self.max_concurrent,
                    max_tokens: self.max_tokens,
                    priority: self.priority,
                }
            }
        }
    };
}
pub(crate) use terms_table;

/// Scopes and limits as they are written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs, reason = "the fields of `Limits` and `Rates`")]
pub struct Terms {
    pub models: Option<Vec<String>>,
    pub routes: Option<Vec<String>>,
    pub environments: Option<Vec<String>>,
    pub tools: Option<Vec<String>>,
    pub server_tools: Option<Vec<String>>,
    pub requests_per_second: Option<u64>,
    pub requests_per_minute: Option<u64>,
    pub requests_per_day: Option<u64>,
    pub tokens_per_minute: Option<u64>,
    pub tokens_per_day: Option<u64>,
    pub max_concurrent: Option<u64>,
    pub max_tokens: Option<u32>,
    pub priority: Option<i32>,
}

impl Terms {
    /// Check them. What is not said is not limited.
    pub fn limits(self) -> Result<Limits, String> {
        let limits = Limits {
            models: self.models.unwrap_or_else(all),
            routes: self.routes.unwrap_or_else(all),
            environments: self.environments.unwrap_or_else(all),
            tools: self.tools.unwrap_or_else(all),
            server_tools: self.server_tools.unwrap_or_else(all),
            rates: Rates {
                requests_per_second: self.requests_per_second,
                requests_per_minute: self.requests_per_minute,
                requests_per_day: self.requests_per_day,
                tokens_per_minute: self.tokens_per_minute,
                tokens_per_day: self.tokens_per_day,
                max_concurrent: self.max_concurrent,
            },
            max_tokens: self.max_tokens,
            priority: self.priority.unwrap_or(0),
        };
        for (name, patterns) in [
            ("models", &limits.models),
            ("routes", &limits.routes),
            ("environments", &limits.environments),
            ("tools", &limits.tools),
            ("server_tools", &limits.server_tools),
        ] {
            check_patterns(name, patterns)?;
        }
        limits.rates.check()?;
        check_positive("max_tokens", limits.max_tokens.map(u64::from))?;
        Ok(limits)
    }
}

/// The patterns of somebody who may use everything.
fn all() -> Vec<String> {
    vec!["*".to_owned()]
}

fn check_positive(name: &str, value: Option<u64>) -> Result<(), String> {
    match value {
        Some(0) => Err(format!(
            "field `{name}` must be at least 1; leave it out for no limit"
        )),
        _ => Ok(()),
    }
}

pub(crate) fn check_patterns(name: &str, patterns: &[String]) -> Result<(), String> {
    if patterns.len() > MAX_PATTERNS {
        return Err(format!(
            "field `{name}` has {} patterns, at most {MAX_PATTERNS} are allowed",
            patterns.len()
        ));
    }
    match patterns
        .iter()
        .find(|pattern| pattern.is_empty() || pattern.len() > MAX_NAME_BYTES)
    {
        None => Ok(()),
        Some(pattern) => Err(format!(
            "field `{name}` holds a pattern of {} bytes; 1 to {MAX_NAME_BYTES} are allowed",
            pattern.len()
        )),
    }
}
