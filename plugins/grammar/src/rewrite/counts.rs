//! Bounds on numbers that llguidance does not follow, as choices among what is named.

use serde_json::{Map, Value, json};

use super::document::Document;
use super::keywords::require;
use super::negation::{Undecided, any_of};
use super::{strings, unique};
use crate::distinct::{self, DISTINCT, NAMES};

/// Choices that one bound may become.
const MAX_CHOICES: usize = 64;
/// Names that are longer are as many as one likes.
const LONG_NAMES: &str = r"^[\s\S]{32}";

/// Replace `minProperties` and `maxProperties` where named members may be left out. The members that make the
/// number up are named ones, so that some valid objects cannot be written.
pub(super) fn members(fields: &mut Map<String, Value>) {
    let count = |key: &str| Some(fields.get(key)?.as_u64()? as usize);
    let (least, most) = (count("minProperties"), count("maxProperties"));
    if least.is_none() && most.is_none() {
        return;
    }
    let required: Vec<&str> = (fields.get("required").and_then(Value::as_array))
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let named = fields.get("properties").and_then(Value::as_object);
    let optional: Vec<String> = (named.into_iter().flatten())
        .filter(|(name, schema)| **schema != json!(false) && !required.contains(&name.as_str()))
        .map(|(name, _)| name.clone())
        .collect();
    let patterns = fields.get("patternProperties").and_then(Value::as_object);
    let matched = patterns.is_some_and(|patterns| !patterns.is_empty());
    let closed = !matched && fields.get("additionalProperties") == Some(&json!(false));
    let known = closed && least.unwrap_or(0) <= 1 && most.unwrap_or(1) == 1;
    if optional.is_empty() || known {
        return;
    }
    let required = required.len();
    if let Some(least) = least {
        at_least(fields, &optional, least.saturating_sub(required));
    }
    if let Some(most) = most.and_then(|most| most.checked_sub(required)) {
        if closed && optional.len() <= most {
            fields.shift_remove("maxProperties");
        } else if matched {
            at_most_with_others(fields, &optional, most);
        } else {
            at_most(fields, &optional, most);
        }
    }
}

/// Move `maxProperties` into options that name the members which it counts.
pub(super) fn distributed(fields: &mut Map<String, Value>) {
    if fields.contains_key("properties") || fields.contains_key("patternProperties") {
        return;
    }
    let Some(most) = fields.get("maxProperties").and_then(Value::as_u64) else {
        return;
    };
    for key in ["oneOf", "anyOf"] {
        let Some(Value::Array(options)) = fields.get_mut(key) else {
            continue;
        };
        let names = |option: &Value| option.get("properties").is_some_and(Value::is_object);
        if !options.iter().all(names) {
            continue;
        }
        for option in options.iter_mut().filter_map(Value::as_object_mut) {
            let own = option.get("maxProperties").and_then(Value::as_u64);
            let least = own.map_or(most, |own| own.min(most));
            option.insert("maxProperties".to_owned(), json!(least));
        }
        fields.shift_remove("maxProperties");
        return;
    }
}

/// Bound the number of members by alternatives, one for each choice of named members that are there: llguidance counts
/// the members that match a pattern.
fn at_most_with_others(fields: &mut Map<String, Value>, optional: &[String], most: usize) {
    let mut ways = Vec::new();
    for count in 0..=most.min(optional.len()) {
        let Some(choices) = chosen(optional, count) else {
            return;
        };
        ways.extend(choices.into_iter().map(|names| {
            let others = optional.iter().filter(|name| !names.contains(name));
            let others = others.map(|name| (name.clone(), json!(false)));
            json!({"properties": others.collect::<Map<String, Value>>(), "required": names})
        }));
        if ways.len() > MAX_CHOICES {
            return;
        }
    }
    require(fields, any_of(ways));
}

