//! Log lines that are written without `tracing`: in a panic hook nothing may panic, and the thread that
//! writes the log cannot log through it.

use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};

use super::LogFormat;

/// A line of the form that the subscriber writes, with its line break.
pub(super) fn line(
    format: LogFormat,
    level: &str,
    message: &str,
    fields: &[(&str, &str)],
) -> String {
    let mut now = String::new();
    // A clock that cannot be formatted leaves the time out.
    let _ = SystemTime.format_time(&mut Writer::new(&mut now));
    match format {
        LogFormat::Text => {
            let mut line = format!("{now} {level:>5} mortise::log: {}", escaped(message));
            for (name, value) in fields {
                line.push_str(&format!(" {name}={}", escaped(value)));
            }
            line + "\n"
        }
        LogFormat::Json => {
            let mut object = serde_json::Map::new();
            object.insert("timestamp".to_owned(), now.into());
            object.insert("level".to_owned(), level.into());
            object.insert("message".to_owned(), message.into());
            for (name, value) in fields {
                object.insert((*name).to_owned(), (*value).into());
            }
            object.insert("target".to_owned(), "mortise::log".into());
            serde_json::Value::Object(object).to_string() + "\n"
        }
    }
}

/// Control characters would forge lines or drive a terminal.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_single_whatever_a_panic_says() {
        for message in ["plain", "two\nlines", "\u{1b}[31mred", "quote \" and \\"] {
            let text = line(LogFormat::Text, "ERROR", message, &[("place", "a.rs:1")]);
            assert_eq!(text.matches('\n').count(), 1, "{text}");
            assert!(
                text.contains(" ERROR ") && !text.contains('\u{1b}'),
                "{text}"
            );
            let json = line(LogFormat::Json, "ERROR", message, &[("place", "a.rs:1")]);
            assert_eq!(json.matches('\n').count(), 1, "{json}");
            let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
            assert_eq!(value["message"], message);
            assert_eq!(value["place"], "a.rs:1");
        }
    }
}
