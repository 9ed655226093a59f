//! Keywords by what their values are.

use serde_json::{Map, Value, json};

/// Keywords whose value is data, and holds no schema.
pub(super) const DATA: [&str; 6] = ["const", "enum", "default", "examples", "required", "type"];
/// Keywords whose value holds schemas by name, and is none itself.
pub(super) const NAMED: [&str; 6] = [
    "properties",
    "patternProperties",
    "dependentSchemas",
    "dependencies",
    "$defs",
    "definitions",
];
/// Keywords whose value is a schema, or a list of schemas.
pub(super) const SCHEMAS: [&str; 17] = [
    "items",
    "additionalItems",
    "prefixItems",
    "additionalProperties",
    "propertyNames",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "anyOf",
    "oneOf",
    "allOf",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
    "x-guidance",
];
/// Keywords that a rewritten schema does not have, or has in another form.
pub(super) const REWRITTEN: [&str; 21] = [
    "patternProperties",
    "format",
    "not",
    "oneOf",
    "if",
    "then",
    "else",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "propertyNames",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
    "unevaluatedItems",
    "unevaluatedProperties",
    "additionalItems",
    "minProperties",
    "maxProperties",
    "$ref",
];

/// Let another schema hold together with these keywords.
pub(super) fn require(fields: &mut Map<String, Value>, schema: Value) {
    match fields.get_mut("allOf") {
        Some(Value::Array(schemas)) => schemas.push(schema),
        _ => drop(fields.insert("allOf".to_owned(), json!([schema]))),
    }
}
