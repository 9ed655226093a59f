//! A tool: it counts what a text has, since language models are bad at counting. The model calls
//! `count_text` with a text; the settings may bound the text: `{"max_bytes": 1000}`.

use mortise_plugin_sdk::Fault;
use mortise_plugin_sdk::serde_json::{Value, json};
use mortise_plugin_sdk::tool::{Context, Declaration, Failure, Tool};
use serde::Deserialize;

mortise_plugin_sdk::export!(tool: Counter, settings: "settings.schema.json");

/// The settings, which are also the whole plugin.
#[derive(Deserialize)]
#[serde(default)]
struct Counter {
    /// The longest text that is counted.
    max_bytes: usize,
}

impl Default for Counter {
    fn default() -> Self {
        Self { max_bytes: 100_000 }
    }
}

impl Tool for Counter {
    type Settings = Self;

    fn prepare(settings: Self) -> Result<Self, Fault> {
        Ok(settings)
    }

    fn describe(&self) -> Vec<Declaration> {
        let parameters = json!({
            "type": "object",
            "properties": {"text": {"type": "string", "description": "The text to count."}},
            "required": ["text"],
            "additionalProperties": false,
        });
        let description = "Counts the characters, words and lines of a text.";
        vec![Declaration::new("count_text", description, &parameters)]
    }

    fn call(&self, _: &str, arguments: Value, _: Context) -> Result<String, Failure> {
        // The host has checked that the arguments follow the schema.
        let text = arguments["text"].as_str().unwrap_or_default();
        if text.len() > self.max_bytes {
            // The model reads this, and may try again with less.
            let reason = format!("the text has more than {} bytes", self.max_bytes);
            return Err(Failure::Refused(reason));
        }
        let counts = json!({
            "characters": text.chars().count(),
            "words": text.split_whitespace().count(),
            "lines": text.lines().count(),
        });
        Ok(counts.to_string())
    }
}
