//! Attributes of documents, and conditions on them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::limits::{
    MAX_ATTRIBUTE_NAME, MAX_ATTRIBUTE_TEXT, MAX_ATTRIBUTES, MAX_FILTER_DEPTH, MAX_FILTER_PARTS,
    MAX_FILTER_VALUES,
};

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Attribute {
    /// A text.
    Text(String),
    /// A number.
    Number(f64),
    /// True or false.
    Flag(bool),
}

/// Attributes of a document by their names.
pub type Attributes = BTreeMap<String, Attribute>;

/// A part of a filter, or of attributes, that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{path}` {message}")]
pub struct FilterError {
    /// The part.
    pub path: String,
    /// Fault of it.
    pub message: String,
}

fn wrong(path: &str, message: impl Into<String>) -> FilterError {
    FilterError {
        path: path.to_owned(),
        message: message.into(),
    }
}

/// Attributes of an object.
///
/// # Errors
/// When there are too many, one is too long, or a value is none of an attribute's.
pub fn attributes_of(object: &Map<String, Value>, path: &str) -> Result<Attributes, FilterError> {
    if object.len() > MAX_ATTRIBUTES {
        let message = format!(
            "has {} entries; the limit is {MAX_ATTRIBUTES}",
            object.len()
        );
        return Err(wrong(path, message));
    }
    let mut attributes = Attributes::new();
    for (name, value) in object {
        let short: String = name.chars().take(MAX_ATTRIBUTE_NAME).collect();
        let path = format!("{path}.{short}");
        if short.len() < name.len() {
            let message = format!("has a name of more than {MAX_ATTRIBUTE_NAME} characters");
            return Err(wrong(&path, message));
        }
        attributes.insert(name.clone(), attribute(value, &path)?);
    }
    Ok(attributes)
}

fn attribute(value: &Value, path: &str) -> Result<Attribute, FilterError> {
    match value {
        Value::String(text) if text.chars().count() > MAX_ATTRIBUTE_TEXT => {
            let message = format!("must have at most {MAX_ATTRIBUTE_TEXT} characters");
            Err(wrong(path, message))
        }
        Value::String(text) => Ok(Attribute::Text(text.clone())),
        Value::Bool(flag) => Ok(Attribute::Flag(*flag)),
        Value::Number(number) => match number.as_f64() {
            Some(number) => Ok(Attribute::Number(number)),
            None => Err(wrong(path, "must be a number of 64 bits")),
        },
        _ => Err(wrong(path, "must be a string, a number or a boolean")),
    }
}

/// Comparison of an attribute with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    Different,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

/// Condition on the attributes of a document.
#[derive(Debug, Clone, PartialEq)]
pub struct AttributeFilter(pub(crate) FilterPart);

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FilterPart {
    Compare(String, Comparison, Attribute),
    /// The attribute is one of these, or none of them.
    Among(String, Vec<Attribute>, bool),
    All(Vec<FilterPart>),
    Any(Vec<FilterPart>),
}

impl AttributeFilter {
    /// The filter of an object, as OpenAI's vector stores have them: `{"type": "eq", "key": …, "value": …}`, or
    /// `{"type": "and", "filters": […]}`.
    ///
    /// # Errors
    /// When a part is wrong, or there are too many.
    pub fn of(value: &Value, path: &str) -> Result<Self, FilterError> {
        let mut parts = 0;
        part(value, path, MAX_FILTER_DEPTH, &mut parts).map(Self)
    }

    /// True if a document with these attributes is meant: the definition that [`Test::admits`] is compared with.
    #[cfg(test)]
    pub(crate) fn admits(&self, attributes: &Attributes) -> bool {
        self.0.admits(attributes)
    }

    /// The filter of documents whose attributes have numbers: those of the distinct `values` of each name. A document without
    /// the attribute of a comparison is not meant, but for `ne` and `nin`.
    pub(crate) fn test(&self, values: &Values<'_, '_>) -> Test {
        self.0.test(values)
    }
}

