//! `expires_after`: the time after which a file is gone, as its owner wants it.

use mortise_http::Problem;
use serde_json::{Map, Value};

use crate::retention::Retention;

/// Seconds that a file may be kept: an hour to thirty days, as at OpenAI.
const SECONDS: std::ops::RangeInclusive<i64> = 3600..=2_592_000;

/// Time after which a file is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expiry {
    /// Seconds from its creation.
    pub(crate) seconds: i64,
}

impl Expiry {
    /// From the fields `expires_after[anchor]` and `expires_after[seconds]` of a form.
    ///
    /// # Errors
    /// When one is there without the other, or says something else than OpenAI takes.
    pub(crate) fn of_form(
        anchor: Option<&str>,
        seconds: Option<&str>,
    ) -> Result<Option<Self>, Problem> {
        let seconds = seconds.map(|text| text.trim().parse().ok());
        checked("expires_after", anchor, seconds)
    }

    /// From an object `{"anchor": "created_at", "seconds": N}` at the field `name`.
    ///
    /// # Errors
    /// As of [`of_form`](Self::of_form), or when the object has an unknown field.
    pub(crate) fn of_object(name: &str, value: &Value) -> Result<Option<Self>, Problem> {
        let object: &Map<String, Value> = match value {
            Value::Null => return Ok(None),
            Value::Object(object) => object,
            _ => return Err(wrong(name)),
        };
        let known = |key: &String| matches!(key.as_str(), "anchor" | "seconds");
        if let Some(unknown) = object.keys().find(|key| !known(key)) {
            let unknown: String = unknown.chars().take(64).collect();
            let path = format!("{name}.{unknown}");
            let problem = format!("unknown field `{path}`; known are `anchor` and `seconds`");
            return Err(Problem::invalid(path, problem));
        }
        let anchor = object.get("anchor").and_then(Value::as_str);
        let seconds = object.get("seconds").map(Value::as_i64);
        checked(name, anchor, seconds.or(Some(None)))
    }

    /// When a file made at `created` is gone; the server keeps none longer than it keeps answers.
    pub(crate) fn at(expiry: Option<Self>, created: i64, retention: Retention) -> Option<i64> {
        let own = expiry.map(|expiry| created.saturating_add(expiry.seconds));
        let servers = retention.answer_expires(created);
        own.into_iter().chain(servers).min()
    }
}

fn checked(
    name: &str,
    anchor: Option<&str>,
    seconds: Option<Option<i64>>,
) -> Result<Option<Expiry>, Problem> {
    match (anchor, seconds) {
        (None, None) => Ok(None),
        (Some("created_at"), Some(Some(seconds))) if SECONDS.contains(&seconds) => {
            Ok(Some(Expiry { seconds }))
        }
        _ => Err(wrong(name)),
    }
}

fn wrong(name: &str) -> Problem {
    let problem = format!(
        "`{name}` must have an `anchor`, which is `created_at`, and `seconds` from {} to {}",
        SECONDS.start(),
        SECONDS.end()
    );
    Problem::invalid(name, problem)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn feature_e28_expiry_is_within_openais_bounds_and_the_servers() {
        let of = |value: Value| Expiry::of_object("x", &value).map_err(|problem| problem.param);
        let right = of(json!({"anchor": "created_at", "seconds": 3600}));
        assert_eq!(right, Ok(Some(Expiry { seconds: 3600 })));
        assert_eq!(of(Value::Null), Ok(None));
        for wrong in [
            json!({"anchor": "created_at", "seconds": 3599}),
            json!({"anchor": "created_at", "seconds": 2_592_001}),
            json!({"anchor": "created_at", "seconds": 3600.5}),
            json!({"anchor": "created_at"}),
            json!({"anchor": "last_active_at", "seconds": 3600}),
            json!({"seconds": 3600}),
            json!({}),
            json!("1h"),
        ] {
            assert_eq!(of(wrong.clone()), Err(Some("x".to_owned())), "{wrong}");
        }
        assert_eq!(of(json!({"days": 1})), Err(Some("x.days".to_owned())));
        let form = Expiry::of_form(Some("created_at"), Some("7200")).expect("right");
        let days = |days: u64| Retention {
            answers: (days > 0).then(|| Duration::from_secs(days * 86400)),
            idempotency: Duration::ZERO,
        };
        assert_eq!(Expiry::at(form, 100, days(0)), Some(7300));
        assert_eq!(Expiry::at(None, 100, days(0)), None);
        assert_eq!(Expiry::at(None, 100, days(1)), Some(86500));
        let long = Some(Expiry { seconds: 2_592_000 });
        assert_eq!(Expiry::at(long, 100, days(1)), Some(86500));
        assert!(Expiry::of_form(Some("created_at"), Some("x")).is_err());
        assert!(Expiry::of_form(None, Some("7200")).is_err());
    }
}