/// Let the matcher keep names of members apart, where members without names make up what `minProperties` asks for.
pub(super) fn named_apart(
    fields: &mut Map<String, Value>,
    remembers: bool,
) -> Result<(), Undecided> {
    let least = fields.get("minProperties").and_then(Value::as_u64);
    let required = fields.get("required").and_then(Value::as_array);
    if least.unwrap_or(0) < required.map_or(0, Vec::len) as u64 + 2 {
        return Ok(());
    }
    let open = fields.get("additionalProperties") != Some(&json!(false));
    let patterns = fields.get("patternProperties").and_then(Value::as_object);
    let mut patterns = patterns.into_iter().flatten().map(|(pattern, _)| pattern);
    let many = open || patterns.any(|pattern| !strings::disjoint(pattern, LONG_NAMES));
    if !(remembers && many) {
        let reason = "the names of the members that it counts cannot be kept apart";
        return Err(Undecided(reason.to_owned()));
    }
    fields.insert(NAMES.to_owned(), json!(true));
    Ok(())
}

fn at_least(fields: &mut Map<String, Value>, optional: &[String], more: usize) {
    let Some(choices) = chosen(optional, more) else {
        return;
    };
    fields.shift_remove("minProperties");
    if more > 0 {
        let each = choices.into_iter().map(|names| json!({"required": names}));
        require(fields, any_of(each.collect()));
    }
}

fn at_most(fields: &mut Map<String, Value>, optional: &[String], most: usize) {
    let Some(choices) = chosen(optional, most.min(optional.len())) else {
        return;
    };
    fields.shift_remove("maxProperties");
    fields.insert("additionalProperties".to_owned(), json!(false));
    let each = choices.into_iter().map(|names| {
        let others = optional.iter().filter(|name| !names.contains(name));
        let others = others.map(|name| (name.clone(), json!(false)));
        json!({"properties": others.collect::<Map<String, Value>>()})
    });
    require(fields, any_of(each.collect()));
}

/// All choices of so many of these. `None` if there are none, or too many.
fn chosen<T>(all: &[T], count: usize) -> Option<Vec<Vec<&T>>> {
    if count > all.len() {
        return None;
    }
    let mut choices = vec![Vec::new()];
    for (index, one) in all.iter().enumerate() {
        let left = all.len() - index - 1;
        let with = choices
            .iter()
            .filter(|choice: &&Vec<&T>| choice.len() < count);
        let with = with.map(|choice| choice.iter().copied().chain([one]).collect());
        let with: Vec<Vec<&T>> = with.collect();
        choices.extend(with);
        choices.retain(|choice| choice.len() + left >= count);
        if choices.len() > MAX_CHOICES * 2 {
            return None;
        }
    }
    (choices.len() <= MAX_CHOICES).then_some(choices)
}

/// Replace `uniqueItems` where the items are a few values that the schema lists: each is there or not, in the order of
/// the schema.
pub(super) fn unique(document: &Document, fields: &mut Map<String, Value>) {
    if fields.get("uniqueItems") != Some(&json!(true)) || fields.contains_key("prefixItems") {
        return;
    }
    let Some(items) = fields.get("items").filter(|items| items.is_object()) else {
        return;
    };
    let Some(values) = listed(document, items) else {
        return;
    };
    let count = |key: &str| Some(fields.get(key)?.as_u64()? as usize);
    let least = count("minItems").unwrap_or(0);
    let most = count("maxItems").unwrap_or(usize::MAX).min(values.len());
    let mut lists = Vec::new();
    for length in least..=most {
        let Some(choices) = chosen(&values, length) else {
            return;
        };
        lists.extend(choices.into_iter().map(|choice| {
            let each: Vec<Value> = choice.iter().map(|value| json!({"const": value})).collect();
            match each.is_empty() {
                true => json!({"maxItems": 0}),
                false => json!({"prefixItems": each, "items": false, "minItems": length}),
            }
        }));
        if lists.len() > MAX_CHOICES {
            return;
        }
    }
    fields.shift_remove("uniqueItems");
    fields.shift_remove("items");
    require(fields, any_of(lists));
}

