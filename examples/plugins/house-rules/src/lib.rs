//! A chat template for ChatML models that puts the company's rules before every conversation, where
//! no client can leave them out. Rules come from the operator's settings: `{"rules": "…"}`.
//!
//! Build: `cargo build --release --target wasm32-wasip2`; then drop
//! `target/wasm32-wasip2/release/house_rules.wasm` into the server's plugins folder.

use std::sync::OnceLock;

use serde_json::Value;

wit_bindgen::generate!({
    path: "../../../wit/v0.1",
    world: "chat-template-plugin",
});

use exports::mortise::plugin::chat_template::{Guest as ChatTemplate, Input, Output, Segment};
use exports::mortise::plugin::lifecycle::Guest as Lifecycle;
use mortise::plugin::settings;
use mortise::plugin::types::Fault;

static RULES: OnceLock<String> = OnceLock::new();

/// The schema of the settings, which the server checks before it runs anything of the plugin.
#[used]
#[unsafe(link_section = "mortise:settings-schema")]
static SCHEMA: [u8; include_bytes!("../settings.schema.json").len()] =
    *include_bytes!("../settings.schema.json");

struct HouseRules;
export!(HouseRules);

impl Lifecycle for HouseRules {
    /// A fault in here keeps the server from starting with settings that make no sense.
    fn prepare() -> Result<(), Fault> {
        let settings: Value = serde_json::from_str(&settings::get())
            .map_err(|error| Fault::Internal(error.to_string()))?;
        let rules = match settings.get("rules") {
            Some(Value::String(rules)) => rules.clone(),
            None => "Be brief.".to_owned(),
            Some(other) => {
                return Err(Fault::Invalid(format!(
                    "`rules` must be a string, not {other}"
                )));
            }
        };
        RULES.get_or_init(|| rules);
        Ok(())
    }
}

impl ChatTemplate for HouseRules {
    fn render(input: Input) -> Result<Output, Fault> {
        let messages: Vec<Value> = serde_json::from_str(&input.messages)
            .map_err(|error| Fault::Invalid(format!("messages: {error}")))?;
        let mut segments = Vec::new();
        turn(
            &mut segments,
            "system",
            RULES.get().map_or("", String::as_str),
        );
        for (index, message) in messages.iter().enumerate() {
            let role = message["role"].as_str().unwrap_or("user");
            let Some(content) = message["content"].as_str() else {
                let fault = format!("messages[{index}].content must be text for this template");
                return Err(Fault::Invalid(fault));
            };
            turn(&mut segments, role, content);
        }
        if input.add_generation_prompt {
            segments.push(Segment::Special("<|im_start|>".to_owned()));
            segments.push(Segment::Plain("assistant\n".to_owned()));
        }
        Ok(Output {
            segments,
            stop: vec![],
            opens_reasoning: false,
        })
    }
}

/// One turn. Only the two markers are special: whatever a user writes stays plain text.
fn turn(segments: &mut Vec<Segment>, role: &str, content: &str) {
    segments.push(Segment::Special("<|im_start|>".to_owned()));
    segments.push(Segment::Plain(format!("{role}\n{content}")));
    segments.push(Segment::Special("<|im_end|>".to_owned()));
    segments.push(Segment::Plain("\n".to_owned()));
}
