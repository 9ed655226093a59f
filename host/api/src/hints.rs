//! Bounds of hints: fields that are accepted and change nothing that the caller could observe. OpenAI's limits
//! on their types, counts and lengths hold for them too, so that a request that passes here passes there.

use mortise_http::{Problem, kind_of};
use serde_json::{Map, Value};

/// Characters of labels for callers and caches.
const LABELS: [(&str, usize); 5] = [
    ("user", 512),
    ("safety_identifier", 64),
    ("prompt_cache_key", 64),
    ("prompt_cache_retention", 64),
    ("service_tier", 64),
];

/// Entries of `metadata`, and characters of a key and of a value.
const MAX_METADATA: usize = 16;
const MAX_METADATA_KEY: usize = 64;
const MAX_METADATA_VALUE: usize = 512;

/// Texts of a prediction, and bytes of all of them.
const MAX_PREDICTED_PARTS: usize = 128;
const MAX_PREDICTED_BYTES: usize = 512 * 1024;

/// Entries of options whose values are small.
const MAX_OPTIONS: usize = 16;

/// Check the hints among the fields of a request.
///
/// # Errors
/// When one is of another type, or longer than it may be.
pub(crate) fn check(object: &Map<String, Value>) -> Result<(), Problem> {
    let given = |name: &str| object.get(name).filter(|value| !value.is_null());
    for (name, most) in LABELS {
        if let Some(value) = given(name) {
            label(name, value, most)?;
        }
    }
    if let Some(value) = given("metadata") {
        metadata(value)?;
    }
    if let Some(value) = given("prompt_cache_options") {
        options("prompt_cache_options", value)?;
    }
    if let Some(value) = given("prediction") {
        prediction(value)?;
    }
    Ok(())
}

/// The caller's own name for its user, among fields that were checked.
pub(crate) fn user(object: &Map<String, Value>) -> Option<&str> {
    object.get("user").and_then(Value::as_str)
}

fn label(path: &str, value: &Value, most: usize) -> Result<(), Problem> {
    let text = string(path, value)?;
    bounded(path, text, most)?;
    if text.chars().any(char::is_control) {
        return Err(Problem::invalid(
            path,
            format!("`{path}` must not have control characters"),
        ));
    }
    Ok(())
}

fn metadata(value: &Value) -> Result<(), Problem> {
    let entries = entries("metadata", value, MAX_METADATA)?;
    for (key, value) in entries {
        let length = key.chars().count();
        if length > MAX_METADATA_KEY || key.chars().any(char::is_control) {
            return Err(Problem::invalid(
                "metadata",
                format!(
                    "a key of `metadata` has {length} characters; keys have at most \
                     {MAX_METADATA_KEY}, and no control characters"
                ),
            ));
        }
        let path = format!("metadata.{key}");
        let text = string(&path, value)?;
        bounded(&path, text, MAX_METADATA_VALUE)?;
        let control = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
        if text.chars().any(control) {
            return Err(Problem::invalid(
                path.as_str(),
                format!("`{path}` must not have control characters"),
            ));
        }
    }
    Ok(())
}

fn options(path: &str, value: &Value) -> Result<(), Problem> {
    for (key, value) in entries(path, value, MAX_OPTIONS)? {
        let small = match value {
            Value::String(text) => text.len() <= MAX_METADATA_VALUE,
            Value::Array(_) | Value::Object(_) => false,
            _ => true,
        };
        if !small || key.len() > MAX_METADATA_KEY {
            return Err(Problem::invalid(
                path,
                format!("`{path}` takes short texts, numbers and booleans only"),
            ));
        }
    }
    Ok(())
}

/// `{"type": "content", "content": TEXT or [{"type": "text", "text": TEXT}]}`
fn prediction(value: &Value) -> Result<(), Problem> {
    let Value::Object(object) = value else {
        return Err(wrong_type("prediction", "an object", value));
    };
    match object.get("type") {
        Some(Value::String(kind)) if kind == "content" => {}
        _ => {
            return Err(Problem::invalid(
                "prediction.type",
                "`prediction.type` must be `content`",
            ));
        }
    }
    let path = "prediction.content";
    let bytes = match object.get("content") {
        Some(Value::String(text)) => text.len(),
        Some(Value::Array(parts)) => {
            if parts.len() > MAX_PREDICTED_PARTS {
                return Err(too_many(path, parts.len(), MAX_PREDICTED_PARTS, "parts"));
            }
            let mut bytes = 0;
            for (index, part) in parts.iter().enumerate() {
                let text = part.get("text").and_then(Value::as_str);
                let kind = part.get("type").and_then(Value::as_str);
                let (Some(text), Some("text")) = (text, kind) else {
                    let path = format!("{path}[{index}]");
                    return Err(Problem::invalid(
                        path.as_str(),
                        format!("`{path}` must be a part of the type `text`"),
                    ));
                };
                bytes += text.len();
            }
            bytes
        }
        Some(other) => return Err(wrong_type(path, "a string or an array of parts", other)),
        None => {
            return Err(Problem::invalid(path, format!("`{path}` is required")));
        }
    };
    if bytes > MAX_PREDICTED_BYTES {
        return Err(too_many(path, bytes, MAX_PREDICTED_BYTES, "bytes"));
    }
    Ok(())
}