fn part(
    value: &Value,
    path: &str,
    depth: usize,
    parts: &mut usize,
) -> Result<FilterPart, FilterError> {
    *parts += 1;
    if *parts > MAX_FILTER_PARTS {
        let message = format!("is one of more than {MAX_FILTER_PARTS} parts");
        return Err(wrong(path, message));
    }
    let Value::Object(object) = value else {
        return Err(wrong(path, "must be an object"));
    };
    let kind = object
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let known: &[&str] = match kind {
        "and" | "or" => &["type", "filters"],
        _ => &["type", "key", "value"],
    };
    if let Some(name) = object.keys().find(|name| !known.contains(&name.as_str())) {
        let name: String = name.chars().take(64).collect();
        return Err(wrong(&format!("{path}.{name}"), "is unknown"));
    }
    if let "and" | "or" = kind {
        let path = format!("{path}.filters");
        let Some(Value::Array(list)) = object.get("filters") else {
            return Err(wrong(&path, "must be a list"));
        };
        if depth == 0 {
            let message = format!("is nested more than {MAX_FILTER_DEPTH} deep");
            return Err(wrong(&path, message));
        }
        let inner = list.iter().enumerate();
        let inner = inner.map(|(at, one)| part(one, &format!("{path}[{at}]"), depth - 1, parts));
        let inner = inner.collect::<Result<Vec<FilterPart>, FilterError>>()?;
        return Ok(match kind {
            "and" => FilterPart::All(inner),
            _ => FilterPart::Any(inner),
        });
    }
    comparison(object, kind, path)
}

fn comparison(
    object: &Map<String, Value>,
    kind: &str,
    path: &str,
) -> Result<FilterPart, FilterError> {
    let Some(Value::String(key)) = object.get("key") else {
        return Err(wrong(
            &format!("{path}.key"),
            "must be the name of an attribute",
        ));
    };
    let of_value = format!("{path}.value");
    let value = object.get("value").unwrap_or(&Value::Null);
    let comparison = match kind {
        "eq" => Comparison::Equal,
        "ne" => Comparison::Different,
        "gt" => Comparison::Greater,
        "gte" => Comparison::GreaterOrEqual,
        "lt" => Comparison::Less,
        "lte" => Comparison::LessOrEqual,
        "in" | "nin" => {
            let Value::Array(list) = value else {
                return Err(wrong(&of_value, "must be a list"));
            };
            if list.len() > MAX_FILTER_VALUES {
                let message = format!("must have at most {MAX_FILTER_VALUES} values");
                return Err(wrong(&of_value, message));
            }
            let values = list.iter().map(|value| attribute(value, &of_value));
            let values = values.collect::<Result<Vec<Attribute>, FilterError>>()?;
            return Ok(FilterPart::Among(key.clone(), values, kind == "in"));
        }
        _ => {
            let message =
                "must be `eq`, `ne`, `gt`, `gte`, `lt`, `lte`, `in`, `nin`, `and` or `or`";
            return Err(wrong(&format!("{path}.type"), message));
        }
    };
    let value = attribute(value, &of_value)?;
    let ordered = matches!(comparison, Comparison::Equal | Comparison::Different);
    if !ordered && !matches!(value, Attribute::Number(_)) {
        return Err(wrong(
            &of_value,
            "must be a number, since it is compared by size",
        ));
    }
    Ok(FilterPart::Compare(key.clone(), comparison, value))
}

impl FilterPart {
    #[cfg(test)]
    fn admits(&self, attributes: &Attributes) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.admits(attributes)),
            Self::Any(parts) => parts.iter().any(|part| part.admits(attributes)),
            Self::Among(key, ..) | Self::Compare(key, ..) => self.takes(attributes.get(key)),
        }
    }

    /// True if a comparison admits a document with this value, or without one.
    fn takes(&self, found: Option<&Attribute>) -> bool {
        match self {
            Self::All(_) | Self::Any(_) => false,
            Self::Among(_, values, wanted) => {
                found.is_some_and(|found| values.contains(found)) == *wanted
            }
            Self::Compare(_, comparison, value) => match (comparison, found) {
                (Comparison::Equal, found) => found == Some(value),
                (Comparison::Different, found) => found != Some(value),
                (by_size, Some(Attribute::Number(found))) => match value {
                    Attribute::Number(value) => match by_size {
                        Comparison::Greater => found > value,
                        Comparison::GreaterOrEqual => found >= value,
                        Comparison::Less => found < value,
                        _ => found <= value,
                    },
                    _ => false,
                },
                _ => false,
            },
        }
    }

    fn test<'a>(&self, values: &Values<'_, 'a>) -> Test {
        let tests = |parts: &[Self]| parts.iter().map(|part| part.test(values)).collect();
        match self {
            Self::All(parts) => Test::All(tests(parts)),
            Self::Any(parts) => Test::Any(tests(parts)),
            Self::Among(key, ..) | Self::Compare(key, ..) => {
                let known = values(key);
                let takes = |value: &Attribute| self.takes(Some(value));
                Test::Value {
                    name: known.map(|(name, _)| name),
                    taken: known
                        .map_or(Vec::new(), |(_, values)| values.iter().map(takes).collect()),
                    absent: self.takes(None),
                }
            }
        }
    }
}

