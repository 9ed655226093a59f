//! Finds the part of a schema that cannot be compiled, so that the message names its path.

use serde_json::Value;

use crate::pointer::push_key;

/// Compilations that are spent on a message.
const MAX_ATTEMPTS: usize = 64;
/// Values of the schemas that they compile, together. The message is not to take longer than what it is
/// about.
const MAX_VALUES: usize = 20_000;
/// Keywords whose value is a schema.
const SCHEMAS: [&str; 4] = ["items", "additionalProperties", "not", "contains"];
/// Keywords whose value is a list of schemas.
const LISTS: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];
/// Keywords whose value holds schemas by name.
const MAPS: [&str; 4] = ["properties", "$defs", "definitions", "patternProperties"];

/// The path of the innermost part of `root` that `fails` by itself.
pub(crate) fn find(root: &Value, mut fails: impl FnMut(Value) -> bool) -> String {
    let mut path = String::new();
    let (mut attempts, mut values) = (0, 0);
    let mut part = root;
    'deeper: loop {
        for (child_path, child) in children(part) {
            let candidate = with_definitions(root, child);
            attempts += 1;
            values += count(&candidate);
            if attempts > MAX_ATTEMPTS || values > MAX_VALUES {
                return path;
            }
            if fails(candidate) {
                path.push_str(&child_path);
                part = child;
                continue 'deeper;
            }
        }
        return path;
    }
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

fn children(schema: &Value) -> Vec<(String, &Value)> {
    let mut children = Vec::new();
    let Value::Object(fields) = schema else {
        return children;
    };
    for (key, value) in fields {
        let mut path = String::new();
        push_key(&mut path, key);
        match value {
            Value::Object(_) if SCHEMAS.contains(&key.as_str()) => children.push((path, value)),
            Value::Array(items) if LISTS.contains(&key.as_str()) => {
                for (index, item) in items.iter().enumerate() {
                    children.push((format!("{path}/{index}"), item));
                }
            }
            Value::Object(named) if MAPS.contains(&key.as_str()) => {
                for (name, item) in named {
                    let mut path = path.clone();
                    push_key(&mut path, name);
                    children.push((path, item));
                }
            }
            _ => {}
        }
    }
    children
}

/// References of a part point into the root.
fn with_definitions(root: &Value, part: &Value) -> Value {
    let mut part = part.clone();
    if let Value::Object(fields) = &mut part {
        for key in ["$defs", "definitions"] {
            if let (Some(definitions), None) = (root.get(key), fields.get(key)) {
                fields.insert(key.to_owned(), definitions.clone());
            }
        }
    }
    part
}
