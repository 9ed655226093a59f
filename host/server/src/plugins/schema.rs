//! Settings against the JSON Schema that a plugin carries in its custom section
//! `mortise:settings-schema`, so that a mistake is told by its place in the configuration, and
//! without running anything of the plugin.

use boon::{Compiler, Schemas, ValidationError};
use mortise_plugin::Component;
use serde_json::Value;

use crate::config::BindingConfig;

/// A name for the schema within the validator; nothing is ever loaded from it.
const SCHEMA: &str = "mortise:settings";

/// Violations that are told at once.
const MAX_VIOLATIONS: usize = 5;

/// Check settings. The error names each key that is wrong, with its line where it is known.
pub(crate) fn check(
    component: &Component,
    settings: &str,
    binding: Option<(usize, &BindingConfig)>,
) -> Result<(), String> {
    let Some(schema) = component.settings_schema() else {
        return Ok(());
    };
    let name = component.name();
    let settings: Value = serde_json::from_str(settings)
        .map_err(|error| format!("the settings of plugin `{name}` are not JSON: {error}"))?;
    let violations = violations(schema, &settings)
        .map_err(|error| format!("the settings schema of plugin `{name}` is no good: {error}"))?;
    if violations.is_empty() {
        return Ok(());
    }
    let told = violations.iter().take(MAX_VIOLATIONS);
    let told: Vec<String> = told
        .map(|(pointer, message)| format!("{}: {message}", place(pointer, binding)))
        .collect();
    Err(format!(
        "plugin `{name}` does not take its settings: {}",
        told.join("; ")
    ))
}

/// The values that do not follow the schema: JSON pointers and messages.
pub(crate) fn violations(schema: &str, value: &Value) -> Result<Vec<(String, String)>, String> {
    let schema: Value = serde_json::from_str(schema).map_err(|error| error.to_string())?;
    let mut compiler = Compiler::new();
    compiler.set_default_draft(boon::Draft::V2020_12);
    // Without this, references to files would be followed.
    compiler.use_loader(Box::new(NoLoader));
    compiler
        .add_resource(SCHEMA, schema)
        .map_err(|error| error.to_string())?;
    let mut schemas = Schemas::new();
    let index = compiler
        .compile(SCHEMA, &mut schemas)
        .map_err(|error| format!("{error:#}"))?;
    let mut found = Vec::new();
    if let Err(error) = schemas.validate(value, index) {
        leaves(&error, &mut found);
    }
    Ok(found)
}

/// The innermost errors: the others only say that something within is wrong.
fn leaves(error: &ValidationError<'_, '_>, found: &mut Vec<(String, String)>) {
    if error.causes.is_empty() {
        let pointer = error.instance_location.to_string();
        found.push((pointer, error.kind.to_string()));
    }
    for cause in &error.causes {
        leaves(cause, found);
    }
}

struct NoLoader;

impl boon::UrlLoader for NoLoader {
    fn load(&self, url: &str) -> Result<Value, Box<dyn std::error::Error>> {
        Err(format!("a schema may not refer to `{url}`").into())
    }
}

/// `plugins.bindings[0].settings.a.b (line 7)`. A key that is missing is told by the line of the
/// table that should have it.
fn place(pointer: &str, binding: Option<(usize, &BindingConfig)>) -> String {
    let key = pointer
        .replace('/', ".")
        .replace("~1", "/")
        .replace("~0", "~");
    let Some((index, binding)) = binding else {
        return format!("settings{key}");
    };
    let mut known = pointer;
    let line = loop {
        match (binding.lines.get(known), known.rfind('/')) {
            (Some(line), _) => break Some(line),
            (None, Some(parent)) => known = &known[..parent],
            (None, None) => break None,
        }
    };
    let line = line.map_or(String::new(), |line| format!(" (line {line})"));
    format!("plugins.bindings[{index}].settings{key}{line}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SCHEMA: &str = r#"{"type": "object", "additionalProperties": false,
        "properties": {"rules": {"type": "string"}, "list": {"items": {"minimum": 3}}}}"#;

    #[test]
    fn violations_are_told_by_their_place() {
        let check = |value| violations(SCHEMA, &value).unwrap();
        assert!(check(json!({"rules": "a", "list": [3]})).is_empty());
        let found = check(json!({"rules": 5, "list": [4, 1], "other": 1}));
        let pointers: Vec<&str> = found.iter().map(|(pointer, _)| pointer.as_str()).collect();
        assert!(
            pointers.contains(&"/rules") && pointers.contains(&"/list/1"),
            "{found:?}"
        );
        let text = format!("{found:?}");
        assert!(text.contains("other") && text.contains("string"), "{text}");
    }

    #[test]
    fn schemas_reach_nothing_outside() {
        for reference in ["file:///etc/passwd", "http://localhost/x"] {
            let schema = json!({"$ref": reference}).to_string();
            let error = violations(&schema, &json!({})).unwrap_err();
            assert!(error.contains("may not refer"), "{error}");
        }
        assert!(violations("{", &json!({})).is_err());
        assert!(violations(r#"{"type": "nothing"}"#, &json!({})).is_err());
    }
}
