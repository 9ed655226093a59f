//! Upper bound of what validating a value against a schema takes.
//!
//! A validator applies the schemas that `$ref`, `allOf` and their like name one by one, each time anew: forty
//! definitions that each refer twice to the next are 2^40 applications. Here each pair of a schema and a value is
//! looked at once, and the applications below it are added up.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// Applications of a schema to a value that one validation may take.
const MAX_APPLICATIONS: u64 = 2_000_000;
/// Pairs of a schema and a value that are looked at to find that out.
const MAX_PAIRS: usize = 500_000;

/// Keywords with schemas that are applied to the same value.
const SAME_VALUE: &[&str] = &["allOf", "anyOf", "oneOf", "not", "if", "then", "else"];
/// Keywords that name another schema for the same value.
const REFERENCES: &[&str] = &["$ref", "$dynamicRef", "$recursiveRef"];
/// Keywords with a schema for each of some properties.
const BY_NAME: &[&str] = &[
    "patternProperties",
    "additionalProperties",
    "propertyNames",
    "unevaluatedProperties",
];
/// Keywords with a schema for each of some items.
const BY_ITEM: &[&str] = &["items", "additionalItems", "contains", "unevaluatedItems"];

/// Error of a value that takes too many applications.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooCostly;

/// Check that validating `value` stays within [`MAX_APPLICATIONS`].
pub(crate) fn check(schema: &Value, value: &Value) -> Result<(), TooCostly> {
    let mut costs = Costs {
        root: schema,
        names: HashMap::new(),
        known: HashMap::new(),
    };
    costs.name(schema);
    costs.apply(schema, value).map(drop)
}

struct Costs<'a> {
    root: &'a Value,
    /// Schemas by `#` with an anchor; the whole where two have the same.
    names: HashMap<String, &'a Value>,
    /// Applications below a pair, by the addresses of both; `None` while it is being counted.
    known: HashMap<(*const Value, *const Value), Option<u64>>,
}

impl<'a> Costs<'a> {
    fn name(&mut self, schema: &'a Value) {
        let mut rest = vec![schema];
        while let Some(value) = rest.pop() {
            match value {
                Value::Array(items) => rest.extend(items),
                Value::Object(fields) => {
                    for (keyword, field) in fields {
                        match (keyword.as_str(), field) {
                            ("$anchor" | "$dynamicAnchor", Value::String(name)) => {
                                let root = self.root;
                                let named = self.names.entry(format!("#{name}"));
                                named.and_modify(|named| *named = root).or_insert(value);
                            }
                            _ => rest.push(field),
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// The schema that a reference names; the whole where that is not known, which is the dearest.
    fn target(&self, reference: &str) -> &'a Value {
        if let Some(named) = self.names.get(reference) {
            return named;
        }
        let fragment = reference.strip_prefix('#').unwrap_or_default();
        let pointer = percent_decoded(fragment);
        self.root.pointer(&pointer).unwrap_or(self.root)
    }

    /// Applications that a schema and all below it take for a value and all within it.
    fn apply(&mut self, schema: &'a Value, value: &'a Value) -> Result<u64, TooCostly> {
        let Value::Object(keywords) = schema else {
            return Ok(1);
        };
        let pair = (std::ptr::from_ref(schema), std::ptr::from_ref(value));
        match self.known.get(&pair) {
            Some(Some(cost)) => return Ok(*cost),
            // It refers to itself without looking into the value.
            Some(None) => return Err(TooCostly),
            None if self.known.len() >= MAX_PAIRS => return Err(TooCostly),
            None => self.known.insert(pair, None),
        };
        let cost = 1 + self.same_value(keywords, value)? + self.parts(keywords, value)?;
        if cost > MAX_APPLICATIONS {
            return Err(TooCostly);
        }
        self.known.insert(pair, Some(cost));
        Ok(cost)
    }

    /// Applications to the value itself.
    fn same_value(
        &mut self,
        keywords: &'a Map<String, Value>,
        value: &'a Value,
    ) -> Result<u64, TooCostly> {
        let mut cost = 0;
        for keyword in REFERENCES {
            if let Some(Value::String(reference)) = keywords.get(*keyword) {
                cost += self.apply(self.target(reference), value)?;
            }
        }
        for keyword in SAME_VALUE {
            match keywords.get(*keyword) {
                Some(Value::Array(schemas)) => cost += self.all(schemas.iter(), value)?,
                Some(schema) => cost += self.apply(schema, value)?,
                None => {}
            }
        }
        for keyword in ["dependentSchemas", "dependencies"] {
            if let Some(Value::Object(schemas)) = keywords.get(keyword) {
                cost += self.all(schemas.values(), value)?;
            }
        }
        Ok(cost)
    }

    fn all(
        &mut self,
        schemas: impl Iterator<Item = &'a Value>,
        value: &'a Value,
    ) -> Result<u64, TooCostly> {
        let mut cost: u64 = 0;
        for schema in schemas {
            cost = cost.saturating_add(self.apply(schema, value)?);
        }
        Ok(cost)
    }

    /// Applications to the value's properties or items.
    fn parts(
        &mut self,
        keywords: &'a Map<String, Value>,
        value: &'a Value,
    ) -> Result<u64, TooCostly> {
        let mut cost: u64 = 0;
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    let own = keywords.get("properties").and_then(|own| own.get(name));
                    cost = cost.saturating_add(self.all(own.into_iter(), field)?);
                    for keyword in BY_NAME {
                        let of_all = keywords.get(*keyword);
                        let listed = (*keyword == "patternProperties")
                            .then(|| of_all?.as_object())
                            .flatten();
                        cost = cost.saturating_add(match listed {
                            Some(patterns) => self.all(patterns.values(), field)?,
                            None => self.all(of_all.into_iter(), field)?,
                        });
                    }
                }
            }
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    let listed = ["prefixItems", "items"].iter();
                    let own =
                        listed.filter_map(|keyword| keywords.get(*keyword)?.as_array()?.get(at));
                    cost = cost.saturating_add(self.all(own, item)?);
                    let of_all = BY_ITEM.iter().filter_map(|keyword| keywords.get(*keyword));
                    cost = cost.saturating_add(self.all(of_all, item)?);
                }
            }
            _ => {}
        }
        Ok(cost)
    }
}