fn entries<'a>(
    path: &str,
    value: &'a Value,
    most: usize,
) -> Result<&'a Map<String, Value>, Problem> {
    match value {
        Value::Object(entries) if entries.len() <= most => Ok(entries),
        Value::Object(entries) => Err(too_many(path, entries.len(), most, "entries")),
        other => Err(wrong_type(path, "an object", other)),
    }
}

fn string<'a>(path: &str, value: &'a Value) -> Result<&'a str, Problem> {
    value
        .as_str()
        .ok_or_else(|| wrong_type(path, "a string", value))
}

fn bounded(path: &str, text: &str, most: usize) -> Result<(), Problem> {
    // Counted in bytes first: a megabyte is not walked through to learn that it is too long.
    if text.len() <= most {
        return Ok(());
    }
    let length = text.chars().take(4 * most + 1).count();
    if length <= most {
        return Ok(());
    }
    Err(Problem::invalid(
        path,
        format!("`{path}` has more than {most} characters"),
    ))
}

fn too_many(path: &str, found: usize, most: usize, unit: &str) -> Problem {
    Problem::invalid(
        path,
        format!("`{path}` has {found} {unit}; at most {most} are taken"),
    )
}

fn wrong_type(path: &str, expected: &str, found: &Value) -> Problem {
    Problem::invalid(
        path,
        format!("`{path}` must be {expected}; it is {}", kind_of(found)),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn verdict(field: &str, value: Value) -> Result<(), Option<String>> {
        let mut object = Map::new();
        object.insert(field.to_owned(), value);
        check(&object).map_err(|error| {
            assert!(error.message.len() < 400, "{}", error.message);
            error.param
        })
    }

    #[test]
    fn hints_within_bounds_pass() {
        let pairs = |count: usize, value: String| {
            let pair = |index| (format!("{index:064}"), Value::from(value.clone()));
            Value::Object((0..count).map(pair).collect())
        };
        for (field, value) in [
            ("user", json!("é".repeat(512))),
            ("user", json!(null)),
            ("safety_identifier", json!("s".repeat(64))),
            ("prompt_cache_key", json!("")),
            ("metadata", json!({})),
            ("metadata", pairs(16, "ü".repeat(512))),
            ("metadata", json!({"note": "two\nlines"})),
            (
                "prediction",
                json!({"type": "content", "content": "x".repeat(MAX_PREDICTED_BYTES)}),
            ),
            (
                "prediction",
                json!({"type": "content", "content": [{"type": "text", "text": "x"}]}),
            ),
            (
                "prompt_cache_options",
                json!({"retention": "24h", "seconds": 5}),
            ),
        ] {
            assert_eq!(verdict(field, value), Ok(()), "{field}");
        }
    }

    #[test]
    fn hints_beyond_bounds_are_named() {
        let many: Map<String, Value> = (0..17).map(|i| (i.to_string(), json!("x"))).collect();
        refused([
            ("user", json!("x".repeat(513)), "user"),
            ("user", json!("é".repeat(513)), "user"),
            ("user", json!("x".repeat(1_000_000)), "user"),
            ("user", json!(5), "user"),
            ("user", json!("a\u{1b}[31mb"), "user"),
            ("user", json!("a\r\nb"), "user"),
            (
                "safety_identifier",
                json!("x".repeat(65)),
                "safety_identifier",
            ),
            ("safety_identifier", json!(["x"]), "safety_identifier"),
            (
                "prompt_cache_key",
                json!("x".repeat(65)),
                "prompt_cache_key",
            ),
            ("prompt_cache_key", json!("a\0"), "prompt_cache_key"),
            ("metadata", json!("x"), "metadata"),
            ("metadata", json!([]), "metadata"),
            ("metadata", Value::Object(many), "metadata"),
            ("metadata", json!({"k".repeat(65): "x"}), "metadata"),
            ("metadata", json!({"a\nb": "x"}), "metadata"),
            ("metadata", json!({"k": 5}), "metadata.k"),
            ("metadata", json!({"k": "x".repeat(513)}), "metadata.k"),
            ("metadata", json!({"k": "a\u{7}"}), "metadata.k"),
        ]);
    }

    #[test]
    fn predictions_and_cache_options_beyond_bounds_are_named() {
        let parts = vec![json!({"type": "text", "text": "x"}); MAX_PREDICTED_PARTS + 1];
        refused([
            ("prediction", json!("x"), "prediction"),
            ("prediction", json!({"content": "x"}), "prediction.type"),
            (
                "prediction",
                json!({"type": "content"}),
                "prediction.content",
            ),
            (
                "prediction",
                json!({"type": "content", "content": 5}),
                "prediction.content",
            ),
            (
                "prediction",
                json!({"type": "content", "content": [{"type": "image"}]}),
                "prediction.content[0]",
            ),
            (
                "prediction",
                json!({"type": "content", "content": parts}),
                "prediction.content",
            ),
            (
                "prediction",
                json!({"type": "content", "content": "x".repeat(MAX_PREDICTED_BYTES + 1)}),
                "prediction.content",
            ),
            (
                "prompt_cache_options",
                json!({"a": [1]}),
                "prompt_cache_options",
            ),
            ("prompt_cache_options", json!(1), "prompt_cache_options"),
        ]);
    }

    /// Each value is refused, naming the path.
    fn refused<const CASES: usize>(cases: [(&str, Value, &str); CASES]) {
        for (field, value, param) in cases {
            let text = value.to_string();
            assert_eq!(
                verdict(field, value),
                Err(Some(param.to_owned())),
                "{field}: {}",
                text.chars().take(80).collect::<String>()
            );
        }
    }
}