/// Replace `uniqueItems` of texts, and of items that can always become others, by the keyword that the matcher follows.
pub(super) fn distinct(document: &Document, fields: &mut Map<String, Value>) {
    if fields.get("uniqueItems") != Some(&json!(true)) || fields.contains_key("prefixItems") {
        return;
    }
    let Some(items) = fields.get("items").filter(|items| items.is_object()) else {
        return;
    };
    let target = items.get("$ref").and_then(|to| document.target(to));
    let Some(texts) = target.unwrap_or(items).as_object().cloned() else {
        return;
    };
    if let Some(count) = distinct::listed(&texts) {
        let most = fields.get("maxItems").and_then(Value::as_u64);
        let most = most.unwrap_or(u64::MAX).min(count as u64);
        fields.insert("maxItems".to_owned(), json!(most));
    } else if !distinct::are_free(&texts) {
        if let Some(ending) = unique::ending(document, items) {
            fields.shift_remove("uniqueItems");
            fields.insert(DISTINCT.to_owned(), ending.written());
        }
        return;
    }
    fields.insert("items".to_owned(), texts.into());
    fields.shift_remove("uniqueItems");
    fields.insert(DISTINCT.to_owned(), json!(true));
}

/// Different values that are all that a schema takes. `None` if it lists none, or one cannot be told.
fn listed(document: &Document, schema: &Value) -> Option<Vec<Value>> {
    let target = schema.get("$ref").and_then(|to| document.target(to));
    let fields = target.unwrap_or(schema);
    let all = match (fields.get("const"), fields.get("enum"), fields.get("type")) {
        (Some(value), _, _) => vec![value.clone()],
        (None, Some(Value::Array(values)), _) => values.clone(),
        (None, None, Some(kind)) if *kind == json!("boolean") => vec![json!(false), json!(true)],
        _ => return None,
    };
    let mut values: Vec<Value> = Vec::new();
    for value in all {
        let same = |other: &Value| super::admits::equal(other, &value);
        if document.admits(schema, &value)? && !values.iter().any(same) {
            values.push(value);
        }
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(mut schema: Value) -> Value {
        members(schema.as_object_mut().unwrap());
        schema
    }

    #[test]
    fn numbers_of_members_become_choices() {
        let named = json!({"a": {}, "b": {}, "c": {}});
        assert_eq!(
            of(json!({"properties": named, "minProperties": 2, "required": ["c"]})),
            json!({"properties": named, "required": ["c"],
                "allOf": [{"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}]})
        );
        assert_eq!(
            of(json!({"properties": named, "maxProperties": 2, "additionalProperties": true})),
            json!({"properties": named, "additionalProperties": false, "allOf": [{"anyOf": [
                {"properties": {"c": false}}, {"properties": {"b": false}}, {"properties": {"a": false}}]}]})
        );
        let closed = json!({"properties": named, "additionalProperties": false});
        let mut bounded = closed.clone();
        bounded["maxProperties"] = json!(3);
        assert_eq!(of(bounded), closed);
        // Nothing is made of what llguidance follows, and of too many choices.
        let other = json!({"properties": {"a": {}}, "minProperties": 2, "required": ["a"]});
        assert_eq!(of(other.clone()), other);
        let many: Map<String, Value> = (0..12).map(|n| (format!("m{n}"), json!({}))).collect();
        let many = json!({"properties": many, "minProperties": 6});
        assert_eq!(of(many.clone()), many);
    }

    #[test]
    fn lists_of_different_values_become_choices() {
        let document = Document::new(Map::new());
        let unique = |mut schema: Value| {
            unique(&document, schema.as_object_mut().unwrap());
            schema
        };
        let schema =
            json!({"uniqueItems": true, "minItems": 1, "items": {"enum": ["a", "b", "a"]}});
        let one = |value: &str| json!({"const": value});
        assert_eq!(
            unique(schema),
            json!({"minItems": 1, "allOf": [{"anyOf": [
                {"prefixItems": [one("a")], "items": false, "minItems": 1},
                {"prefixItems": [one("b")], "items": false, "minItems": 1},
                {"prefixItems": [one("a"), one("b")], "items": false, "minItems": 2},
            ]}]})
        );
        let free = json!({"uniqueItems": true, "items": {"type": "string"}});
        assert_eq!(unique(free.clone()), free);
        let many: Vec<u32> = (0..9).collect();
        let many = json!({"uniqueItems": true, "items": {"enum": many}});
        assert_eq!(unique(many.clone()), many);
    }
}
