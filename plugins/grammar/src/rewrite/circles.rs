//! References in a circle that have other keywords beside them. llguidance puts such a reference and its keywords
//! together at once, and needs what it refers to, which may be what it is just reading. Here they become a definition of
//! their own, in which the reference is written out, and a reference to that.

use serde_json::{Map, Value, json};

use super::keywords::{NAMED, SCHEMAS};

/// Definitions that are made.
const MAX_DEFINITIONS: usize = 256;
/// References that are written out, one within the other.
const MAX_WRITTEN_OUT: usize = 8;
/// Values of the schema that comes of it.
const MAX_BROKEN_UP: usize = 60_000;
/// Start of the names of definitions that are made.
const PREFIX: &str = "mortise-circle-";

/// The schema with its references in circles apart from other keywords. `None` where that becomes too large.
pub(crate) fn broken_up(schema: &Value) -> Option<Value> {
    let empty = Map::new();
    let old = schema.get("$defs").and_then(Value::as_object);
    let mut circles = Circles {
        old: old.unwrap_or(&empty),
        made: Vec::new(),
        definitions: Map::new(),
        left: MAX_BROKEN_UP,
    };
    let mut fields = schema.as_object()?.clone();
    fields.shift_remove("$defs");
    let mut root = circles.inside(&circles.written_out(&Value::Object(fields), 0)?)?;
    for (name, definition) in circles.old {
        let definition = circles.inside(&circles.written_out(definition, 0)?)?;
        circles.definitions.insert(name.clone(), definition);
    }
    root.as_object_mut()?
        .insert("$defs".to_owned(), circles.definitions.into());
    Some(root)
}

struct Circles<'a> {
    old: &'a Map<String, Value>,
    /// Schemas that have become definitions, in the order of their numbers.
    made: Vec<Value>,
    definitions: Map<String, Value>,
    left: usize,
}

impl Circles<'_> {
    fn target(&self, schema: &Value) -> Option<&Value> {
        let reference = schema.get("$ref")?.as_str()?;
        self.old.get(reference.strip_prefix("#/$defs/")?)
    }

    /// The schema of a member, an item or a definition: a reference, if it puts references and others together.
    fn placed(&mut self, schema: &Value) -> Option<Value> {
        if !puts_together(schema) {
            return self.inside(schema);
        }
        let known = self.made.iter().position(|made| made == schema);
        let number = known.unwrap_or(self.made.len());
        let name = format!("{PREFIX}{number}");
        if known.is_none() {
            if number >= MAX_DEFINITIONS {
                return None;
            }
            self.made.push(schema.clone());
            let definition = self.inside(&self.written_out(schema, 0)?)?;
            self.definitions.insert(name.clone(), definition);
        }
        Some(json!({"$ref": format!("#/$defs/{name}")}))
    }

    /// The schema with its members and items placed.
    fn inside(&mut self, schema: &Value) -> Option<Value> {
        self.left = self.left.checked_sub(1)?;
        let Value::Object(fields) = schema else {
            return Some(schema.clone());
        };
        let mut result = Map::new();
        for (key, value) in fields {
            let applied = matches!(key.as_str(), "allOf" | "anyOf" | "oneOf");
            let value = match value {
                Value::Object(named) if NAMED.contains(&key.as_str()) => {
                    let mut placed = Map::new();
                    for (name, part) in named {
                        placed.insert(name.clone(), self.placed(part)?);
                    }
                    Value::Object(placed)
                }
                Value::Array(parts) if SCHEMAS.contains(&key.as_str()) => {
                    let each = parts.iter().map(|part| match applied {
                        true => self.inside(part),
                        false => self.placed(part),
                    });
                    each.collect::<Option<Value>>()?
                }
                Value::Object(_) if SCHEMAS.contains(&key.as_str()) && key != "x-guidance" => {
                    self.placed(value)?
                }
                value => value.clone(),
            };
            result.insert(key.clone(), value);
        }
        Some(Value::Object(result))
    }

    /// The schema with what its references lead to in their place, as far as they are put together with others.
    fn written_out(&self, schema: &Value, links: usize) -> Option<Value> {
        let Value::Object(fields) = schema else {
            return Some(schema.clone());
        };
        if !puts_together(schema) && links == 0 {
            return Some(schema.clone());
        }
        if links > MAX_WRITTEN_OUT {
            return None;
        }
        let mut result = Map::new();
        for (key, value) in fields {
            let value = match (key.as_str(), value) {
                ("allOf" | "anyOf", Value::Array(parts)) => {
                    let parts = parts.iter();
                    parts
                        .map(|part| self.written_out(part, links + 1))
                        .collect::<Option<Value>>()?
                }
                _ => value.clone(),
            };
            result.insert(key.clone(), value);
        }
        if let Some(target) = self.target(schema) {
            let target = self.written_out(target, links + 1)?;
            result.shift_remove("$ref");
            if result.is_empty() {
                return Some(target);
            }
            match result.get_mut("allOf") {
                Some(Value::Array(parts)) => parts.push(target),
                _ => drop(result.insert("allOf".to_owned(), json!([target]))),
            }
        }
        Some(Value::Object(result))
    }
}

/// True if a reference stands beside other keywords, or among schemas that hold together.
fn puts_together(schema: &Value) -> bool {
    let Value::Object(fields) = schema else {
        return false;
    };
    let refers = fields.keys().any(|key| key == "$ref");
    let among = |key: &str| {
        let parts = fields.get(key).and_then(Value::as_array);
        parts.is_some_and(|parts| parts.iter().any(refers_at_once))
    };
    among("allOf") || (refers || among("anyOf")) && fields.len() > 1
}

/// True if a schema is a reference, or combines such.
fn refers_at_once(schema: &Value) -> bool {
    let Value::Object(fields) = schema else {
        return false;
    };
    let parts = ["allOf", "anyOf"]
        .into_iter()
        .filter_map(|key| fields.get(key)?.as_array());
    fields.contains_key("$ref") || parts.flatten().any(refers_at_once)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_goes_through_references_alone() {
        let schema = json!({
            "$ref": "#/$defs/node",
            "$defs": {
                "node": {"type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string"},
                    "next": {"allOf": [{"$ref": "#/$defs/node"}, {"$ref": "#/$defs/short"}]},
                }},
                "short": {"properties": {"name": {"maxLength": 3}}},
            },
        });
        let broken = broken_up(&schema).unwrap();
        let circle = json!({"$ref": "#/$defs/mortise-circle-0"});
        assert_eq!(broken["$defs"]["node"]["properties"]["next"], circle);
        let made = &broken["$defs"]["mortise-circle-0"]["allOf"];
        assert_eq!(made[0]["properties"]["next"], circle);
        assert_eq!(made[1], schema["$defs"]["short"]);
        // One that never comes to a member has no end.
        let endless =
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}});
        assert_eq!(broken_up(&endless), None);
    }
}
