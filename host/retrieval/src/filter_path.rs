//! Filters as predicates of SQL/JSON path, for databases that keep the attributes as JSON.

use serde_json::{Map, Value};

use crate::filter::{Attribute, AttributeFilter, Attributes, Comparison, FilterPart};

impl AttributeFilter {
    /// The predicate that is true of [`attributes_json`] where the filter admits the attributes.
    pub fn json_path(&self) -> String {
        predicate(&self.0)
    }
}

/// Attributes as a JSON object.
pub fn attributes_json(attributes: &Attributes) -> String {
    let members = attributes.iter().map(|(name, value)| {
        let value = match value {
            Attribute::Text(text) => Value::from(escaped(text)),
            Attribute::Number(number) => Value::from(*number),
            Attribute::Flag(flag) => Value::from(*flag),
        };
        (escaped(name), value)
    });
    Value::Object(members.collect::<Map<String, Value>>()).to_string()
}

/// A text without the character 0, which PostgreSQL has no place for. No two texts become the same.
fn escaped(text: &str) -> String {
    text.replace('\u{1}', "\u{1}1").replace('\0', "\u{1}0")
}

fn quoted(text: &str) -> String {
    Value::from(escaped(text)).to_string()
}

fn predicate(part: &FilterPart) -> String {
    match part {
        FilterPart::All(parts) => joined(parts.iter().map(predicate), " && ", "1 == 1"),
        FilterPart::Any(parts) => joined(parts.iter().map(predicate), " || ", "1 == 0"),
        FilterPart::Among(key, values, among) => {
            let equal = values
                .iter()
                .map(|value| compare(key, Comparison::Equal, value));
            let equal = joined(equal, " || ", "1 == 0");
            match among {
                true => equal,
                false => not(&equal),
            }
        }
        FilterPart::Compare(key, Comparison::Different, value) => {
            not(&compare(key, Comparison::Equal, value))
        }
        FilterPart::Compare(key, comparison, value) => compare(key, *comparison, value),
    }
}

fn joined(parts: impl Iterator<Item = String>, between: &str, none: &str) -> String {
    let parts: Vec<String> = parts.map(|part| format!("({part})")).collect();
    match parts.is_empty() {
        true => none.to_owned(),
        false => parts.join(between),
    }
}

/// True where a predicate is not: values of different types are neither equal nor different by themselves.
fn not(predicate: &str) -> String {
    format!("!({predicate}) || (({predicate}) is unknown)")
}

fn compare(key: &str, comparison: Comparison, value: &Attribute) -> String {
    let sign = match comparison {
        Comparison::Equal => "==",
        Comparison::Different => "!=",
        Comparison::Greater => ">",
        Comparison::GreaterOrEqual => ">=",
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
    };
    let value = match value {
        Attribute::Text(text) => quoted(text),
        Attribute::Number(number) => Value::from(*number).to_string(),
        Attribute::Flag(flag) => flag.to_string(),
    };
    format!("$.{} {sign} {value}", quoted(key))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_are_predicates_with_their_values_quoted() {
        let filter = json!({"type": "and", "filters": [
            {"type": "eq", "key": "a\"b", "value": "c\\\0\u{1}"},
            {"type": "ne", "key": "n", "value": -1.5},
            {"type": "in", "key": "f", "value": []},
        ]});
        let filter = AttributeFilter::of(&filter, "filters").expect("a filter");
        assert_eq!(
            filter.json_path(),
            r#"($."a\"b" == "c\\\u00010\u00011") && (!($."n" == -1.5) || (($."n" == -1.5) is unknown)) && (1 == 0)"#
        );
    }
}
