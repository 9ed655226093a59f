//! Items that must differ, and how each of them can become another one.

use serde_json::{Map, Value, json};

use super::document::Document;
use super::types::Types;
use crate::distinct::{Ending, Members};

/// Schemas one within the other that are looked at.
const MAX_DEPTH: usize = 8;
/// Formats of which longer texts can always be made.
const GROWING: [&str; 3] = ["email", "hostname", "uri"];
/// Keywords that bound a text.
const OF_TEXTS: [&str; 4] = ["pattern", "maxLength", "enum", "const"];
/// Keywords that bound an integer from above, or to a few.
const OF_INTEGERS: [&str; 5] = ["maximum", "exclusiveMaximum", "multipleOf", "enum", "const"];
/// Keywords that bound an array.
const OF_ARRAYS: [&str; 8] = [
    "maxItems",
    "prefixItems",
    "additionalItems",
    "contains",
    "unevaluatedItems",
    "enum",
    "const",
    "x-guidance",
];
/// Keywords that say more of an object than which members it has.
const OF_OBJECTS: [&str; 14] = [
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedProperties",
    "enum",
    "const",
    "x-guidance",
    "$dynamicRef",
    "$recursiveRef",
    "$defs",
];
/// Keywords that put other schemas beside.
const APPLYING: [&str; 6] = ["allOf", "not", "if", "then", "else", "$ref"];

/// Ending of the values of a schema, if each of them can be continued to others without end.
pub(super) fn ending(document: &Document, schema: &Value) -> Option<Ending> {
    below(document, schema, 0)
}

fn below(document: &Document, schema: &Value, depth: usize) -> Option<Ending> {
    if depth > MAX_DEPTH || document.is_spent() {
        return None;
    }
    let fields = schema.as_object()?;
    if let Some(reference) = fields.get("$ref") {
        let others = APPLYING.iter().chain(&OF_OBJECTS).chain(&OF_TEXTS);
        let mut others = others.filter(|key| **key != "$ref");
        let alone = !others.any(|key| fields.contains_key(*key));
        let typed = ["type", "properties", "anyOf", "oneOf", "items"];
        let alone = alone && !typed.iter().any(|key| fields.contains_key(*key));
        return alone.then(|| below(document, document.target(reference)?, depth + 1))?;
    }
    if APPLYING.iter().any(|key| fields.contains_key(*key)) {
        return None;
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(Value::Array(options)) = fields.get(key) {
            return of_options(document, fields, options, depth);
        }
    }
    let types = Types::read(fields.get("type")?)?;
    let mut ending = Ending::default();
    for one in types.each() {
        ending = ending.with(of_type(document, fields, one, depth)?)?;
    }
    Some(ending)
}

/// Ending of options of different types, with nothing said beside them.
fn of_options(
    document: &Document,
    fields: &Map<String, Value>,
    options: &[Value],
    depth: usize,
) -> Option<Ending> {
    let telling = OF_TEXTS.iter().chain(&OF_INTEGERS).chain(&OF_ARRAYS);
    let mut telling = telling
        .chain(&OF_OBJECTS)
        .chain(&["properties", "required", "items"]);
    let both = fields.contains_key("anyOf") && fields.contains_key("oneOf");
    if both || telling.any(|key| fields.contains_key(*key)) {
        return None;
    }
    let (mut ending, mut seen) = (Ending::default(), Types::NONE);
    for option in options {
        let types = document.types(option);
        if types.meets(seen) {
            return None;
        }
        seen = seen.or(types);
        ending = ending.with(below(document, option, depth + 1)?)?;
    }
    Some(ending)
}

fn of_type(
    document: &Document,
    fields: &Map<String, Value>,
    types: Types,
    depth: usize,
) -> Option<Ending> {
    let has = |keys: &[&str]| keys.iter().any(|key| fields.contains_key(*key));
    let ending = Ending::default();
    match types {
        Types::STRING => {
            let format = fields.get("format").and_then(Value::as_str);
            let grows = format.is_none_or(|format| {
                GROWING.contains(&format) || !super::members::FORMATS.contains(&format)
            });
            let text = grows && !has(&OF_TEXTS);
            text.then_some(Ending { text, ..ending })
        }
        Types::INTEGER => {
            let least = ["minimum", "exclusiveMinimum"].map(|key| fields.get(key));
            let mut least = least.into_iter().flatten();
            // Longer ones are smaller, below 0.
            let grows = least.all(|least| least.as_f64().is_some_and(|least| least >= 0.0));
            let integer = grows && !has(&OF_INTEGERS);
            integer.then_some(Ending { integer, ..ending })
        }
        Types::ARRAY => {
            let items = fields.get("items").unwrap_or(&Value::Bool(true));
            let array = !has(&OF_ARRAYS) && !items.is_array() && *items != json!(false);
            let unique = fields
                .get("uniqueItems")
                .is_some_and(|unique| *unique != json!(false));
            let array = array && (!unique || below(document, items, depth + 1).is_some());
            array.then_some(Ending { array, ..ending })
        }
        Types::OBJECT => {
            let object = Some(of_object(document, fields, depth)?);
            Some(Ending { object, ..ending })
        }
        _ => None,
    }
}

/// The member that decides: the last one, or one that must be there.
fn of_object(document: &Document, fields: &Map<String, Value>, depth: usize) -> Option<Members> {
    if OF_OBJECTS.iter().any(|key| fields.contains_key(*key)) {
        return None;
    }
    if fields.get("additionalProperties") != Some(&json!(false)) {
        return Some(Members::Open);
    }
    let named = fields.get("properties").and_then(Value::as_object)?;
    let required = fields.get("required").and_then(Value::as_array);
    let required: Vec<&str> = required
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if required.iter().any(|name| !named.contains_key(*name)) {
        return None;
    }
    let last_first = named
        .iter()
        .rev()
        .filter(|(_, schema)| **schema != json!(false));
    for (index, (name, schema)) in last_first.enumerate() {
        if index > 0 && !required.contains(&name.as_str()) {
            continue;
        }
        if let Some(ending) = below(document, schema, depth + 1) {
            return Some(Members::Through(name.clone(), ending.into()));
        }
    }
    None
}
