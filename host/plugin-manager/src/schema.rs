//! Settings against the JSON Schema that a plugin carries in its custom section
//! `mortise:settings-schema`, so that a mistake is told by its place in the configuration, and
//! without running anything of the plugin.

use mortise_plugin::{Component, JsonSchema};
use serde_json::Value;

use crate::config::{BindingConfig, at_line};

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
    let schema = serde_json::from_str(schema).map_err(|error| error.to_string());
    let schema = schema
        .and_then(JsonSchema::compile)
        .map_err(|error| format!("the settings schema of plugin `{name}` is no good: {error}"))?;
    let violations = schema.violations(&settings);
    if violations.is_empty() {
        return Ok(());
    }
    let told = violations.iter().take(MAX_VIOLATIONS);
    let told: Vec<String> = told
        .map(|found| format!("{}: {}", place(&found.pointer, binding), found.message))
        .collect();
    Err(format!(
        "plugin `{name}` does not take its settings: {}",
        told.join("; ")
    ))
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
    let line = at_line(binding.line_of(&format!("/settings{pointer}")));
    format!("plugins.bindings[{index}].settings{key}{line}")
}
