//! Secrets that a binding of a policy is granted: API keys by their ids.

use mortise_plugin::Secret;
use serde_json::Value;

use crate::config::{BindingConfig, at_line};
use crate::error::PluginSetError;
use crate::pattern::matches;

/// Beginning of the names that API keys had before they were known by their ids: `api-key-0`, by their places.
const FORMER: &str = "api-key-";

/// The secrets whose names a binding lists.
///
/// # Errors
/// When it lists the id of no key.
pub(crate) fn granted_secrets(
    secrets: &[Secret],
    index: usize,
    binding: &BindingConfig,
) -> Result<Vec<Secret>, PluginSetError> {
    let named = |id: &String| id.contains('*') || secrets.iter().any(|secret| secret.name == *id);
    if let Some(place) = binding.secrets.iter().position(|id| !named(id)) {
        let line = at_line(binding.line_of(&format!("/secrets/{place}")));
        return Err(PluginSetError {
            message: format!(
                "plugins.bindings[{index}].secrets[{place}]{line}: no key of auth.api_keys has the id `{}`",
                binding.secrets[place]
            ),
            blame: Vec::new(),
        });
    }
    let granted = |secret: &&Secret| binding.secrets.iter().any(|id| matches(id, &secret.name));
    Ok(secrets.iter().filter(granted).cloned().collect())
}

/// Settings with the former names of keys replaced by their ids. To be removed in 0.2.
pub(crate) fn with_ids(settings: &Value, secrets: &[Secret]) -> Value {
    match settings {
        Value::String(text) => match id_of_former(text, secrets) {
            Some(id) => {
                tracing::warn!(
                    "the settings of a policy name an API key `{text}`; keys are known by their ids now: \
                     write `{id}`, since the next version will not know the former name"
                );
                Value::String(id.to_owned())
            }
            None => settings.clone(),
        },
        Value::Array(values) => values.iter().map(|v| with_ids(v, secrets)).collect(),
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|(name, value)| (name.clone(), with_ids(value, secrets)));
            Value::Object(fields.collect())
        }
        _ => settings.clone(),
    }
}

/// The id of the key that had this name, unless a key has it as its id.
fn id_of_former<'a>(text: &str, secrets: &'a [Secret]) -> Option<&'a str> {
    let place: usize = text.strip_prefix(FORMER)?.parse().ok()?;
    if secrets.iter().any(|secret| secret.name == text) {
        return None;
    }
    secrets.get(place).map(|secret| secret.name.as_str())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use mortise_plugin::Kind;
    use serde_json::json;

    use super::*;

    fn secrets() -> Vec<Secret> {
        ["alice", "ci-1", "ci-2"]
            .map(|id| Secret::new(id, id))
            .into()
    }

    fn granted(ids: &[&str]) -> Result<Vec<String>, String> {
        let binding = BindingConfig {
            secrets: ids.iter().map(|&id| id.to_owned()).collect(),
            ..BindingConfig::of_file(Kind::Policy, PathBuf::new(), Value::Null)
        };
        let granted = granted_secrets(&secrets(), 4, &binding).map_err(|error| error.message)?;
        Ok(granted.into_iter().map(|secret| secret.name).collect())
    }

    #[test]
    fn keys_are_granted_by_id() {
        assert_eq!(granted(&["*"]).unwrap(), ["alice", "ci-1", "ci-2"]);
        assert_eq!(granted(&["ci-*"]).unwrap(), ["ci-1", "ci-2"]);
        assert_eq!(granted(&["alice", "bob-*"]).unwrap(), ["alice"]);
        assert!(granted(&[]).unwrap().is_empty());
        let error = granted(&["alice", "bob"]).unwrap_err();
        assert!(
            error.contains("plugins.bindings[4].secrets[1]") && error.contains("`bob`"),
            "{error}"
        );
    }

    #[test]
    fn former_names_become_ids() {
        let settings = json!({"door": ["api-key-1", "api-key-9", "api-key-"], "n": 1});
        let expected = json!({"door": ["ci-1", "api-key-9", "api-key-"], "n": 1});
        assert_eq!(with_ids(&settings, &secrets()), expected);
        let own = [Secret::new("a", "a"), Secret::new("api-key-0", "b")];
        assert_eq!(with_ids(&json!("api-key-0"), &own), json!("api-key-0"));
    }
}
