//! Names of members in one spelling. JSON has several for a letter, and llguidance tells members that are named from others
//! by how they are written: `"\u0061"` would be another one beside `"a"`, with a schema of its own. Here no name can be
//! written with such an escape.

use serde_json::{Map, Value, json};

use super::keywords::{DATA, NAMED};

/// Keyword in which llguidance has its options.
const OPTIONS: &str = "x-guidance";
/// Escapes of texts where none by number are left.
const SHORT_ESCAPES: &str = "nrbtf\\\"";

/// Members of a schema beside the named ones.
#[derive(Default)]
struct Others {
    /// Flag: there may be other members, beside named ones or patterns.
    beside: bool,
    /// Flag: some members are told from others by more than a list of names.
    narrow: bool,
}

/// Whether members have several spellings in the grammar of a rewritten schema.
pub(crate) fn have_spellings(schema: &Value) -> bool {
    looked_at(schema).beside
}

/// The rewritten schema with one spelling of each name.
///
/// Where members that are not named may be anything, they become those that match the empty pattern: llguidance
/// writes such names as it writes texts, with escapes for control characters alone. That pattern meets all others, so
/// where there are any, or where other members have a schema, the whole schema goes without escapes by number.
pub(crate) fn spelled_once(schema: Value) -> Value {
    let others = looked_at(&schema);
    match (others.beside, others.narrow) {
        (false, _) => schema,
        (true, false) => with_pattern(schema),
        (true, true) => without_numbers(schema),
    }
}

fn looked_at(schema: &Value) -> Others {
    let mut others = Others::default();
    look(schema, &mut others);
    others
}

fn look(schema: &Value, others: &mut Others) {
    match schema {
        Value::Object(fields) => {
            let patterns = fields.get("patternProperties").and_then(Value::as_object);
            let patterns = patterns.is_some_and(|patterns| !patterns.is_empty());
            let names = names(fields);
            // A part of several that hold together may have them all, and another the rest.
            others.narrow |= patterns;
            if (patterns || !names.is_empty()) && others_of(fields) != Some(&json!(false)) {
                others.beside = true;
                others.narrow |= !is_anything(others_of(fields));
                others.narrow |= names.iter().any(|name| name.chars().any(is_control));
            }
            for (key, value) in fields {
                match value {
                    Value::Object(named) if NAMED.contains(&key.as_str()) => {
                        named.values().for_each(|part| look(part, others));
                    }
                    value if !DATA.contains(&key.as_str()) => look(value, others),
                    _ => {}
                }
            }
        }
        Value::Array(parts) => parts.iter().for_each(|part| look(part, others)),
        _ => {}
    }
}

fn names(fields: &Map<String, Value>) -> Vec<&str> {
    let named = fields.get("properties").and_then(Value::as_object);
    let required = fields.get("required").and_then(Value::as_array);
    let required = required.into_iter().flatten().filter_map(Value::as_str);
    let named = named.into_iter().flatten().map(|(name, _)| name.as_str());
    named.chain(required).collect()
}

fn others_of(fields: &Map<String, Value>) -> Option<&Value> {
    fields.get("additionalProperties")
}

fn is_anything(schema: Option<&Value>) -> bool {
    match schema {
        None | Some(Value::Bool(true)) => true,
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(_) => false,
    }
}

/// Whether a letter has several escapes.
fn is_control(letter: char) -> bool {
    letter.is_ascii_control()
}

fn with_pattern(schema: Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let open = !names(&fields).is_empty() && is_anything(others_of(&fields));
            let fields = fields.into_iter().map(|(key, value)| {
                let value = match value {
                    Value::Object(named) if NAMED.contains(&key.as_str()) => {
                        let named = named.into_iter();
                        Value::Object(
                            named
                                .map(|(name, part)| (name, with_pattern(part)))
                                .collect(),
                        )
                    }
                    value if DATA.contains(&key.as_str()) => value,
                    value => with_pattern(value),
                };
                (key, value)
            });
            let mut fields: Map<String, Value> = fields.collect();
            if open {
                fields.insert("patternProperties".to_owned(), json!({"": true}));
                fields.insert("additionalProperties".to_owned(), json!(false));
            }
            Value::Object(fields)
        }
        Value::Array(parts) => parts.into_iter().map(with_pattern).collect(),
        other => other,
    }
}

fn without_numbers(mut schema: Value) -> Value {
    if let Value::Object(fields) = &mut schema {
        let options = fields.entry(OPTIONS).or_insert_with(|| json!({}));
        if let Value::Object(options) = options {
            options.insert("json_allowed_escapes".to_owned(), json!(SHORT_ESCAPES));
        }
    }
    schema
}
