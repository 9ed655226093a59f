//! Tools for dates: `current_time` asks the host's clock, `weekday_of` and `days_between` compute.
//! Dates are of the Gregorian calendar, `YYYY-MM-DD`.
//!
//! Build: `cargo build --release --target wasm32-wasip2`; then drop
//! `target/wasm32-wasip2/release/date_time.wasm` into the server's plugins folder. A request opts in
//! with `"server_tools": ["current_time", "days_between"]`.

mod calendar;

use calendar::Date;
use mortise_plugin_sdk::serde_json::{Value, json};
use mortise_plugin_sdk::tool::{Context, Declaration, Failure, Tool};
use mortise_plugin_sdk::{Fault, NoSettings, unix_millis};

mortise_plugin_sdk::export!(tool: DateTime);

struct DateTime;

fn declaration(name: &str, description: &str, properties: Value, required: &[&str]) -> Declaration {
    let parameters = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    Declaration::new(name, description, &parameters)
}

impl Tool for DateTime {
    type Settings = NoSettings;

    fn prepare(_: NoSettings) -> Result<Self, Fault> {
        Ok(Self)
    }

    fn describe(&self) -> Vec<Declaration> {
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

    fn call(&self, name: &str, arguments: Value, _: Context) -> Result<String, Failure> {
        // The host has checked that the arguments follow the schema.
        let date = |key: &str| {
            let text = arguments[key].as_str().unwrap_or_default();
            Date::parse(text)
                .ok_or_else(|| Failure::Refused(format!("`{text}` is no date; write YYYY-MM-DD")))
        };
        match name {
            "weekday_of" => Ok(date("date")?.weekday().to_owned()),
            "days_between" => Ok((date("to")?.days() - date("from")?.days()).to_string()),
            _ => Ok(now(arguments["utc_offset_minutes"].as_i64().unwrap_or(0))),
        }
    }
}

/// The time of now, so many minutes east of UTC.
fn now(offset_minutes: i64) -> String {
    let millis = i64::try_from(unix_millis()).unwrap_or(i64::MAX);
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
