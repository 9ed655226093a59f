//! The part of JSON Schema that the contract uses. Fuzzers check the contract with an implementation of the
//! whole; this one closes objects, and is there without a network.

use serde_json::Value;

/// First fault of a value, if there is one, with its place. `root` holds what names in the
/// schema stand for.
pub fn fault(root: &Value, schema: &Value, value: &Value, place: &str) -> Option<String> {
    if let Some(name) = schema["$ref"].as_str() {
        let target = root.pointer(&name[1..]).expect("a declared schema");
        return fault(root, target, value, place);
    }
    if let Some(kinds) = schema["anyOf"].as_array() {
        let faults = kinds.iter().map(|kind| fault(root, kind, value, place));
        let faults = faults.collect::<Option<Vec<String>>>();
        return faults.map(|faults| format!("none of {faults:?}"));
    }
    let wrong = |what: &str| Some(format!("{place} is not {what}: {value}"));
    if let Some(word) = schema.get("const").filter(|word| *word != value) {
        return wrong(&format!("{word}"));
    }
    let words = schema["enum"].as_array();
    if let Some(words) = words.filter(|words| !words.contains(value)) {
        return wrong(&format!("one of {words:?}"));
    }
    let types = match &schema["type"] {
        Value::Array(types) => types.clone(),
        Value::Null => Vec::new(),
        one => vec![one.clone()],
    };
    if !types.is_empty()
        && !types
            .iter()
            .any(|kind| is(value, kind.as_str().expect("a type")))
    {
        return wrong(&format!("of type {types:?}"));
    }
    if let (Some(least), Some(number)) = (schema["minimum"].as_f64(), value.as_f64())
        && number < least
    {
        return wrong(&format!("at least {least}"));
    }
    of_items(root, schema, value, place).or_else(|| of_members(root, schema, value, place))
}

fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} is no type"),
    }
}

fn of_items(root: &Value, schema: &Value, value: &Value, place: &str) -> Option<String> {
    let items = value.as_array()?.iter().enumerate();
    let schema = schema.get("items")?;
    let mut faults = items.map(|(at, item)| fault(root, schema, item, &format!("{place}[{at}]")));
    faults.find_map(|fault| fault)
}

fn of_members(root: &Value, schema: &Value, value: &Value, place: &str) -> Option<String> {
    let members = value.as_object()?;
    let required = schema["required"].as_array().into_iter().flatten();
    for name in required.filter_map(Value::as_str) {
        if !members.contains_key(name) {
            return Some(format!("{place} has no {name}"));
        }
    }
    for (name, member) in members {
        let known = schema["properties"].get(name);
        let inner = match (known, schema.get("additionalProperties")) {
            (None, Some(Value::Bool(false))) => {
                return Some(format!("{place} has the undeclared {name}"));
            }
            (Some(inner), _) | (None, Some(inner)) => inner,
            (None, None) => continue,
        };
        let fault = fault(root, inner, member, &format!("{place}.{name}"));
        if fault.is_some() {
            return fault;
        }
    }
    None
}
