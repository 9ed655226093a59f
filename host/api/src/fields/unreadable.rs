//! Wire errors for fields of a wrong type or value, from the reasons of their types.

use mortise_http::{Problem, kind_of};
use serde_json::Value;

use super::path::{FieldPath, PathSegment};
use super::refusal::FieldRefusal;

/// The error for a field that could not be read as the type that it has in the request. `found` is
/// the value at `path`.
pub(crate) fn unreadable(
    path: &FieldPath,
    refusal: FieldRefusal,
    found: Option<&Value>,
) -> Problem {
    if let FieldRefusal::Missing(name) = refusal {
        return missing(&path.key(name));
    }
    let member = matches!(path.segments().last(), Some(PathSegment::Key(_)));
    let null = found.is_none_or(Value::is_null);
    if member && null {
        return missing(path);
    }
    let found = found.unwrap_or(&Value::Null);
    match refusal {
        FieldRefusal::Missing(name) => missing(&path.key(name)),
        FieldRefusal::Words(words) => {
            wrong_value(path, &format!("one of `{}`", words.join("`, `")), found)
        }
        FieldRefusal::Type(expected) | FieldRefusal::Value(expected)
            if found.is_number() && number_of(&expected).is_some() =>
        {
            let range = number_of(&expected).map_or("a number", |(_, range)| range);
            wrong_value(path, range, found)
        }
        FieldRefusal::Value(expected) => wrong_value(path, &expected, found),
        FieldRefusal::Type(expected) => {
            let kind = number_of(&expected).map_or_else(|| type_of(&expected), |(kind, _)| kind);
            wrong_type(path, kind, found)
        }
        FieldRefusal::Other(message) => {
            Problem::invalid(path.to_string(), format!("`{path}` {message}"))
        }
    }
}

/// Kind and range of a number, where serde expects one.
fn number_of(expected: &str) -> Option<(&'static str, &'static str)> {
    match expected {
        "u32" => Some(("an integer", "an integer from 0 to 4294967295")),
        "i64" => Some(("an integer", "a 64-bit integer")),
        "f64" => Some(("a number", "a number")),
        _ => None,
    }
}

/// A type in the words of JSON.
fn type_of(expected: &str) -> &str {
    match expected {
        "a map" => "an object",
        "a sequence" => "an array",
        other if other.starts_with("struct ") => "an object",
        other => other,
    }
}

/// A required field is absent.
pub(crate) fn missing(path: &FieldPath) -> Problem {
    let mut error = Problem::invalid(path.to_string(), format!("`{path}` is required"));
    error.code = "missing_required_parameter".to_owned();
    error
}

/// A field has a value of another type.
pub(crate) fn wrong_type(path: &FieldPath, expected: &str, found: &Value) -> Problem {
    let mut error = Problem::invalid(
        path.to_string(),
        format!("`{path}` must be {expected}; it is {}", kind_of(found)),
    );
    error.code = "invalid_type".to_owned();
    error
}

/// A field has a value that it must not have.
pub(crate) fn wrong_value(path: &FieldPath, expected: &str, found: &Value) -> Problem {
    let found = match found {
        Value::String(text) => format!("`{text}`"),
        other => other.to_string(),
    };
    Problem::invalid(
        path.to_string(),
        format!("`{path}` must be {expected}; it is {found}"),
    )
}
