//! Values that a schema takes, where that can be told.

use serde_json::{Map, Value};

use super::document::{Document, MAX_DEPTH};
use super::types::Types;

/// Items of an array that are compared with each other.
const MAX_COMPARED: usize = 256;

impl Document {
    /// Whether the schema takes the value, if that can be told.
    pub(super) fn admits(&self, schema: &Value, value: &Value) -> Option<bool> {
        self.admits_below(schema, value, 0)
    }

    fn admits_below(&self, schema: &Value, value: &Value, depth: usize) -> Option<bool> {
        match schema {
            Value::Bool(takes) => Some(*takes),
            Value::Object(fields) if depth < MAX_DEPTH && !self.is_spent() => {
                self.admits_part(fields, value, depth)
            }
            _ => None,
        }
    }

    /// Whether these keywords take the value, if that can be told.
    pub(super) fn admits_part(
        &self,
        fields: &Map<String, Value>,
        value: &Value,
        depth: usize,
    ) -> Option<bool> {
        let part = Part {
            document: self,
            fields,
            depth,
        };
        all(fields
            .iter()
            .map(|(key, argument)| part.keyword(key, argument, value)))
    }
}

/// Keywords that hold together.
struct Part<'a> {
    document: &'a Document,
    fields: &'a Map<String, Value>,
    depth: usize,
}

