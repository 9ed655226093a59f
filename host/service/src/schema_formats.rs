//! The keyword `format` of JSON Schemas. By the standard it is an annotation: formats that grammars do not
//! know restrict nothing, and a schema with one is no mistake.

use serde_json::{Map, Value};

/// Formats that the default grammar component checks.
const CHECKED: [&str; 10] = [
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
];

/// Keywords whose value is an object of schemas.
const MAPS: [&str; 6] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
    "dependencies",
];

/// Keywords whose value is data and not a schema.
const DATA: [&str; 4] = ["const", "enum", "default", "examples"];

/// The schema without formats that are annotations; `None` if it has none.
pub(crate) fn without_annotations(schema: &str) -> Option<String> {
    if !schema.contains("\"format\"") {
        return None;
    }
    let mut schema: Value = serde_json::from_str(schema).ok()?;
    strip(&mut schema).then(|| schema.to_string())
}

/// Remove formats that are annotations from the parameters of tools, given as the JSON list that plugins get.
pub(crate) fn tools_without_annotations(tools: String) -> String {
    if !tools.contains("\"format\"") {
        return tools;
    }
    let Ok(Value::Array(mut list)) = serde_json::from_str(&tools) else {
        return tools;
    };
    let mut changed = false;
    for tool in &mut list {
        if let Some(parameters) = tool.pointer_mut("/function/parameters") {
            changed |= strip(parameters);
        }
    }
    match changed {
        true => Value::Array(list).to_string(),
        false => tools,
    }
}

/// Remove annotations from a schema and those inside of it. The depth of schemas is bounded where they
/// come in.
fn strip(schema: &mut Value) -> bool {
    match schema {
        Value::Array(schemas) => schemas
            .iter_mut()
            .fold(false, |changed, one| strip(one) | changed),
        Value::Object(keywords) => {
            let mut changed = remove_annotation(keywords);
            for (keyword, value) in keywords.iter_mut() {
                if DATA.contains(&keyword.as_str()) {
                    continue;
                }
                changed |= match value {
                    Value::Object(schemas) if MAPS.contains(&keyword.as_str()) => schemas
                        .values_mut()
                        .fold(false, |changed, one| strip(one) | changed),
                    value => strip(value),
                };
            }
            changed
        }
        _ => false,
    }
}

fn remove_annotation(keywords: &mut Map<String, Value>) -> bool {
    let annotation = match keywords.get("format") {
        Some(Value::String(format)) => !CHECKED.contains(&format.as_str()),
        _ => false,
    };
    annotation && keywords.shift_remove("format").is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_formats_that_nobody_checks_are_removed() {
        let schema = json!({
            "type": "object",
            "properties": {
                "format": {"type": "string", "format": "sha256"},
                "when": {"type": "string", "format": "date-time"},
                "list": {"items": [{"format": "color"}], "enum": [{"format": "color"}]},
            },
            "$defs": {"a": {"anyOf": [{"format": "phone"}]}},
        });
        let stripped = without_annotations(&schema.to_string()).expect("changed");
        let expected = json!({
            "type": "object",
            "properties": {
                "format": {"type": "string"},
                "when": {"type": "string", "format": "date-time"},
                "list": {"items": [{}], "enum": [{"format": "color"}]},
            },
            "$defs": {"a": {"anyOf": [{}]}},
        });
        assert_eq!(stripped, expected.to_string());
        let known = json!({"format": "uuid"}).to_string();
        assert_eq!(without_annotations(&known), None);
        let tools = json!([{"function": {"parameters": {"format": "color"}}}]).to_string();
        let expected = json!([{"function": {"parameters": {}}}]).to_string();
        assert_eq!(tools_without_annotations(tools), expected);
    }
}
