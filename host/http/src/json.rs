//! Reads a request's JSON body: UTF-8 first, then depth, then syntax, each with a message that
//! says where. A key that stands twice in one object is refused, because two readers of such a
//! body may disagree about what it says.

use std::fmt;

use http::StatusCode;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::problem::Problem;

/// Deepest nesting of arrays and objects.
pub const MAX_DEPTH: usize = 120;

/// Parse a body that must be one JSON object.
pub fn parse_object(body: &[u8]) -> Result<Map<String, Value>, Problem> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(malformed("the body is empty; a JSON object was expected"));
    }
    let text = std::str::from_utf8(body).map_err(|error| {
        malformed(format!(
            "the body is not UTF-8: the byte at offset {} starts no character",
            error.valid_up_to()
        ))
    })?;
    check_depth(text)?;
    match serde_json::from_str::<Strict>(text) {
        Ok(Strict(Value::Object(object))) => Ok(object),
        Ok(Strict(other)) => Err(malformed(format!(
            "the body is {}; a JSON object was expected",
            kind_of(&other)
        ))),
        Err(error) => Err(malformed(format!("the body is not valid JSON: {error}"))),
    }
}

/// Type of a JSON value, in words for an error message.
pub fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn malformed(message: impl Into<String>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "invalid_json", message)
}

/// Refuse a body that is nested too deep, by a flat scan before the recursive parser: a body may be a megabyte of `[`.
fn check_depth(text: &str) -> Result<(), Problem> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (offset, byte) in text.bytes().enumerate() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(malformed(format!(
                "the body nests deeper than {MAX_DEPTH} levels at offset {offset}"
            )));
        }
    }
    Ok(())
}

/// A value in which no object has a key twice.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Strict)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("the key `{key}` stands twice")));
            }
            let Strict(value) = entries.next_value()?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &[u8], expected: &str) {
        let message = parse_object(body).expect_err("must be refused").message;
        assert!(message.contains(expected), "{message:?} lacks {expected:?}");
    }

    #[test]
    fn bad_bodies_are_named() {
        check(b"", "empty");
        check(b"  \n", "empty");
        check(b"[1]", "an array");
        check(b"\"x\"", "a string");
        check(b"{\"a\":}", "line 1 column 6");
        check(b"{\"a\":1,\n\"a\":2}", "`a` stands twice");
        check(b"{\"a\":{\"b\":1,\"b\":1}}", "`b` stands twice");
        check(b"{\"a\":\"\xff\"}", "offset 6");
        check(b"{\"a\":1e999}", "number out of range");
        check(b"{\"a\":\"\\ud800\"}", "line 1");
        check(b"{\"a\":1} x", "trailing");
        let bomb = "[".repeat(1_000_000);
        check(bomb.as_bytes(), "nests deeper than 120");
    }

    #[test]
    fn depth_counts_only_structure() {
        let body = format!("{{\"a\":\"{}\\\"[\"}}", "[".repeat(500));
        assert_eq!(parse_object(body.as_bytes()).expect("valid").len(), 1);
        let deep = format!(
            "{{\"a\":{}{}}}",
            "[".repeat(MAX_DEPTH - 1),
            "]".repeat(MAX_DEPTH - 1)
        );
        assert!(parse_object(deep.as_bytes()).is_ok());
    }

    proptest::proptest! {
        #[test]
        fn agrees_with_serde_json(text in "[\\[\\]{}\":,a0-9. \\\\-]{0,40}") {
            let ours = parse_object(text.as_bytes()).ok();
            let theirs = serde_json::from_str::<Map<String, Value>>(&text).ok();
            // Ours refuses duplicate keys, theirs keeps the last: ours is the stricter of the two.
            if ours.is_some() {
                proptest::prop_assert_eq!(ours, theirs);
            }
        }
    }
}
