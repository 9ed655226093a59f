//! Patterns of members that overlap. llguidance takes those alone that exclude each other, within an object and where several
//! schemas hold together. Here all patterns of a schema become unions of classes of names that exclude each other.

use serde_json::{Map, Value, json};

use super::keywords::{DATA, NAMED};
use super::strings::{self, Complement};

/// Patterns of a schema; the classes are at most as many as its subsets.
const MAX_PATTERNS: usize = 6;
const KEYWORD: &str = "patternProperties";

/// The schema with its patterns in classes: those of all of it, or those of each object by themselves, which is enough where
/// schemas with other patterns do not hold together. None where they are too many, or a class cannot be written.
pub(crate) fn told_apart(schema: &Value) -> Vec<Value> {
    let mut all: Vec<String> = Vec::new();
    let mut each: Vec<Vec<String>> = Vec::new();
    gather(schema, &mut |named: &Map<String, Value>| {
        let mut own: Vec<String> = named.keys().cloned().collect();
        let new = own.iter().filter(|pattern| !all.contains(pattern));
        let new: Vec<String> = new.cloned().collect();
        all.extend(new);
        // Objects that share a pattern have the same classes.
        let (meets, apart): (Vec<_>, Vec<_>) = std::mem::take(&mut each)
            .into_iter()
            .partition(|group: &Vec<String>| group.iter().any(|pattern| own.contains(pattern)));
        own.extend(meets.into_iter().flatten());
        own.sort_unstable();
        own.dedup();
        each = apart;
        each.push(own);
    });
    let groups = each.len();
    let in_all = in_groups(schema, vec![all]);
    let in_each = (groups > 1).then(|| in_groups(schema, each)).flatten();
    in_all.into_iter().chain(in_each).collect()
}

/// The schema with the patterns of each group in classes.
fn in_groups(schema: &Value, groups: Vec<Vec<String>>) -> Option<Value> {
    let apart = groups.into_iter().map(|patterns| {
        let classes = classes(&patterns)?;
        Some((patterns, classes))
    });
    Some(replaced(schema, &apart.collect::<Option<Vec<Group>>>()?))
}

/// Patterns, and the classes that they make: each with the patterns that it has, as bits.
type Group = (Vec<String>, Vec<(usize, String)>);

fn classes(patterns: &[String]) -> Option<Vec<(usize, String)>> {
    if patterns.len() > MAX_PATTERNS {
        return None;
    }
    let mut classes = Vec::new();
    for has in 1_usize..1 << patterns.len() {
        let of = |wanted: bool| {
            let chosen = patterns.iter().enumerate();
            let chosen = chosen.filter(move |(at, _)| (has >> at & 1 == 1) == wanted);
            chosen
                .map(|(_, pattern)| pattern.as_str())
                .collect::<Vec<&str>>()
        };
        match strings::among(&of(true), &of(false)) {
            Complement::Pattern(pattern) => classes.push((has, pattern)),
            Complement::Empty => {}
            Complement::Unknown => return None,
        }
    }
    Some(classes)
}

fn gather(schema: &Value, found: &mut impl FnMut(&Map<String, Value>)) {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::Object(named) if NAMED.contains(&key.as_str()) => {
                        if key == KEYWORD {
                            found(named);
                        }
                        named.values().for_each(|part| gather(part, found));
                    }
                    value if !DATA.contains(&key.as_str()) => gather(value, found),
                    _ => {}
                }
            }
        }
        Value::Array(parts) => parts.iter().for_each(|part| gather(part, found)),
        _ => {}
    }
}

fn replaced(schema: &Value, groups: &[Group]) -> Value {
    let again = |part: &Value| replaced(part, groups);
    match schema {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| {
                let value = match value {
                    Value::Object(named) if key == KEYWORD => in_classes(named, groups).into(),
                    Value::Object(named) if NAMED.contains(&key.as_str()) => {
                        let named = named.iter().map(|(name, part)| (name.clone(), again(part)));
                        Value::Object(named.collect())
                    }
                    value if DATA.contains(&key.as_str()) => value.clone(),
                    value => again(value),
                };
                (key.clone(), value)
            });
            Value::Object(fields.collect())
        }
        Value::Array(parts) => parts.iter().map(again).collect(),
        other => other.clone(),
    }
}

fn in_classes(named: &Map<String, Value>, groups: &[Group]) -> Map<String, Value> {
    let mut result = Map::new();
    let all = groups.iter().flat_map(|(patterns, classes)| {
        let class = classes.iter();
        class.map(move |(has, class)| (patterns, has, class))
    });
    for (patterns, has, class) in all {
        let in_class = |pattern: &String| {
            let at = patterns.iter().position(|known| known == pattern);
            at.is_some_and(|at| has >> at & 1 == 1)
        };
        let schemas = named.iter().filter(|(pattern, _)| in_class(pattern));
        let mut schemas: Vec<Value> = schemas
            .map(|(_, schema)| replaced(schema, groups))
            .collect();
        let schema = match schemas.len() {
            0 => continue,
            1 => schemas.remove(0),
            _ => json!({"allOf": schemas}),
        };
        result.insert(class.clone(), schema);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_become_classes_that_exclude_each_other() {
        let schema = json!({"anyOf": [
            {"patternProperties": {"a": {"type": "string"}}},
            {"properties": {"x": {"patternProperties": {"^b": true, "a": {"minLength": 1}}}}},
        ]});
        let apart = told_apart(&schema);
        assert_eq!(apart.len(), 1);
        let apart = &apart[0];
        let first = apart["anyOf"][0][KEYWORD].as_object().unwrap();
        assert_eq!(first.len(), 2);
        let second = apart["anyOf"][1]["properties"]["x"][KEYWORD]
            .as_object()
            .unwrap();
        assert_eq!(second.len(), 3);
        let patterns: Vec<&String> = second.keys().collect();
        assert!(first.keys().all(|pattern| patterns.contains(&pattern)));
        for (at, one) in patterns.iter().enumerate() {
            for other in &patterns[at + 1..] {
                assert!(strings::disjoint(one, other), "{one} {other}");
            }
        }
    }

    #[test]
    fn objects_that_share_no_pattern_have_classes_of_their_own() {
        let schema = json!({"properties": {
            "a": {"patternProperties": {"a": true, "b": true}},
            "c": {"patternProperties": {"c": true, "d": {"patternProperties": {"c": true, "e": true}}}},
            "g": {"patternProperties": {"^(?:links|meta)$": true, "^type$": true}},
        }});
        let apart = told_apart(&schema);
        let [apart] = apart.as_slice() else {
            panic!("all seven together are too many: {}", apart.len());
        };
        let classes = |member: &str| {
            let named = apart["properties"][member][KEYWORD].as_object();
            named.unwrap().len()
        };
        assert_eq!(["a", "c", "g"].map(classes), [3, 6, 2]);
    }
}