/// A fragment of a reference as the JSON pointer that it stands for.
fn percent_decoded(fragment: &str) -> String {
    percent_encoding::percent_decode_str(fragment)
        .decode_utf8_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Definitions that each refer twice to the next, as `refer` says.
    fn doubled(length: usize, refer: impl Fn(Value) -> Value) -> Value {
        let definition = |at: usize| {
            (
                format!("d{at}"),
                refer(json!({"$ref": format!("#/$defs/d{}", at + 1)})),
            )
        };
        let mut definitions = Map::from_iter((0..length).map(definition));
        definitions.insert(format!("d{length}"), json!({"type": "object"}));
        json!({"$ref": "#/$defs/d0", "$defs": definitions})
    }

    fn deep(depth: usize) -> Value {
        (0..depth).fold(json!({}), |inner, _| json!({"a": inner}))
    }

    #[test]
    fn doubled_references_are_too_costly() {
        let same = |next: Value| json!({"allOf": [next, next]});
        assert_eq!(check(&doubled(10, same), &json!({})), Ok(()));
        assert_eq!(check(&doubled(40, same), &json!({})), Err(TooCostly));
        let choice = |next: Value| json!({"if": next, "else": {"anyOf": [next]}});
        assert_eq!(check(&doubled(40, choice), &json!({})), Err(TooCostly));
        let within = |next: Value| json!({"allOf": [{"properties": {"a": next}}, {"additionalProperties": next}]});
        assert_eq!(check(&doubled(40, within), &deep(5)), Ok(()));
        assert_eq!(check(&doubled(40, within), &deep(40)), Err(TooCostly));
        let items = |next: Value| json!({"items": next, "contains": next});
        let lists = (0..40).fold(json!([]), |inner, _| json!([inner]));
        assert_eq!(check(&doubled(40, items), &lists), Err(TooCostly));
        assert_eq!(check(&doubled(40, items), &json!([[[1, 2, 3]]])), Ok(()));
    }

    #[test]
    fn references_by_any_name_are_followed() {
        let named = |name: &str, reference: &str| {
            let both = json!({"allOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/b"}], name: "x"});
            json!({"$ref": reference, "$defs": {"a": both, "b": doubled(5, |next| next)["$defs"]["d5"]}})
        };
        for name in ["$anchor", "$dynamicAnchor"] {
            assert_eq!(check(&named(name, "#x"), &json!({})), Ok(()));
        }
        let escaped =
            json!({"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"$ref": "#/$defs/a~1b%20c"}}});
        assert_eq!(check(&escaped, &json!({})), Err(TooCostly));
    }

    #[test]
    fn schemas_that_apply_to_themselves_without_end_are_found() {
        assert_eq!(check(&json!({"$ref": "#"}), &json!(1)), Err(TooCostly));
        assert_eq!(
            check(&json!({"anyOf": [{"$ref": "#"}]}), &json!(1)),
            Err(TooCostly)
        );
        let list = json!({"properties": {"a": {"$ref": "#"}}});
        assert_eq!(check(&list, &deep(100)), Ok(()));
    }

    #[test]
    fn settings_of_common_shapes_cost_little() {
        let kinds: Vec<Value> = (0..20)
            .map(|n| json!({"properties": {"kind": {"const": n}, "rules": {"items": {"$ref": "#/$defs/rule"}}}}))
            .collect();
        let schema = json!({"properties": {"rules": {"items": {"$ref": "#/$defs/rule"}}}, "$defs": {"rule": {"oneOf": kinds}}});
        let rule = json!({"kind": 1, "rules": [{"kind": 2, "rules": [{"kind": 3}]}]});
        assert_eq!(check(&schema, &json!({"rules": vec![rule; 10]})), Ok(()));
    }
}
