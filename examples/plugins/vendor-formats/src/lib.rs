//! An output parser for many models: it reads all formats that the SDK knows, and finds by the
//! model's files which one is meant. `{"format": "qwen-coder"}` in the settings says it instead.
//!
//! All there is to a format is in the SDK's `formats` module; to read one of your own,
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
        let format = match &settings.format {
            Some(name) => Format::named(name),
            None => Format::of_model(&model).map(|(format, _)| format),
        };
        let Some(format) = format else {
            let names: Vec<&str> = Format::all().map(Format::name).collect();
            let fault = format!(
                "the files of `{}` tell of no known format; set `format` to one of {}",
                model.name,
                names.join(", ")
            );
            return Err(Fault::Unsupported(fault));
        };
        let special = model.control_tokens.iter().any(|token| {
            let mut marks = format.spec().marks();
            token.special && marks.any(|mark| mark.contains(&token.text))
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