impl Part<'_> {
    fn below(&self, schema: &Value, value: &Value) -> Option<bool> {
        self.document.admits_below(schema, value, self.depth + 1)
    }

    fn keyword(&self, key: &str, argument: &Value, value: &Value) -> Option<bool> {
        let below = |schema: &Value| self.below(schema, value);
        match (key, argument) {
            ("type", types) => Some(Types::read(types)?.meets(Types::of(value))),
            ("const", constant) => Some(equal(constant, value)),
            ("enum", Value::Array(values)) => Some(values.iter().any(|one| equal(one, value))),
            ("allOf", Value::Array(schemas)) => all(schemas.iter().map(below)),
            ("anyOf", Value::Array(schemas)) => any(schemas.iter().map(below)),
            ("oneOf", Value::Array(schemas)) => {
                let answers: Option<Vec<bool>> = schemas.iter().map(below).collect();
                Some(answers?.iter().filter(|takes| **takes).count() == 1)
            }
            ("not", schema) => below(schema).map(|takes| !takes),
            ("$ref", reference) => below(self.document.target(reference)?),
            ("if", condition) => match below(condition)? {
                true => self.fields.get("then").map_or(Some(true), below),
                false => self.fields.get("else").map_or(Some(true), below),
            },
            ("then" | "else", _) => Some(true),
            _ => match value {
                Value::String(text) => self.string(key, argument, text),
                Value::Number(_) => number(key, argument, value),
                Value::Array(items) => self.array(key, argument, items),
                Value::Object(members) => self.object(key, argument, members),
                _ => is_not_about(key, Types::of(value)),
            },
        }
    }

    fn string(&self, key: &str, argument: &Value, text: &str) -> Option<bool> {
        let length = || text.chars().count() as f64;
        match key {
            "pattern" => self.document.matches(argument.as_str()?, text),
            "minLength" => Some(length() >= argument.as_f64()?),
            "maxLength" => Some(length() <= argument.as_f64()?),
            key => is_not_about(key, Types::STRING),
        }
    }

    fn array(&self, key: &str, argument: &Value, items: &[Value]) -> Option<bool> {
        let named = |key: &str| self.fields.get(key).and_then(Value::as_array);
        match (key, argument) {
            ("minItems", least) => Some(items.len() as f64 >= least.as_f64()?),
            ("maxItems", most) => Some(items.len() as f64 <= most.as_f64()?),
            ("prefixItems" | "items", Value::Array(first)) => all(items
                .iter()
                .zip(first)
                .map(|(item, schema)| self.below(schema, item))),
            ("items", schema) => {
                let first = named("prefixItems").map_or(0, Vec::len);
                all(items
                    .iter()
                    .skip(first)
                    .map(|item| self.below(schema, item)))
            }
            ("additionalItems", schema) => {
                let Some(first) = named("items") else {
                    return Some(true);
                };
                all(items
                    .iter()
                    .skip(first.len())
                    .map(|item| self.below(schema, item)))
            }
            ("uniqueItems", Value::Bool(unique)) if items.len() <= MAX_COMPARED => {
                let again = |(at, item)| items[..at].iter().any(|other| equal(other, item));
                Some(!unique || !items.iter().enumerate().any(again))
            }
            ("contains", schema) => {
                let answers = items.iter().map(|item| self.below(schema, item));
                let count = answers.collect::<Option<Vec<bool>>>()?;
                let count = count.into_iter().filter(|takes| *takes).count() as f64;
                let bound = |key: &str| self.fields.get(key).map(Value::as_f64);
                let least = bound("minContains").unwrap_or(Some(1.0))?;
                let most = bound("maxContains").unwrap_or(Some(f64::INFINITY))?;
                Some((least..=most).contains(&count))
            }
            ("minContains" | "maxContains", _) => Some(true),
            (key, _) => is_not_about(key, Types::ARRAY),
        }
    }

    fn object(&self, key: &str, argument: &Value, members: &Map<String, Value>) -> Option<bool> {
        let has = |name: &Value| name.as_str().is_some_and(|name| members.contains_key(name));
        match (key, argument) {
            ("required", Value::Array(names)) => Some(names.iter().all(has)),
            ("minProperties", least) => Some(members.len() as f64 >= least.as_f64()?),
            ("maxProperties", most) => Some(members.len() as f64 <= most.as_f64()?),
            ("properties", Value::Object(named)) => all(named.iter().map(|(name, schema)| {
                let member = members.get(name);
                member.map_or(Some(true), |member| self.below(schema, member))
            })),
            ("patternProperties", Value::Object(patterns)) => {
                let pairs = patterns
                    .iter()
                    .flat_map(|pattern| members.iter().map(move |member| (pattern, member)));
                all(pairs.map(|((pattern, schema), (name, member))| {
                    match self.document.matches(pattern, name)? {
                        true => self.below(schema, member),
                        false => Some(true),
                    }
                }))
            }
            ("additionalProperties", schema) => {
                all(members
                    .iter()
                    .map(|(name, member)| match self.is_named(name)? {
                        true => Some(true),
                        false => self.below(schema, member),
                    }))
            }
            ("propertyNames", schema) => {
                let names = members.keys().map(|name| Value::from(name.as_str()));
                all(names.map(|name| self.below(schema, &name)))
            }
            ("dependencies" | "dependentRequired" | "dependentSchemas", Value::Object(all_of)) => {
                let there = all_of
                    .iter()
                    .filter(|(name, _)| members.contains_key(*name));
                all(there.map(|(_, needed)| match needed {
                    Value::Array(names) => Some(names.iter().all(has)),
                    schema => self.below(schema, &Value::Object(members.clone())),
                }))
            }
            (key, _) => is_not_about(key, Types::OBJECT),
        }
    }

    /// Whether `properties` or a pattern names a member, so that it is no additional one.
    fn is_named(&self, name: &str) -> Option<bool> {
        let named = |key: &str| self.fields.get(key).and_then(Value::as_object);
        if named("properties").is_some_and(|named| named.contains_key(name)) {
            return Some(true);
        }
        let patterns = named("patternProperties").into_iter().flatten();
        any(patterns.map(|(pattern, _)| self.document.matches(pattern, name)))
    }
}

fn number(key: &str, argument: &Value, value: &Value) -> Option<bool> {
    let number = value.as_f64()?;
    match key {
        "minimum" => Some(number >= argument.as_f64()?),
        "maximum" => Some(number <= argument.as_f64()?),
        "exclusiveMinimum" => Some(number > argument.as_f64()?),
        "exclusiveMaximum" => Some(number < argument.as_f64()?),
        "multipleOf" => is_multiple(value, argument),
        key => is_not_about(key, Types::NUMBER),
    }
}

/// Whether a number is a multiple of another, by their decimal digits. `None` where they have too many.
fn is_multiple(value: &Value, of: &Value) -> Option<bool> {
    let (value, value_exponent) = decimal(value)?;
    let (of, of_exponent) = decimal(of)?;
    let least = value_exponent.min(of_exponent);
    let scaled = |digits: i128, exponent: i32| {
        let power = u32::try_from(exponent - least).ok()?;
        digits.checked_mul(10_i128.checked_pow(power)?)
    };
    let (value, of) = (scaled(value, value_exponent)?, scaled(of, of_exponent)?);
    (of != 0).then(|| value % of == 0)
}

