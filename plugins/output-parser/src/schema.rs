//! Schemas of arguments, as a grammar holds a model to them.

use mortise_plugin_sdk::Fault;
use mortise_plugin_sdk::tools::Tool;
use serde_json::{Map, Value, json};

/// Keys by which schemas are put together from parts.
const PARTS: [&str; 7] = [
    "additionalProperties",
    "unevaluatedProperties",
    "patternProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "$ref",
];

/// An argument of a tool.
pub(crate) struct Argument<'a> {
    /// Its key.
    pub(crate) key: &'a str,
    /// Its schema, with what that refers to.
    pub(crate) schema: Value,
    /// The schema of the tool asks for it.
    pub(crate) required: bool,
}

/// The arguments of a tool one by one, as declared.
///
/// # Errors
/// [`Fault::Invalid`] for a schema that is put together from parts: it does not say which arguments there
/// are.
pub(crate) fn arguments<'a>(format: &str, tool: &'a Tool) -> Result<Vec<Argument<'a>>, Fault> {
    let Value::Object(schema) = &tool.parameters else {
        return Ok(Vec::new());
    };
    // Whether there may be others does not matter: none are made up.
    let parts = PARTS.iter().skip(2);
    if let Some(part) = parts.into_iter().find(|part| schema.contains_key(**part)) {
        return Err(Fault::Invalid(format!(
            "the parameters of the tool `{}` have `{part}` at the top; the format `{format}`, in which this model writes \
             calls, can be held only to plain `properties` there",
            tool.name
        )));
    }
    let required: Vec<&str> = (schema.get("required").and_then(Value::as_array))
        .map(|all| all.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let properties = schema.get("properties").and_then(Value::as_object);
    let each = properties.into_iter().flatten().map(|(key, own)| Argument {
        key,
        schema: with_definitions(declared_only(own.clone()), schema),
        required: required.contains(&key.as_str()),
    });
    Ok(each.collect())
}

/// A part of a schema, with what its references point to.
fn with_definitions(part: Value, whole: &Map<String, Value>) -> Value {
    let Value::Object(mut part) = part else {
        return part;
    };
    for key in ["$defs", "definitions"] {
        if let Some(definitions) = whole.get(key) {
            part.insert(key.to_owned(), definitions.clone());
        }
    }
    Value::Object(part)
}

/// The schema of a tool's arguments: always an object's; one without properties if none was declared.
pub(crate) fn object(tool: &Tool) -> Value {
    declared_only(match &tool.parameters {
        Value::Object(schema) if schema.contains_key("type") => tool.parameters.clone(),
        Value::Object(schema) => {
            let mut typed = Map::from_iter([("type".to_owned(), json!("object"))]);
            typed.extend(schema.clone());
            Value::Object(typed)
        }
        _ => json!({"type": "object", "properties": {}, "additionalProperties": false}),
    })
}

/// Arguments hold what was declared: where a schema names properties and does not say whether there
/// may be others, there may not, or a model could invent names for ever. Schemas that are put
/// together from parts are left as they are, since each part would shut the others out.
fn declared_only(mut schema: Value) -> Value {
    let Value::Object(fields) = &mut schema else {
        return schema;
    };
    if let Some(items) = fields.get_mut("items") {
        *items = declared_only(items.take());
    }
    let Some(Value::Object(properties)) = fields.get_mut("properties") else {
        return schema;
    };
    for property in properties.values_mut() {
        *property = declared_only(property.take());
    }
    if !PARTS.iter().any(|part| fields.contains_key(*part)) {
        fields.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    schema
}

/// Texts that are all that a schema allows, if it names them.
pub(crate) fn choices(schema: &Value) -> Option<Vec<&str>> {
    if let Some(constant) = schema.get("const") {
        return Some(vec![constant.as_str()?]);
    }
    schema
        .get("enum")?
        .as_array()?
        .iter()
        .map(Value::as_str)
        .collect()
}

/// Whitespace as in the grammar plugin: one space, or a line break with its indentation.
pub(crate) fn json_rule(mut schema: Value) -> String {
    if let Value::Object(fields) = &mut schema {
        fields.insert(
            "x-guidance".to_owned(),
            json!({"whitespace_pattern": r"\x20|\r?\n[\x20\t]{0,24}"}),
        );
    }
    format!("%json {schema}")
}
