//! `mortise plugin compose`: one plugin around another, as one file.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use mortise_harness::default_plugin;
use mortise_plugin::{
    Kind, MAX_SECTION_BYTES, SCHEMA_SECTION, SERVES_SECTION, Sections, VERSION_SECTION,
};
use serde_json::{Map, Value, json};

use crate::args::PluginComposeArgs;

/// Key of the inner plugin's settings.
const INNER: &str = "inner";

/// Put the inner plugin into the outer one. Says what it made.
pub(crate) fn compose(args: &PluginComposeArgs) -> anyhow::Result<Value> {
    let outer = read(&args.outer)?;
    let failed = || format!("cannot put a plugin into `{}`", args.outer.display());
    let kinds = mortise_wit::inner_kinds(&outer).with_context(failed)?;
    let inner = match &args.inner {
        Some(path) => read(path)?,
        None => embedded(&kinds)?,
    };
    let mut wasm = mortise_wit::compose(&outer, &inner).with_context(failed)?;
    let (of_outer, of_inner) = (Sections::of(&outer), Sections::of(&inner));
    let schema = whole_schema(of_outer.settings_schema, of_inner.settings_schema)?;
    let serves = of_outer.serves.or(of_inner.serves).map(str::to_owned);
    let sections = [
        (SCHEMA_SECTION, schema.map(|schema| schema.to_string())),
        (SERVES_SECTION, serves),
        (VERSION_SECTION, of_outer.version),
    ];
    for (name, content) in sections {
        if let Some(content) = content {
            mortise_wit::add_section(&mut wasm, name, content.as_bytes(), MAX_SECTION_BYTES)?;
        }
    }
    fs::write(&args.output, &wasm)
        .with_context(|| format!("cannot write `{}`", args.output.display()))?;
    let inner = args.inner.as_ref().map(|path| json!(path));
    Ok(json!({
        "file": args.output,
        "bytes": wasm.len(),
        "outer": args.outer,
        "inner": inner.unwrap_or_else(|| json!("embedded")),
        "kinds": kinds,
    }))
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))
}

/// The embedded plugin of the one kind that the outer calls.
fn embedded(kinds: &[String]) -> anyhow::Result<Vec<u8>> {
    let [kind] = kinds else {
        bail!(
            "the outer plugin calls several kinds ({}); name the inner plugin",
            kinds.join(", ")
        );
    };
    let known = Kind::ALL.into_iter().find(|known| known.as_str() == kind);
    known
        .and_then(default_plugin)
        .with_context(|| format!("there is no embedded {kind} plugin; name the inner plugin"))
}

/// The schema of the whole: that of the outer, with that of the inner below its key.
fn whole_schema(outer: Option<&str>, inner: Option<&str>) -> anyhow::Result<Option<Value>> {
    if outer.is_none() && inner.is_none() {
        return Ok(None);
    }
    let parsed = |part: &str, text: Option<&str>| -> anyhow::Result<Value> {
        let text = text.unwrap_or(r#"{"type": "object"}"#);
        serde_json::from_str(text)
            .with_context(|| format!("the settings schema of the {part} plugin is not JSON"))
    };
    let mut inner = parsed(INNER, inner)?;
    rebase(&mut inner);
    let mut whole = parsed("outer", outer)?;
    let Some(keys) = whole.as_object_mut() else {
        bail!("the settings schema of the outer plugin is no object");
    };
    let properties = keys.entry("properties");
    let Value::Object(properties) = properties.or_insert_with(|| Map::new().into()) else {
        bail!("`properties` in the settings schema of the outer plugin is no object");
    };
    if properties.contains_key(INNER) {
        bail!("the outer plugin has a setting `{INNER}`, where those of the inner would stand");
    }
    properties.insert(INNER.to_owned(), inner);
    Ok(Some(whole))
}

/// Have references within a schema go on to lead where they did, now that it stands deeper.
fn rebase(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            for (key, value) in members {
                match value {
                    Value::String(reference) if key == "$ref" && reference.starts_with('#') => {
                        reference.insert_str(1, "/properties/inner");
                    }
                    _ => rebase(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(rebase),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_of_the_whole_has_both() {
        let outer = r#"{"type": "object", "properties": {"line": {"type": "string"}}, "additionalProperties": false}"#;
        let inner =
            r##"{"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"enum": [1]}}}"##;
        let whole = whole_schema(Some(outer), Some(inner)).unwrap().unwrap();
        assert_eq!(
            whole,
            json!({
                "type": "object",
                "properties": {
                    "line": {"type": "string"},
                    "inner": {
                        "properties": {"a": {"$ref": "#/properties/inner/$defs/a"}},
                        "$defs": {"a": {"enum": [1]}},
                    },
                },
                "additionalProperties": false,
            })
        );
    }

    #[test]
    fn a_part_without_a_schema_takes_any_settings() {
        assert_eq!(whole_schema(None, None).unwrap(), None);
        let whole = whole_schema(None, Some(r#"{"type": "object"}"#)).unwrap();
        let expected = json!({"type": "object", "properties": {"inner": {"type": "object"}}});
        assert_eq!(whole, Some(expected));
    }

    #[test]
    fn a_setting_of_the_outer_that_is_in_the_way_is_told() {
        let outer = r#"{"properties": {"inner": {}}}"#;
        let error = whole_schema(Some(outer), None).unwrap_err().to_string();
        assert!(error.contains("a setting `inner`"), "{error}");
    }
}
