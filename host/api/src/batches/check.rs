//! One line of a batch: what it must say, and what is wrong with it in the words of OpenAI's `errors.data`.

use http::StatusCode;
use mortise_http::{Problem, Reservation, kind_of, object_within};
use serde_json::{Map, Value, json};

use crate::limits::MAX_CUSTOM_ID;

/// A line that can be sent to its route.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LineRequest {
    /// Name that the caller gave the line.
    pub(super) custom_id: String,
    /// Body of the request.
    pub(super) body: Map<String, Value>,
}

/// Defect of a line, or of the whole file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    code: &'static str,
    message: String,
    param: Option<&'static str>,
}

/// A line that cannot be taken.
#[derive(Debug)]
pub(super) enum RefusedLine {
    /// The line is wrong.
    Wrong(Wrong),
    /// Other requests hold the memory that the line needs; a later try may find room.
    Busy,
}

impl Wrong {
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            param: None,
        }
    }

    pub(super) fn at(param: &'static str, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            param: Some(param),
            ..Self::new(code, message)
        }
    }

    /// The failure as an entry of `errors.data`; `line` counts from 1.
    pub(super) fn entry(&self, line: Option<u64>) -> Value {
        json!({"code": self.code, "line": line, "message": self.message, "param": self.param})
    }
}

/// Read a line of a batch for a route.
pub(super) fn read(
    text: &[u8],
    endpoint: &str,
    memory: &mut Reservation,
) -> Result<LineRequest, RefusedLine> {
    let object = object_within(text, memory).map_err(|problem: Problem| {
        if problem.status == StatusCode::SERVICE_UNAVAILABLE {
            return RefusedLine::Busy;
        }
        let message = problem.text().replacen("the body", "the line", 1);
        RefusedLine::Wrong(Wrong::new("invalid_json_line", message))
    })?;
    of_object(object, endpoint).map_err(RefusedLine::Wrong)
}

fn of_object(mut object: Map<String, Value>, endpoint: &str) -> Result<LineRequest, Wrong> {
    let known = ["custom_id", "method", "url", "body"];
    if let Some(unknown) = object.keys().find(|key| !known.contains(&key.as_str())) {
        let unknown: String = unknown.chars().take(64).collect();
        let message = format!(
            "unknown field `{unknown}`; known are `{}`",
            known.join("`, `")
        );
        return Err(Wrong::new("unknown_parameter", message));
    }
    let custom_id = match text(&mut object, "custom_id")? {
        id if (1..=MAX_CUSTOM_ID).contains(&id.chars().count())
            && !id.contains(char::is_control) =>
        {
            id
        }
        _ => {
            let message = format!(
                "`custom_id` must have 1 to {MAX_CUSTOM_ID} characters, none of them control characters"
            );
            return Err(Wrong::at("custom_id", "invalid_custom_id", message));
        }
    };
    if text(&mut object, "method")? != "POST" {
        return Err(Wrong::at(
            "method",
            "invalid_method",
            "`method` must be `POST`",
        ));
    }
    if text(&mut object, "url")? != endpoint {
        let message = format!("`url` must be `{endpoint}`, the `endpoint` of the batch");
        return Err(Wrong::at("url", "mismatched_url", message));
    }
    let body = match object.remove("body") {
        Some(Value::Object(body)) => body,
        None => return Err(missing("body")),
        Some(other) => {
            let message = format!("`body` must be an object; it is {}", kind_of(&other));
            return Err(Wrong::at("body", "invalid_body", message));
        }
    };
    for field in ["stream", "background"] {
        if body
            .get(field)
            .is_some_and(|value| *value != Value::Bool(false) && !value.is_null())
        {
            let message = format!("`body.{field}` is not supported in a batch; leave it out");
            return Err(Wrong::at("body", "unsupported_parameter", message));
        }
    }
    Ok(LineRequest { custom_id, body })
}

fn missing(name: &'static str) -> Wrong {
    let message = format!("`{name}` is required");
    Wrong::at(name, "missing_required_parameter", message)
}

fn text(object: &mut Map<String, Value>, name: &'static str) -> Result<String, Wrong> {
    match object.remove(name) {
        Some(Value::String(text)) => Ok(text),
        None => Err(missing(name)),
        Some(other) => {
            let message = format!("`{name}` must be a string; it is {}", kind_of(&other));
            Err(Wrong::at(name, "invalid_value", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use mortise_http::{BodyBudget, Owner};

    use super::*;

    fn code(text: &str) -> Result<String, (&'static str, Option<&'static str>)> {
        let budget = BodyBudget::new(1 << 20);
        let mut memory = budget.open(Owner::new(IpAddr::V4(Ipv4Addr::LOCALHOST), None));
        match read(text.as_bytes(), "/v1/embeddings", &mut memory) {
            Ok(line) => Ok(line.custom_id),
            Err(RefusedLine::Wrong(wrong)) => Err((wrong.code, wrong.param)),
            Err(RefusedLine::Busy) => panic!("there is memory"),
        }
    }

    fn sound() -> Value {
        json!({"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": {}})
    }

    #[test]
    fn feature_e29_a_line_has_all_its_fields() {
        assert_eq!(code(&sound().to_string()), Ok("a".to_owned()));
        assert_eq!(code(&format!("{}\r", sound())), Ok("a".to_owned()));
        for name in ["custom_id", "method", "url", "body"] {
            let mut line = sound();
            line.as_object_mut().expect("an object").remove(name);
            let missing = Err(("missing_required_parameter", Some(name)));
            assert_eq!(code(&line.to_string()), missing);
        }
    }

    #[test]
    fn feature_e29_what_is_wrong_with_a_line_is_named() {
        let line = sound();
        let with = |name: &str, value: Value| {
            let mut line = line.clone();
            line[name] = value;
            line.to_string()
        };
        for (text, expected, param) in [
            ("nonsense".to_owned(), "invalid_json_line", None),
            ("[1]".to_owned(), "invalid_json_line", None),
            (format!("{line} {line}"), "invalid_json_line", None),
            (
                with("custom_id", json!(1)),
                "invalid_value",
                Some("custom_id"),
            ),
            (
                with("custom_id", json!("")),
                "invalid_custom_id",
                Some("custom_id"),
            ),
            (
                with("custom_id", json!("a\nb")),
                "invalid_custom_id",
                Some("custom_id"),
            ),
            (
                with("custom_id", json!("x".repeat(257))),
                "invalid_custom_id",
                Some("custom_id"),
            ),
            (
                with("method", json!("GET")),
                "invalid_method",
                Some("method"),
            ),
            (
                with("url", json!("/v1/files")),
                "mismatched_url",
                Some("url"),
            ),
            (with("body", json!([])), "invalid_body", Some("body")),
            (
                with("body", json!({"stream": true})),
                "unsupported_parameter",
                Some("body"),
            ),
            (
                with("body", json!({"background": 1})),
                "unsupported_parameter",
                Some("body"),
            ),
            (with("colour", json!("red")), "unknown_parameter", None),
        ] {
            assert_eq!(code(&text), Err((expected, param)), "{text}");
        }
        assert_eq!(
            code(&with("body", json!({"stream": false}))),
            Ok("a".to_owned())
        );
    }
}
