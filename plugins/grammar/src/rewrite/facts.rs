//! Facts of a schema, as far as they can be told without a grammar: its types, and whether it has values in common with
//! another.

use serde_json::{Map, Value};

use super::document::{Document, MAX_DEPTH, PATTERN_STEPS};
use super::strings;
use super::types::Types;

/// A schema and those that hold together with it: parts that all hold, and lists of which one holds.
#[derive(Clone, Default)]
struct View<'a> {
    never: bool,
    parts: Vec<&'a Map<String, Value>>,
    choices: Vec<&'a Vec<Value>>,
}

impl Document {
    /// Types of which the schema may take values.
    pub(super) fn types(&self, schema: &Value) -> Types {
        self.types_below(schema, 0)
    }

    fn types_below(&self, schema: &Value, depth: usize) -> Types {
        let fields = match schema {
            Value::Bool(false) => return Types::NONE,
            Value::Object(fields) if depth < MAX_DEPTH && !self.is_spent() => fields,
            _ => return Types::ALL,
        };
        let mut types = Types::ALL;
        for (key, value) in fields {
            let union = |schemas: &[Value]| {
                schemas.iter().fold(Types::NONE, |types, schema| {
                    types.or(self.types_below(schema, depth + 1))
                })
            };
            types = types.and(match (key.as_str(), value) {
                ("type", value) => Types::read(value).unwrap_or(Types::ALL),
                ("const", value) => Types::of(value),
                ("enum", Value::Array(values)) => values
                    .iter()
                    .fold(Types::NONE, |types, value| types.or(Types::of(value))),
                ("anyOf" | "oneOf", Value::Array(schemas)) => union(schemas),
                ("allOf", Value::Array(schemas)) => {
                    schemas.iter().fold(Types::ALL, |types, schema| {
                        types.and(self.types_below(schema, depth + 1))
                    })
                }
                ("$ref", reference) => match self.target(reference) {
                    Some(target) => self.types_below(target, depth + 1),
                    None => Types::ALL,
                },
                _ => Types::ALL,
            });
        }
        types
    }

    fn view<'a>(&'a self, schema: &'a Value) -> View<'a> {
        let mut view = View::default();
        self.add_to(&mut view, schema, 0);
        view
    }

