//! Python's methods on strings and maps that minijinja's own compatibility layer lacks.

use minijinja::value::{Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};

/// Result of a method that minijinja does not know.
pub(crate) fn call(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if value.kind() == ValueKind::String
        && let Some(text) = value.as_str()
        && let Some(result) = string_method(text, method, args)?
    {
        return Ok(result);
    }
    if value.kind() == ValueKind::Map && method == "copy" {
        let () = from_args(args)?;
        return Ok(value.clone());
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args)
}

fn string_method(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            let (before, found, after) = match text.split_once(separator) {
                Some((before, after)) => (before, separator, after),
                None => (text, "", ""),
            };
            triple(before, found, after)
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let (before, found, after) = match text.rsplit_once(separator) {
                Some((before, after)) => (before, separator, after),
                None => ("", "", text),
            };
            triple(before, found, after)
        }
        "rsplit" => {
            let (separator, count): (Option<&str>, Option<i64>) = from_args(args)?;
            rsplit(text, separator, count)
        }
        "index" => {
            let (part,): (&str,) = from_args(args)?;
            let at = text
                .find(part)
                .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "substring not found"))?;
            Value::from(text[..at].chars().count())
        }
        _ => return Ok(None),
    }))
}

fn triple(before: &str, found: &str, after: &str) -> Value {
    Value::from(Tuple::from([
        Value::from(before),
        Value::from(found),
        Value::from(after),
    ]))
}

fn rsplit(text: &str, separator: Option<&str>, count: Option<i64>) -> Value {
    let limit = count.and_then(|count| usize::try_from(count).ok());
    let mut parts: Vec<&str> = match (separator, limit) {
        (None, _) => text.split_whitespace().rev().collect(),
        (Some(separator), None) => text.rsplit(separator).collect(),
        (Some(separator), Some(limit)) => {
            text.rsplitn(limit.saturating_add(1), separator).collect()
        }
    };
    parts.reverse();
    parts.into_iter().map(Value::from).collect()
}
