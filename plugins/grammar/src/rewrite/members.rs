//! Keywords about members of objects and items of arrays, by others that say the same.

use serde_json::{Map, Value, json};

use super::document::Document;
use super::keywords::require;
use super::negation::Undecided;
use super::strings;

/// References to names of members that are followed, one after the other.
const MAX_LINKS: usize = 8;
/// Formats that llguidance checks. Others are annotations, as the standard has it.
pub(super) const FORMATS: [&str; 10] = [
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
];

/// Remove what says nothing, and bring keywords of some drafts to the form that all have.
pub(super) fn simplify(fields: &mut Map<String, Value>) {
    let unknown = |format: &Value| {
        !format
            .as_str()
            .is_some_and(|format| FORMATS.contains(&format))
    };
    if fields.get("format").is_some_and(unknown) {
        fields.shift_remove("format");
    }
    let count = |fields: &Map<String, Value>, key: &str| fields.get(key).and_then(Value::as_u64);
    let single = count(fields, "maxItems").is_some_and(|most| most <= 1);
    if single || fields.get("uniqueItems") == Some(&json!(false)) {
        fields.shift_remove("uniqueItems");
    }
    if count(fields, "minContains") == Some(0) && !fields.contains_key("maxContains") {
        fields.shift_remove("minContains");
        fields.shift_remove("contains");
    }
    if !fields.contains_key("contains") {
        fields.shift_remove("minContains");
        fields.shift_remove("maxContains");
    }
    if !matches!(fields.get("items"), Some(Value::Array(_))) {
        fields.shift_remove("additionalItems");
    }
    let applied = [
        "allOf",
        "anyOf",
        "oneOf",
        "$ref",
        "if",
        "dependentSchemas",
        "$dynamicRef",
    ];
    let alone = !applied.iter().any(|key| fields.contains_key(*key));
    let kinds = [
        ("unevaluatedProperties", "additionalProperties"),
        ("unevaluatedItems", "items"),
    ];
    for (unevaluated, other) in kinds {
        let all = [Some(&json!(true)), Some(&json!({}))].contains(&fields.get(unevaluated));
        if let (true, Some(schema)) = (all || alone, fields.get(unevaluated).cloned()) {
            fields.shift_remove(unevaluated);
            if alone && !all && !fields.contains_key(other) && !fields.contains_key("contains") {
                fields.insert(other.to_owned(), schema);
            }
        }
    }
}

/// Replace `dependencies`, `dependentRequired` and `dependentSchemas`.
pub(super) fn dependencies(fields: &mut Map<String, Value>) {
    for key in ["dependencies", "dependentRequired", "dependentSchemas"] {
        let Some(Value::Object(dependencies)) = fields.shift_remove(key) else {
            continue;
        };
        for (name, needed) in dependencies {
            let then = match needed {
                Value::Array(names) if names.is_empty() => continue,
                Value::Array(names) => json!({"required": names}),
                schema => schema,
            };
            let with = json!({"allOf": [{"required": [name]}, then]});
            require(
                fields,
                json!({"anyOf": [{"properties": {name: false}}, with]}),
            );
        }
    }
}

/// Replace `propertyNames`.
pub(super) fn property_names(
    document: &Document,
    fields: &mut Map<String, Value>,
) -> Result<(), Undecided> {
    let Some(names) = fields.shift_remove("propertyNames") else {
        return Ok(());
    };
    let said = read_names(document, &names)?;
    if let Said::Nothing = said {
        return Ok(());
    }
    let others = fields
        .get("additionalProperties")
        .cloned()
        .unwrap_or(json!(true));
    let mut properties = match fields.get("properties") {
        Some(Value::Object(properties)) => properties.clone(),
        _ => Map::new(),
    };
    for (name, schema) in &mut properties {
        match document.admits(&names, &json!(name)) {
            Some(true) => {}
            Some(false) => *schema = json!(false),
            None => {
                return Err(Undecided(format!(
                    "it cannot be told of the property `{name}`"
                )));
            }
        }
    }
    let patterns = match fields.shift_remove("patternProperties") {
        Some(Value::Object(patterns)) => patterns,
        _ => Map::new(),
    };
    let patterns = match said {
        Said::Names(names) => {
            for name in names {
                let schema = member_schema(document, &patterns, &others, &name)?;
                properties.entry(name).or_insert(schema);
            }
            Map::new()
        }
        Said::Pattern(pattern) => narrowed(document, patterns, &others, &pattern)?,
        Said::Nothing => patterns,
    };
    if !patterns.is_empty() {
        fields.insert("patternProperties".to_owned(), patterns.into());
    }
    fields.insert("properties".to_owned(), properties.into());
    fields.insert("additionalProperties".to_owned(), json!(false));
    Ok(())
}

