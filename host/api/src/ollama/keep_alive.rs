//! `keep_alive`: how long a model stays loaded after a request, where the operator lets callers say so.

use std::time::Duration;

use mortise_http::Problem;
use serde_json::{Map, Value};

use crate::fields::{FieldPath, wrong_value};
use crate::state::ApiState;

/// Bytes of a duration that is written as text.
const MAX_TEXT_BYTES: usize = 64;

/// Units of Go's durations, in seconds. One that begins like another comes first.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("μs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

/// Take the time from a body. Where callers may not say, the field stays for those who refuse it.
///
/// # Errors
/// When it is no time.
pub(super) fn taken(
    state: &ApiState,
    object: &mut Map<String, Value>,
) -> Result<Option<Duration>, Problem> {
    if !state.keep_alive {
        return Ok(None);
    }
    match object.shift_remove("keep_alive") {
        None | Some(Value::Null) => Ok(None),
        Some(value) => time(&value).map(Some).ok_or_else(|| {
            let expected = "a number of seconds, or a duration such as `10m`; below 0 is for ever";
            wrong_value(&FieldPath::from("keep_alive"), expected, &value)
        }),
    }
}

/// The model stays loaded for a while after the last request that uses it.
pub(super) fn keep(state: &ApiState, model: &str, time: Option<Duration>) {
    if let Some(time) = time {
        state.service.keep_loaded(model, time);
    }
}

fn time(value: &Value) -> Option<Duration> {
    let seconds = match value {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => seconds(text)?,
        _ => return None,
    };
    match seconds < 0.0 {
        true => Some(Duration::MAX),
        false => Duration::try_from_secs_f64(seconds).ok(),
    }
}

/// Seconds of a duration as Go writes it, such as `1h30m`.
fn seconds(text: &str) -> Option<f64> {
    if text.len() > MAX_TEXT_BYTES {
        return None;
    }
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0.0);
    }
    let mut sum = None;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let (number, behind) = rest.split_at(end);
        let number: f64 = number.parse().ok()?;
        let (unit, seconds) = UNITS.iter().find(|(unit, _)| behind.starts_with(unit))?;
        sum = Some(sum.unwrap_or(0.0) + number * seconds);
        rest = behind.strip_prefix(unit)?;
    }
    sum.map(|sum| sign * sum)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (value, seconds) in [
            (json!(0), 0.0),
            (json!(1.5), 1.5),
            (json!("0"), 0.0),
            (json!("10m"), 600.0),
            (json!("1h30m"), 5400.0),
            (json!("+1m0.5s"), 60.5),
            (json!("250ms"), 0.25),
            (json!("3µs"), 3e-6),
        ] {
            let expected = Duration::from_secs_f64(seconds);
            assert_eq!(time(&value), Some(expected), "{value}");
        }
        for value in [json!(-1), json!("-1s"), json!("-1h")] {
            assert_eq!(time(&value), Some(Duration::MAX), "{value}");
        }
        for value in [
            json!("5"),
            json!(""),
            json!("-"),
            json!("m"),
            json!("1d"),
            json!("1.2.3s"),
            json!("1e9s"),
            json!(1e300),
            json!(true),
            json!("1s".repeat(40)),
        ] {
            assert_eq!(time(&value), None, "{value}");
        }
    }
}
