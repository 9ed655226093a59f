//! A chat template for ChatML models that puts the company's rules before every conversation, where
//! no client can leave them out. Rules come from the operator's settings: `{"rules": "…"}`.
//!
//! Build: `cargo build --release --target wasm32-wasip2`; then drop
//! `target/wasm32-wasip2/release/house_rules.wasm` into the server's plugins folder.

use mortise_plugin_sdk::chat_template::{ChatTemplate, Input, Output, Prompt};
use mortise_plugin_sdk::{Fault, Model};
use serde::Deserialize;

mortise_plugin_sdk::export!(chat_template: HouseRules, settings: "settings.schema.json");

/// The settings, which are also the whole plugin.
#[derive(Deserialize)]
#[serde(default)]
struct HouseRules {
    rules: String,
}

impl Default for HouseRules {
    fn default() -> Self {
        Self {
            rules: "Be brief.".to_owned(),
        }
    }
}

impl ChatTemplate for HouseRules {
    type Settings = Self;

    fn prepare(settings: Self, _: Model) -> Result<Self, Fault> {
        Ok(settings)
    }

    fn render(&self, input: Input) -> Result<Output, Fault> {
        let mut prompt = Prompt::new();
        turn(&mut prompt, "system", &self.rules);
        for (index, message) in input.conversation()?.iter().enumerate() {
            let role = message["role"].as_str().unwrap_or("user");
            let Some(content) = message["content"].as_str() else {
                let fault = format!("messages[{index}].content must be text for this template");
                return Err(Fault::Invalid(fault));
            };
            turn(&mut prompt, role, content);
        }
        if input.add_generation_prompt {
            prompt.special("<|im_start|>").plain("assistant\n");
        }
        Ok(prompt.into_output())
    }
}

/// One turn. Only the two markers are special: whatever a user writes stays plain text.
fn turn(prompt: &mut Prompt, role: &str, content: &str) {
    prompt
        .special("<|im_start|>")
        .plain(format!("{role}\n{content}"))
        .special("<|im_end|>")
        .plain("\n");
}