/// Schema of a member that is not among the named ones.
fn member_schema(
    document: &Document,
    patterns: &Map<String, Value>,
    others: &Value,
    name: &str,
) -> Result<Value, Undecided> {
    let mut schemas = Vec::new();
    for (pattern, schema) in patterns {
        match document.matches(pattern, name) {
            Some(true) => schemas.push(schema.clone()),
            Some(false) => {}
            None => {
                let reason = format!("it cannot be told of the property `{name}`");
                return Err(Undecided(reason));
            }
        }
    }
    Ok(match schemas.len() {
        0 => others.clone(),
        1 => schemas.remove(0),
        _ => json!({"allOf": schemas}),
    })
}

/// Patterns that exclude each other, each held to names that have another, and that other without them.
fn narrowed(
    document: &Document,
    patterns: Map<String, Value>,
    others: &Value,
    names: &str,
) -> Result<Map<String, Value>, Undecided> {
    let known: Vec<String> = patterns.keys().cloned().collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let mut result = Map::new();
    if known.is_empty() {
        result.insert(names.to_owned(), others.clone());
        return Ok(result);
    }
    let both = patterns.iter().map(|(pattern, schema)| {
        let all = document.among(&[names, pattern], &[]);
        (all, schema)
    });
    for (pattern, schema) in both.chain([(document.among(&[names], &known), others)]) {
        match pattern {
            strings::Complement::Pattern(pattern) => {
                result.insert(pattern, schema.clone());
            }
            strings::Complement::Empty => {}
            strings::Complement::Unknown => {
                let reason = "beside `patternProperties` its pattern would be too large";
                return Err(Undecided(reason.to_owned()));
            }
        }
    }
    Ok(result)
}

enum Said {
    Nothing,
    Names(Vec<String>),
    Pattern(String),
}

fn read_names(document: &Document, names: &Value) -> Result<Said, Undecided> {
    let mut target = names;
    for _ in 0..MAX_LINKS {
        match target
            .get("$ref")
            .and_then(|reference| document.target(reference))
        {
            Some(next) => target = next,
            None => break,
        }
    }
    let fields = match target {
        Value::Bool(true) => return Ok(Said::Nothing),
        Value::Bool(false) => return Ok(Said::Names(Vec::new())),
        Value::Object(fields) => fields,
        _ => return Err(Undecided("it is no schema".to_owned())),
    };
    let listed = match (fields.get("const"), fields.get("enum")) {
        (Some(value), _) => Some(vec![value.clone()]),
        (None, Some(Value::Array(values))) => Some(values.clone()),
        _ => None,
    };
    if let Some(values) = listed {
        let fits = |value: &Value| document.admits(names, value) != Some(false);
        let values = values.into_iter().filter(fits);
        return Ok(Said::Names(
            values
                .filter_map(|value| Some(value.as_str()?.to_owned()))
                .collect(),
        ));
    }
    read_rules(fields)
}

/// Read the rule for names that a schema does not list: a pattern, or nothing.
fn read_rules(fields: &Map<String, Value>) -> Result<Said, Undecided> {
    let telling = |key: &&String| {
        let silent = [
            "type",
            "format",
            "title",
            "description",
            "$comment",
            "$id",
            "$schema",
            "$defs",
            "examples",
        ];
        !silent.contains(&key.as_str())
    };
    let mut keys: Vec<&str> = fields.keys().filter(telling).map(String::as_str).collect();
    keys.sort_unstable();
    let count = |key: &str| fields.get(key).and_then(Value::as_u64);
    match keys.as_slice() {
        [] => Ok(Said::Nothing),
        ["pattern"] => Ok(Said::Pattern(
            fields["pattern"].as_str().unwrap_or_default().to_owned(),
        )),
        ["maxLength"] | ["minLength"] | ["maxLength", "minLength"] => {
            let most = count("maxLength")
                .map(|most| most.to_string())
                .unwrap_or_default();
            Ok(Said::Pattern(format!(
                r"^[\s\S]{{{},{most}}}$",
                count("minLength").unwrap_or(0)
            )))
        }
        ["not"] => match fields["not"]
            .get("pattern")
            .and_then(Value::as_str)
            .map(strings::complement)
        {
            Some(strings::Complement::Pattern(pattern)) => Ok(Said::Pattern(pattern)),
            _ => Err(Undecided(
                "it has a `not` that cannot be turned to a pattern".to_owned(),
            )),
        },
        keys => Err(Undecided(format!(
            "of its keywords ({}) no pattern can be made",
            keys.join(", ")
        ))),
    }
}
