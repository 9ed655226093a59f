//! Tools for dates: `current_time` asks the host's clock, `weekday_of` and `days_between` compute.
//! Dates are of the Gregorian calendar, `YYYY-MM-DD`.
//!
//! Build: `cargo build --release --target wasm32-wasip2`; then drop
//! `target/wasm32-wasip2/release/date_time.wasm` into the server's plugins folder. A request opts in
//! with `"server_tools": ["current_time", "days_between"]`.

mod calendar;

use serde_json::{Value, json};

use calendar::Date;

wit_bindgen::generate!({
    path: "../../../wit/v0.2",
    world: "tool-plugin",
});

use exports::mortise::plugin::lifecycle::Guest as Lifecycle;
use exports::mortise::plugin::tool::{Context, Declaration, Failure, Guest as Tool};
use mortise::plugin::clock;
use mortise::plugin::types::Fault;

struct DateTime;
export!(DateTime);

impl Lifecycle for DateTime {
    fn prepare() -> Result<(), Fault> {
        Ok(())
    }
}

fn declaration(name: &str, description: &str, properties: Value, required: &[&str]) -> Declaration {
    let parameters = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    Declaration {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters: parameters.to_string(),
    }
}

impl Tool for DateTime {
    fn describe() -> Vec<Declaration> {
        let date = json!({"type": "string", "description": "YYYY-MM-DD"});
        vec![
            declaration(
                "current_time",
                "Tells the date, the weekday and the time of now.",
                json!({"utc_offset_minutes": {
                    "type": "integer", "minimum": -840, "maximum": 840,
                    "description": "Minutes east of UTC; 0 if absent.",
                }}),
                &[],
            ),
            declaration(
                "weekday_of",
                "Tells the weekday of a date.",
                json!({"date": date}),
                &["date"],
            ),
            declaration(
                "days_between",
                "Counts the days from one date to another; negative if the second is earlier.",
                json!({"from": date, "to": date}),
                &["from", "to"],
            ),
        ]
    }

    fn call(name: String, arguments: String, _context: Context) -> Result<String, Failure> {
        // The host has checked that the arguments follow the schema.
        let arguments: Value = serde_json::from_str(&arguments)
            .map_err(|error| Failure::Internal(error.to_string()))?;
        let date = |key: &str| {
            let text = arguments[key].as_str().unwrap_or_default();
            Date::parse(text)
                .ok_or_else(|| Failure::Refused(format!("`{text}` is no date; write YYYY-MM-DD")))
        };
        match name.as_str() {
            "weekday_of" => Ok(date("date")?.weekday().to_owned()),
            "days_between" => Ok((date("to")?.days() - date("from")?.days()).to_string()),
            _ => Ok(now(arguments["utc_offset_minutes"].as_i64().unwrap_or(0))),
        }
    }
}

/// The time of now, so many minutes east of UTC.
fn now(offset_minutes: i64) -> String {
    let millis = i64::try_from(clock::unix_millis()).unwrap_or(i64::MAX);
    let seconds = millis / 1000 + offset_minutes * 60;
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let date = Date::from_days(days);
    let time = format!(
        "{:02}:{:02}:{:02}",
        second / 3600,
        second / 60 % 60,
        second % 60
    );
    json!({"date": date.to_string(), "weekday": date.weekday(), "time": time}).to_string()
}
