//! An output parser for models that write a tool call as `[[name {"argument": 1}]]`. The markers are
//! in the settings: `{"open": "[[", "close": "]]"}`. A call of a tool that was not declared, or one
//! whose arguments are no JSON object, stays content, exactly as it was generated.

use mortise_plugin_sdk::output_parser::{OutputParser, Session, Setup};
use mortise_plugin_sdk::stream::{self, Text};
use mortise_plugin_sdk::{Fault, Model};
use serde::Deserialize;

mortise_plugin_sdk::export!(output_parser: Markers, settings: "settings.schema.json");

/// The settings, which are also the whole plugin.
#[derive(Deserialize)]
#[serde(default)]
struct Markers {
    open: String,
    close: String,
}

impl Default for Markers {
    fn default() -> Self {
        Self {
            open: "[[".to_owned(),
            close: "]]".to_owned(),
        }
    }
}

impl OutputParser for Markers {
    type Settings = Self;

    fn prepare(settings: Self, _: Model) -> Result<Self, Fault> {
        Ok(settings)
    }

    fn open(&'static self, setup: Setup) -> Result<Option<Box<dyn Session>>, Fault> {
        stream::open(&setup, async |text| self.read(text).await)
    }
}

impl Markers {
    /// The format, from the beginning of an answer to its end. What is read and does not become a call
    /// is content.
    async fn read(&self, text: &mut Text) {
        while text.content_until(&self.open).await {
            self.call(text).await;
        }
    }

    /// `name {…}]]`; `None` if it is something else.
    async fn call(&self, text: &mut Text) -> Option<()> {
        let (name, _) = text.name_until(&[" "]).await?;
        let arguments = text.json_text().await?;
        if !arguments.starts_with('{') || !text.follows(&self.close).await {
            return None;
        }
        text.call(&name, None, &arguments)
    }
}