    fn add_to<'a>(&'a self, view: &mut View<'a>, schema: &'a Value, depth: usize) {
        let fields = match schema {
            Value::Bool(false) => {
                view.never = true;
                return;
            }
            Value::Object(fields) if depth < MAX_DEPTH && !self.is_spent() => fields,
            _ => return,
        };
        view.parts.push(fields);
        for (key, value) in fields {
            match (key.as_str(), value) {
                ("allOf", Value::Array(schemas)) => schemas
                    .iter()
                    .for_each(|schema| self.add_to(view, schema, depth + 1)),
                ("anyOf" | "oneOf", Value::Array(schemas)) => view.choices.push(schemas),
                ("$ref", reference) => {
                    if let Some(target) = self.target(reference) {
                        self.add_to(view, target, depth + 1);
                    }
                }
                _ => {}
            }
        }
    }

    /// Whether no value fits both. False where that cannot be told.
    pub(super) fn are_disjoint(&self, a: &Value, b: &Value) -> bool {
        self.disjoint(&self.view(a), &self.view(b), 0)
    }

    fn disjoint<'a>(&'a self, a: &View<'a>, b: &View<'a>, depth: usize) -> bool {
        if depth > MAX_DEPTH || self.is_spent() {
            return false;
        }
        if a.never || b.never || self.disjoint_parts(a, b, depth) {
            return true;
        }
        for (one, other) in [(a, b), (b, a)] {
            let Some((options, rest)) = one.choices.split_last() else {
                continue;
            };
            return options.iter().all(|option| {
                let mut chosen = View {
                    choices: rest.to_vec(),
                    ..one.clone()
                };
                self.add_to(&mut chosen, option, depth + 1);
                self.disjoint(&chosen, other, depth + 1)
            });
        }
        false
    }

    fn disjoint_parts<'a>(&'a self, a: &View<'a>, b: &View<'a>, depth: usize) -> bool {
        let types = types_of_parts(a).and(types_of_parts(b));
        if types.is_empty() {
            return true;
        }
        for (one, other) in [(a, b), (b, a)] {
            if let Some(values) = finite(one) {
                let fits = |value: &&Value| {
                    let mut parts = one.parts.iter().chain(&other.parts);
                    !parts.any(|part| self.admits_part(part, value, depth + 1) == Some(false))
                };
                if !values.iter().any(|value| fits(&value)) {
                    return true;
                }
            }
        }
        let parts: Vec<&Map<String, Value>> = a.parts.iter().chain(&b.parts).copied().collect();
        types.each().all(|types| {
            if types == Types::STRING {
                self.strings_conflict(&parts)
            } else if types == Types::OBJECT {
                crosses(&parts, "minProperties", "maxProperties")
                    || self.objects_conflict(a, b, depth)
            } else if types == Types::ARRAY {
                crosses(&parts, "minItems", "maxItems") || self.arrays_conflict(a, b, depth)
            } else if types.meets(Types::NUMBER) {
                numbers_conflict(&parts)
            } else {
                false
            }
        })
    }

    fn strings_conflict(&self, parts: &[&Map<String, Value>]) -> bool {
        let patterns: Vec<&str> = parts
            .iter()
            .filter_map(|part| part.get("pattern")?.as_str())
            .take(8)
            .collect();
        crosses(parts, "minLength", "maxLength")
            || patterns.iter().enumerate().any(|(index, a)| {
                patterns[index + 1..]
                    .iter()
                    .any(|b| a != b && !self.spend(PATTERN_STEPS) && strings::disjoint(a, b))
            })
    }

    /// Schemas that a part has for a property.
    fn property_schemas<'a>(&self, part: &'a Map<String, Value>, name: &str) -> Vec<&'a Value> {
        let mut found: Vec<&Value> = part
            .get("properties")
            .and_then(|named| named.get(name))
            .into_iter()
            .collect();
        let patterns = part.get("patternProperties").and_then(Value::as_object);
        for (pattern, schema) in patterns.into_iter().flatten() {
            match self.matches(pattern, name) {
                Some(true) => found.push(schema),
                Some(false) => {}
                // It may be one of those, and then it is no additional one.
                None => return found,
            }
        }
        if found.is_empty() {
            found.extend(part.get("additionalProperties"));
        }
        found
    }

    /// Whether a property that one of two views requires cannot satisfy both.
    fn objects_conflict<'a>(&'a self, a: &View<'a>, b: &View<'a>, depth: usize) -> bool {
        let required = |view: &View<'a>| -> Vec<&'a str> {
            let lists = view
                .parts
                .iter()
                .filter_map(|part| part.get("required")?.as_array());
            lists.flatten().filter_map(Value::as_str).collect()
        };
        let mut names = required(a);
        names.extend(required(b));
        names.sort_unstable();
        names.dedup();
        names.iter().any(|name| {
            let property = |view: &View<'a>| {
                let mut properties = View::default();
                for part in &view.parts {
                    for schema in self.property_schemas(part, name) {
                        self.add_to(&mut properties, schema, depth + 1);
                    }
                }
                properties
            };
            self.disjoint(&property(a), &property(b), depth + 1)
        })
    }

    /// Whether an item that one of two views requires cannot satisfy both.
    fn arrays_conflict<'a>(&'a self, a: &View<'a>, b: &View<'a>, depth: usize) -> bool {
        let least =
            |view: &View<'_>| bound(&view.parts, "minItems", f64::max).unwrap_or(0.0) as usize;
        let required = least(a).max(least(b)).min(8);
        (0..required).any(|index| {
            let item = |view: &View<'a>| {
                let mut items = View::default();
                for part in &view.parts {
                    if let Some(schema) = item_schema(part, index) {
                        self.add_to(&mut items, schema, depth + 1);
                    }
                }
                items
            };
            self.disjoint(&item(a), &item(b), depth + 1)
        })
    }
}

fn types_of_parts(view: &View<'_>) -> Types {
    view.parts.iter().fold(Types::ALL, |types, part| {
        types.and(part.get("type").and_then(Types::read).unwrap_or(Types::ALL))
    })
}

/// All values that the schema may take, if it lists them.
fn finite<'a>(view: &View<'a>) -> Option<&'a [Value]> {
    view.parts
        .iter()
        .find_map(|part| match (part.get("const"), part.get("enum")) {
            (Some(value), _) => Some(std::slice::from_ref(value)),
            (None, Some(Value::Array(values))) => Some(values.as_slice()),
            _ => None,
        })
}

fn bound(parts: &[&Map<String, Value>], key: &str, tighter: fn(f64, f64) -> f64) -> Option<f64> {
    let bounds = parts.iter().filter_map(|part| part.get(key)?.as_f64());
    bounds.reduce(tighter)
}

/// Whether the largest lower bound is above the smallest upper bound.
fn crosses(parts: &[&Map<String, Value>], least: &str, most: &str) -> bool {
    match (bound(parts, least, f64::max), bound(parts, most, f64::min)) {
        (Some(least), Some(most)) => least > most,
        _ => false,
    }
}

fn numbers_conflict(parts: &[&Map<String, Value>]) -> bool {
    let meet = |least: &str, most: &str| {
        let least = bound(parts, least, f64::max);
        least.is_some_and(|least| bound(parts, most, f64::min).is_some_and(|most| least >= most))
    };
    crosses(parts, "minimum", "maximum")
        || meet("exclusiveMinimum", "maximum")
        || meet("minimum", "exclusiveMaximum")
        || meet("exclusiveMinimum", "exclusiveMaximum")
}

/// Schema that a part has for an item.
fn item_schema(part: &Map<String, Value>, index: usize) -> Option<&Value> {
    let items = part.get("items");
    match (part.get("prefixItems"), items) {
        (Some(Value::Array(first)), _) if index < first.len() => first.get(index),
        (_, Some(Value::Array(first))) => first.get(index).or_else(|| part.get("additionalItems")),
        _ => items,
    }
}