/// The number of a name and its distinct values, if documents have it.
pub(crate) type Values<'a, 'v> = dyn Fn(&str) -> Option<(u32, &'v [Attribute])> + 'a;

/// A filter of documents whose attributes have numbers.
#[derive(Debug)]
pub(crate) enum Test {
    Value {
        /// Number of the name; none if no document has it.
        name: Option<u32>,
        /// By the number of the value, whether a document with it is meant.
        taken: Vec<bool>,
        /// Whether one without the attribute is.
        absent: bool,
    },
    All(Vec<Self>),
    Any(Vec<Self>),
}

impl Test {
    /// True if a document is meant whose attributes have these numbers of names and values.
    pub(crate) fn admits(&self, entries: &[(u32, u32)]) -> bool {
        match self {
            Self::All(tests) => tests.iter().all(|test| test.admits(entries)),
            Self::Any(tests) => tests.iter().any(|test| test.admits(entries)),
            Self::Value {
                name,
                taken,
                absent,
            } => {
                let found = entries.iter().find(|(entry, _)| Some(*entry) == *name);
                let taken = found.and_then(|(_, value)| taken.get(*value as usize));
                taken.copied().unwrap_or(*absent)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn attributes() -> Attributes {
        let object = json!({"author": "ada", "year": 1843, "draft": false});
        attributes_of(object.as_object().expect("an object"), "attributes").expect("attributes")
    }

    #[test]
    fn conditions_mean_what_they_say() {
        let of =
            |kind: &str, key: &str, value: Value| json!({"type": kind, "key": key, "value": value});
        let group = |kind: &str, filters: &[Value]| json!({"type": kind, "filters": filters});
        let yes = of("eq", "author", json!("ada"));
        let no = of("gt", "year", json!(1843));
        for (filter, expected) in [
            (yes.clone(), true),
            (of("ne", "author", json!("ada")), false),
            (of("ne", "absent", json!(1)), true),
            (of("eq", "absent", json!(1)), false),
            (no.clone(), false),
            (of("gte", "year", json!(1843)), true),
            (of("lt", "year", json!(1843.5)), true),
            (of("lte", "author", json!(5)), false),
            (of("eq", "draft", json!(false)), true),
            (of("in", "year", json!([1, 1843])), true),
            (of("nin", "year", json!([1, 1843])), false),
            (of("nin", "absent", json!([1])), true),
            (group("and", &[yes.clone(), no.clone()]), false),
            (group("or", &[yes.clone(), no.clone()]), true),
            (group("and", &[]), true),
        ] {
            let parsed = AttributeFilter::of(&filter, "filters").expect("a filter");
            assert_eq!(parsed.admits(&attributes()), expected, "{filter}");
        }
    }

    #[test]
    fn what_is_no_filter_is_refused_where_it_is_wrong() {
        let mut deep = json!({"type": "eq", "key": "a", "value": 1});
        for _ in 0..=MAX_FILTER_DEPTH {
            deep = json!({"type": "and", "filters": [deep]});
        }
        let one = json!({"type": "eq", "key": "a", "value": 1});
        let many = json!({"type": "or", "filters": vec![one; MAX_FILTER_PARTS]});
        for (filter, path) in [
            (json!(1), "filters"),
            (json!({"type": "is"}), "filters.key"),
            (
                json!({"type": "is", "key": "a", "value": 1}),
                "filters.type",
            ),
            (
                json!({"type": "eq", "key": "a", "value": [1]}),
                "filters.value",
            ),
            (
                json!({"type": "gt", "key": "a", "value": "b"}),
                "filters.value",
            ),
            (
                json!({"type": "in", "key": "a", "value": 1}),
                "filters.value",
            ),
            (
                json!({"type": "eq", "key": "a", "value": 1, "x": 1}),
                "filters.x",
            ),
            (
                json!({"type": "and", "filters": [{"type": "eq"}]}),
                "filters.filters[0].key",
            ),
            (many, "filters.filters[63]"),
        ] {
            assert_eq!(
                AttributeFilter::of(&filter, "filters")
                    .expect_err("wrong")
                    .path,
                path
            );
        }
        assert!(
            AttributeFilter::of(&deep, "filters")
                .expect_err("deep")
                .message
                .contains("deep")
        );
        let many: Map<String, Value> = (0..17).map(|at| (at.to_string(), json!(1))).collect();
        assert!(attributes_of(&many, "attributes").is_err());
        let list = json!({"a": [1]});
        let error = attributes_of(list.as_object().expect("an object"), "attributes");
        assert_eq!(error.expect_err("a list").path, "attributes.a");
    }
}
