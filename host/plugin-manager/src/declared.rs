//! Declarations of plugins in their custom section `mortise:serves`: the models that they serve. A new model's
//! template needs no configuration, and several can lie in one folder.

use mortise_plugin::{Component, Kind, SERVES_SECTION};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::model::ModelKey;
use crate::pattern::{ANY, Specificity, most_specific};

/// Most patterns in a list.
const MAX_PATTERNS: usize = 256;

/// Longest pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 256;

/// Models that a plugin serves: name and architecture both match a pattern.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct DeclaredModels {
    #[serde(default = "any")]
    models: Vec<String>,
    #[serde(default = "any")]
    architectures: Vec<String>,
}

fn any() -> Vec<String> {
    vec![ANY.to_owned()]
}

impl DeclaredModels {
    /// Read a declaration.
    ///
    /// # Errors
    /// Description of the fault in the declaration.
    pub fn parse(text: &str) -> Result<Self, String> {
        // By way of an object: a list would do for a struct.
        let object = serde_json::from_str::<Map<String, Value>>(text);
        let declared = object.and_then(|object| Self::deserialize(Value::Object(object)));
        let declared =
            declared.map_err(|error| format!("`{SERVES_SECTION}` cannot be read: {error}"))?;
        for (name, list) in [
            ("models", &declared.models),
            ("architectures", &declared.architectures),
        ] {
            if list.is_empty() || list.len() > MAX_PATTERNS {
                return Err(format!(
                    "`{name}` of `{SERVES_SECTION}` has {} patterns; it may have 1 to {MAX_PATTERNS}, and \
                     is left out where every one is meant",
                    list.len()
                ));
            }
            if let Some(long) = list.iter().find(|text| text.len() > MAX_PATTERN_BYTES) {
                return Err(format!(
                    "a pattern in `{name}` of `{SERVES_SECTION}` has {} bytes, and may have \
                     {MAX_PATTERN_BYTES}",
                    long.len()
                ));
            }
        }
        Ok(declared)
    }

    /// Declaration of a component, if it has one.
    ///
    /// # Errors
    /// When the declaration cannot be read, or no kind of the component is chosen by model.
    pub fn of(component: &Component) -> Result<Option<Self>, String> {
        let Some(text) = component.serves() else {
            return Ok(None);
        };
        if !component.kinds().iter().any(|&kind| is_by_model(kind)) {
            return Err(format!(
                "it has a section `{SERVES_SECTION}`, and only chat templates, output parsers and \
                 grammars are chosen by model"
            ));
        }
        Self::parse(text).map(Some)
    }

    /// Whether it depends on the architecture of a model.
    pub(crate) fn is_by_architecture(&self) -> bool {
        !self.architectures.iter().any(|pattern| pattern == ANY)
    }

    /// Specificity for a model, name before architecture; `None` if it does not match.
    pub(crate) fn rank(&self, model: ModelKey<'_>) -> Option<[Specificity; 2]> {
        Some([
            most_specific(&self.models, model.name)?,
            most_specific(&self.architectures, model.architecture)?,
        ])
    }
}

/// Whether plugins of this kind serve one model each.
fn is_by_model(kind: Kind) -> bool {
    match kind {
        Kind::ChatTemplate | Kind::OutputParser | Kind::Grammar => true,
        Kind::Policy | Kind::Tool | Kind::Guardrail | Kind::Retriever => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_architectures_both_count() {
        let qwen = ModelKey {
            name: "qwen-small",
            architecture: "qwen3",
        };
        let rank = |text: &str| {
            DeclaredModels::parse(text)
                .expect("a declaration")
                .rank(qwen)
        };
        let rising = [
            rank("{}"),
            rank(r#"{"architectures": ["qwen*"]}"#),
            rank(r#"{"architectures": ["llama", "qwen3"]}"#),
            rank(r#"{"models": ["qwen-*"]}"#),
            rank(r#"{"models": ["qwen-small"], "architectures": ["qwen3"]}"#),
        ];
        assert!(rising[0].is_some());
        assert!(rising.is_sorted(), "{rising:?}");
        assert_eq!(rank(r#"{"models": ["llama*"]}"#), None);
        assert_eq!(
            rank(r#"{"models": ["qwen-*"], "architectures": ["llama"]}"#),
            None
        );
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        let long = format!(r#"{{"models": ["{}"]}}"#, "x".repeat(MAX_PATTERN_BYTES + 1));
        let many = serde_json::json!({"architectures": vec!["a"; MAX_PATTERNS + 1]}).to_string();
        for (text, part) in [
            ("", "cannot be read"),
            ("[]", "cannot be read"),
            (r#"{"model": ["a"]}"#, "unknown field `model`"),
            (r#"{"models": "a"}"#, "expected a sequence"),
            (r#"{"models": []}"#, "`models` of `mortise:serves` has 0"),
            (&long, "has 257 bytes"),
            (&many, "has 257 patterns"),
        ] {
            let error = DeclaredModels::parse(text).expect_err(text);
            assert!(error.contains(part), "{error}");
        }
    }
}
