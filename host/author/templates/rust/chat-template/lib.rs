//! A chat template: turns stand between `<|im_start|>` and `<|im_end|>`, as ChatML has it. Rules from
//! the settings, `{"rules": "…"}`, stand before every conversation.

use mortise_plugin_sdk::chat_template::{ChatTemplate, Input, Output, Prompt};
use mortise_plugin_sdk::{Fault, Model};
use serde::Deserialize;

mortise_plugin_sdk::export!(chat_template: ChatMl, settings: "settings.schema.json");

/// The settings, which are also the whole plugin.
#[derive(Deserialize)]
struct ChatMl {
    /// What the operator wants said first, if anything.
    rules: Option<String>,
}

impl ChatTemplate for ChatMl {
    type Settings = Self;

    fn prepare(settings: Self, _: Model) -> Result<Self, Fault> {
        Ok(settings)
    }

    fn render(&self, input: Input) -> Result<Output, Fault> {
        let mut prompt = Prompt::new();
        if let Some(rules) = &self.rules {
            turn(&mut prompt, "system", rules);
        }
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

/// One turn. Only the markers are special: whatever a user writes stays plain text, and never becomes
/// a control token.
fn turn(prompt: &mut Prompt, role: &str, content: &str) {
    prompt
        .special("<|im_start|>")
        .plain(format!("{role}\n{content}"))
        .special("<|im_end|>")
        .plain("\n");
}
