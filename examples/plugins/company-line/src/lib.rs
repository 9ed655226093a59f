//! A chat template around another one: it puts a line of the operator's before what every conversation says first, and
//! lets the other template write the prompt. So it suits every model that its inner template suits, such as the
//! embedded one, which renders the model's own Jinja.
//!
//! Build: `cargo build --release --target wasm32-wasip2`; then
//! `mortise plugin compose target/wasm32-wasip2/release/company_line.wasm --output company_line.wasm`.

use mortise_plugin_sdk::chat_template::{ChatTemplate, Input, Output};
use mortise_plugin_sdk::inner::Template;
use mortise_plugin_sdk::serde_json::{Value, json};
use mortise_plugin_sdk::{Fault, Model};
use serde::Deserialize;

mortise_plugin_sdk::export!(chat_template: CompanyLine, settings: "settings.schema.json");

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    line: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            line: "Answer formally.".to_owned(),
        }
    }
}

struct CompanyLine {
    line: String,
    inner: Template,
}

impl ChatTemplate for CompanyLine {
    type Settings = Settings;

    fn prepare(settings: Settings, _: Model) -> Result<Self, Fault> {
        Ok(Self {
            line: settings.line,
            inner: Template::prepare()?,
        })
    }

    fn render(&self, mut input: Input) -> Result<Output, Fault> {
        if self.line.is_empty() {
            return self.inner.render(&input);
        }
        let mut messages = input.conversation()?;
        let first = messages
            .first_mut()
            .filter(|first| first["role"] == "system");
        match first.map(|first| &mut first["content"]) {
            Some(Value::String(text)) => *text = format!("{}\n{text}", self.line),
            Some(Value::Array(parts)) => {
                parts.insert(
                    0,
                    json!({"type": "text", "text": format!("{}\n", self.line)}),
                );
            }
            _ => messages.insert(0, json!({"role": "system", "content": self.line})),
        }
        input.messages = Value::Array(messages).to_string();
        self.inner.render(&input)
    }
}
