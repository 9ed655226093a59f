//! Checks of fields that change nothing else: the tier, labels and hints.

use mortise_http::{Problem, kind_of};
use serde_json::{Map, Value};

use crate::fields::{FieldPath, FieldReader};
use crate::hints;

pub(super) fn check_tier(tier: Option<&str>, reader: &mut FieldReader) -> Result<(), Problem> {
    match tier {
        None | Some("auto" | "default") => Ok(()),
        Some(_) => {
            let why = "this server has one tier: `auto` or `default`";
            reader.unsupported(&FieldPath::from("service_tier"), why)
        }
    }
}

/// Check labels and hints before anything else is read.
pub(super) fn check_hints(object: &Map<String, Value>) -> Result<(), Problem> {
    hints::check(object)?;
    match object.get("metadata") {
        None | Some(Value::Null | Value::Object(_)) => Ok(()),
        Some(other) => Err(Problem::invalid(
            "metadata",
            format!("`metadata` must be an object; it is {}", kind_of(other)),
        )),
    }
}
