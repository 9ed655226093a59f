//! Scopes and limits of a caller. The host keeps them and checks their form; the policy grants by them.

use serde::{Deserialize, Serialize};

use crate::limits::{MAX_NAME_BYTES, MAX_PATTERNS};

/// Scopes and limits; what is absent is not limited. The default policy reads them by these names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Terms {
    /// Patterns of the models that may be named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<Vec<String>>,
    /// Patterns of the routes that may be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routes: Option<Vec<String>>,
    /// Patterns of the environments whose servers may be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environments: Option<Vec<String>>,
    /// Patterns of the functions that may be declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Patterns of the server's tools that may be opted in to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_tools: Option<Vec<String>>,
    /// Requests a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u64>,
    /// Requests a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u64>,
    /// Requests a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_day: Option<u64>,
    /// Prompt and answer tokens a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_minute: Option<u64>,
    /// Prompt and answer tokens a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_day: Option<u64>,
    /// Answers under way at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<u64>,
    /// Generated tokens a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Higher is served first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
}

/// Term that cannot hold: its name, and the problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}`: {problem}")]
pub struct TermsError {
    /// Name of the term.
    pub field: &'static str,
    /// Problem, and what would be right.
    pub problem: String,
}

impl Terms {
    /// Check their form, as the default policy does.
    ///
    /// # Errors
    /// With the first that cannot hold.
    pub fn check(&self) -> Result<(), TermsError> {
        for (field, patterns) in [
            ("models", &self.models),
            ("routes", &self.routes),
            ("environments", &self.environments),
            ("tools", &self.tools),
            ("server_tools", &self.server_tools),
        ] {
            check_patterns(field, patterns.as_deref().unwrap_or_default())?;
        }
        for (field, value) in [
            ("requests_per_second", self.requests_per_second),
            ("requests_per_minute", self.requests_per_minute),
            ("requests_per_day", self.requests_per_day),
            ("tokens_per_minute", self.tokens_per_minute),
            ("tokens_per_day", self.tokens_per_day),
            ("max_concurrent", self.max_concurrent),
            ("max_tokens", self.max_tokens.map(u64::from)),
        ] {
            if value == Some(0) {
                let problem = "it must be at least 1; leave it out for no limit".to_owned();
                return Err(TermsError { field, problem });
            }
        }
        Ok(())
    }
}

fn check_patterns(field: &'static str, patterns: &[String]) -> Result<(), TermsError> {
    let count = patterns.len();
    if count > MAX_PATTERNS {
        let problem = format!("it has {count} patterns, at most {MAX_PATTERNS} are allowed");
        return Err(TermsError { field, problem });
    }
    let fits = |pattern: &String| (1..=MAX_NAME_BYTES).contains(&pattern.len());
    if !patterns.iter().all(fits) {
        let problem = format!("a pattern has 1 to {MAX_NAME_BYTES} bytes");
        return Err(TermsError { field, problem });
    }
    Ok(())
}

/// Check a name that reaches logs, headers and the names of counters.
///
/// # Errors
/// When it is too long, empty, or has other characters.
pub fn check_name(field: &'static str, name: &str) -> Result<(), TermsError> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(fits) {
        return Ok(());
    }
    let problem = format!("it must be 1 to {MAX_NAME_BYTES} letters, digits, `.`, `_` or `-`");
    Err(TermsError { field, problem })
}
