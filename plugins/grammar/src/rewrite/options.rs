//! `oneOf` as `anyOf` of options that exclude each other.

use serde_json::{Map, Value, json};

use super::document::Document;
use super::keywords::require;
use super::negation::{Undecided, any_of, negate};

/// Values of a list that are looked at one by one.
const MAX_LISTED: usize = 256;
/// How much is kept of what an option may be where it overlaps with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ways {
    /// Ways in which it may be none of the others, multiplied; further ones are left out.
    most: usize,
    /// Ways that are kept of too many.
    few: usize,
}

impl Ways {
    pub(crate) const MANY: Self = Self { most: 256, few: 16 };
    /// For schemas that would be too large with many.
    pub(crate) const ONE: Self = Self { most: 1, few: 1 };
}

/// Replace `oneOf` by `anyOf`.
pub(super) fn one_of(
    document: &Document,
    fields: &mut Map<String, Value>,
    kept: Ways,
) -> Result<(), Undecided> {
    let options = match fields.get("oneOf") {
        Some(Value::Array(options)) if !options.is_empty() => options.clone(),
        _ => return Ok(()),
    };
    let mut rest = fields.clone();
    rest.shift_remove("oneOf");
    let rest = Value::Object(rest);
    let mut ways = Vec::new();
    for (index, option) in options.iter().enumerate() {
        let here = match is_silent(&rest) {
            true => option.clone(),
            false => json!({"allOf": [rest, option]}),
        };
        let overlapping: Vec<&Value> = options
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != index)
            .map(|(_, other)| other)
            .filter(|other| !document.are_disjoint(&here, other))
            .collect();
        ways.extend(alone(document, option, &here, &overlapping, kept)?);
    }
    let ways = any_of(ways);
    if fields.contains_key("allOf") {
        fields.shift_remove("oneOf");
        require(fields, ways);
        return Ok(());
    }
    // At its place: members are written in the order in which the schema names them.
    *fields = std::mem::take(fields)
        .into_iter()
        .map(|(key, value)| match key == "oneOf" {
            true => ("allOf".to_owned(), json!([ways])),
            false => (key, value),
        })
        .collect();
    Ok(())
}

/// The option without what others take. `None` if that leaves nothing.
fn alone(
    document: &Document,
    option: &Value,
    here: &Value,
    others: &[&Value],
    kept: Ways,
) -> Result<Option<Value>, Undecided> {
    if others.is_empty() {
        return Ok(Some(option.clone()));
    }
    if others.contains(&option) {
        return Ok(None);
    }
    if let Value::Object(fields) = option {
        let mut fields = fields.clone();
        let admits = |value: &Value| {
            let answers = others.iter().map(|other| document.admits(other, value));
            answers
                .collect::<Option<Vec<bool>>>()
                .map(|takes| !takes.contains(&true))
        };
        if keep_values(&mut fields, admits) {
            return Ok(Some(Value::Object(fields)));
        }
    }
    let types = document.types(here);
    let mut all = vec![option.clone()];
    let mut product = 1;
    for other in others {
        let ways = negate(document, other, types).map_err(|Undecided(reason)| {
            Undecided(format!(
                "its options may overlap, and of one that does {reason}"
            ))
        })?;
        // What excludes the option says nothing, and what is in it already need not be said.
        let mut ways: Vec<Value> = ways
            .into_iter()
            .filter(|way| !document.are_disjoint(here, way))
            .collect();
        if ways.is_empty() {
            return Ok(None);
        }
        // With fewer ways less can be written, and all of it is valid.
        if product * ways.len() > kept.most {
            ways.truncate((kept.few / product).max(1));
        }
        product *= ways.len();
        all.push(any_of(ways));
    }
    Ok(Some(json!({"allOf": all})))
}

/// Whether these keywords say nothing that could keep options apart.
fn is_silent(rest: &Value) -> bool {
    let telling = [
        "type",
        "properties",
        "required",
        "additionalProperties",
        "enum",
        "const",
        "$ref",
        "allOf",
        "items",
    ];
    !telling.iter().any(|key| rest.get(key).is_some())
}

/// Replace a schema one of whose parts lists values by those that all of it takes, if that can be told of each. What a part
/// says besides is then said.
pub(super) fn listed_by_parts(document: &Document, fields: &mut Map<String, Value>) {
    let Some(Value::Array(parts)) = fields.get("allOf") else {
        return;
    };
    let values = parts.iter().find_map(|part| {
        let target = part.get("$ref").and_then(|to| document.target(to));
        let part = target.unwrap_or(part);
        match (part.get("const"), part.get("enum")) {
            (Some(value), _) => Some(vec![value.clone()]),
            (None, Some(Value::Array(values))) => Some(values.clone()),
            _ => None,
        }
    });
    let Some(values) = values.filter(|values| values.len() <= MAX_LISTED) else {
        return;
    };
    let kept_beside = ["$defs", "x-guidance"];
    let beside = kept_beside.map(|key| {
        fields
            .shift_remove(key)
            .map(|value| (key.to_owned(), value))
    });
    let whole = Value::Object(fields.clone());
    let takes = |value: &Value| document.admits(&whole, value);
    let kept: Option<Vec<bool>> = values.iter().map(takes).collect();
    if let Some(kept) = kept.filter(|kept| kept.contains(&true)) {
        let left = values.into_iter().zip(kept).filter(|(_, keep)| *keep);
        let left: Vec<Value> = left.map(|(value, _)| value).collect();
        *fields = Map::from_iter([("enum".to_owned(), Value::from(left))]);
    }
    fields.extend(beside.into_iter().flatten());
}

/// Keep of the values that a schema lists those of which `keep` is true. False, and nothing is changed, if it
/// lists none or one cannot be told.
pub(super) fn keep_values(
    fields: &mut Map<String, Value>,
    keep: impl Fn(&Value) -> Option<bool>,
) -> bool {
    let values = match (fields.get("const"), fields.get("enum")) {
        (Some(value), _) => vec![value.clone()],
        (None, Some(Value::Array(values))) => values.clone(),
        _ => return false,
    };
    let kept: Option<Vec<bool>> = values.iter().map(keep).collect();
    let Some(kept) = kept else {
        return false;
    };
    let left: Vec<Value> = values
        .into_iter()
        .zip(&kept)
        .filter(|(_, keep)| **keep)
        .map(|(value, _)| value)
        .collect();
    if left.len() < kept.len() {
        fields.shift_remove("const");
        match left.is_empty() {
            true => require(fields, json!(false)),
            false => drop(fields.insert("enum".to_owned(), json!(left))),
        }
    }
    true
}