/// Digits and power of ten of a number.
fn decimal(number: &Value) -> Option<(i128, i32)> {
    let text = number.as_number()?.to_string();
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text.as_str(), 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}").parse().ok()?;
    Some((digits, exponent - i32::try_from(fraction.len()).ok()?))
}

/// `true` for a keyword that says nothing of values of these types, `None` for one that may.
fn is_not_about(key: &str, types: Types) -> Option<bool> {
    about(key).filter(|about| !about.meets(types)).map(|_| true)
}

/// Types of which a keyword says something. `None` for a keyword of which that is not known here.
fn about(key: &str) -> Option<Types> {
    Some(match key {
        "minLength" | "maxLength" | "pattern" | "format" => Types::STRING,
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => {
            Types::NUMBER
        }
        "items" | "prefixItems" | "additionalItems" | "minItems" | "maxItems" | "uniqueItems"
        | "contains" | "minContains" | "maxContains" | "unevaluatedItems" => Types::ARRAY,
        "properties"
        | "patternProperties"
        | "additionalProperties"
        | "required"
        | "minProperties"
        | "maxProperties"
        | "propertyNames"
        | "dependencies"
        | "dependentRequired"
        | "dependentSchemas"
        | "unevaluatedProperties" => Types::OBJECT,
        "$dynamicRef" | "$recursiveRef" | "x-guidance" => return None,
        _ => Types::NONE,
    })
}

fn all(answers: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut result = Some(true);
    for answer in answers {
        match answer {
            Some(true) => {}
            Some(false) => return Some(false),
            None => result = None,
        }
    }
    result
}

fn any(answers: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    all(answers.map(|answer| answer.map(|answer| !answer))).map(|none| !none)
}

/// Equality of JSON values: numbers by what they say.
pub(crate) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(key, a)| b.get(key).is_some_and(|b| equal(a, b)))
        }
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A verdict on a value, where there is one, is that of a validator.
    #[test]
    fn what_is_told_of_a_value_is_what_a_validator_says() {
        let values = [
            json!(null),
            json!(0),
            json!(0.0075),
            json!(0.00751),
            json!(-6),
            json!(1e308),
            json!(12.5),
            json!("ab"),
            json!(""),
            json!([]),
            json!([1, 1.0]),
            json!(["a", 7, "a"]),
            json!([[], {}]),
            json!({}),
            json!({"ab": 1}),
            json!({"a": "x", "b": 3, "cc": [2]}),
            json!({"aaa": 30}),
        ];
        let schemas = [
            json!({"multipleOf": 0.0001}),
            json!({"multipleOf": 3}),
            json!({"multipleOf": 2.5}),
            json!({"uniqueItems": true}),
            json!({"items": {"type": "string"}}),
            json!({"prefixItems": [{"type": "string"}], "items": {"type": "integer"}}),
            json!({"contains": {"const": "a"}}),
            json!({"contains": {"const": "a"}, "minContains": 2, "maxContains": 2}),
            json!({"contains": {"const": 9}, "minContains": 0}),
            json!({"patternProperties": {"^a": {"type": "integer"}, "aa": {"maximum": 20}}}),
            json!({"properties": {"a": {}}, "patternProperties": {"^b": {}}, "additionalProperties": {"type": "array"}}),
            json!({"additionalProperties": false}),
            json!({"propertyNames": {"maxLength": 1}}),
            json!({"propertyNames": {"not": {"pattern": "a"}}}),
            json!({"dependentRequired": {"a": ["b", "z"]}}),
            json!({"dependentSchemas": {"a": {"maxProperties": 3}}}),
            json!({"if": {"type": "string"}, "then": {"minLength": 1}, "else": {"type": ["object", "array"]}}),
            json!({"not": {"multipleOf": 2}, "type": "number"}),
            json!({"oneOf": [{"type": "integer"}, {"minimum": 2}]}),
        ];
        let mut told = 0;
        for schema in &schemas {
            let document = Document::new(Map::new());
            for value in &values {
                let Some(takes) = document.admits(schema, value) else {
                    continue;
                };
                told += 1;
                assert_eq!(
                    takes,
                    jsonschema::is_valid(schema, value),
                    "{schema} {value}"
                );
            }
        }
        assert!(told > 250, "{told}");
        let draft_7 = json!({"items": [{"type": "string"}], "additionalItems": false});
        let document = Document::new(Map::new());
        assert_eq!(document.admits(&draft_7, &json!(["a"])), Some(true));
        assert_eq!(document.admits(&draft_7, &json!(["a", 1])), Some(false));
    }
}
