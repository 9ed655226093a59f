//! An output parser for many models: it reads sixteen ways to write tool calls, and finds by the model's
//! chat template which one is meant. `{"format": "qwen-coder"}` in the settings says it instead.
//!
//! All there is to a format is in the SDK's `formats` module, a few lines each; to read one of your own,
//! write such a function here and hand it to `stream::open`.

use mortise_plugin_sdk::formats::Format;
use mortise_plugin_sdk::output_parser::{OutputParser, Session, Setup};
use mortise_plugin_sdk::{Fault, Model, stream};
use serde::Deserialize;

mortise_plugin_sdk::export!(output_parser: VendorFormats, settings: "settings.schema.json");

#[derive(Deserialize)]
struct Settings {
    format: Option<String>,
}

struct VendorFormats {
    format: Format,
    /// The model writes its marks with tokens that are left out of text unless one asks for them.
    special: bool,
}

impl OutputParser for VendorFormats {
    type Settings = Settings;

    fn prepare(settings: Settings, model: Model) -> Result<Self, Fault> {
        let template = model.chat_template.as_deref().unwrap_or_default();
        let format = match &settings.format {
            Some(name) => Format::named(name),
            None => Format::of_template(template),
        };
        let Some(format) = format else {
            let names: Vec<&str> = Format::all().map(Format::name).collect();
            let fault = format!(
                "the template of `{}` tells of no known format; set `format` to one of {}",
                model.name,
                names.join(", ")
            );
            return Err(Fault::Unsupported(fault));
        };
        let special = model.control_tokens.iter().any(|token| {
            token.special && (token.text.contains("tool") || token.text.contains("TOOL"))
        });
        Ok(Self { format, special })
    }

    fn keep_special_tokens(&self) -> bool {
        self.special
    }

    fn open(&'static self, setup: Setup) -> Result<Option<Box<dyn Session>>, Fault> {
        stream::open(&setup, async |text| self.format.read(text).await)
    }
}
