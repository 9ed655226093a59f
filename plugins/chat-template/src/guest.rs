//! The WIT world `chat-template-plugin` over [`crate::render`].

use std::sync::OnceLock;

use crate::render::{ControlToken, Input, Model, RenderError, Renderer};
use crate::segments;

#[allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    clippy::all,
    reason = "generated from wit/v0.3"
)]
mod bindings {
    wit_bindgen::generate!({
        path: "../../wit/v0.3",
        world: "chat-template-plugin",
    });
    use super::Plugin;
    export!(Plugin);
}

use bindings::exports::mortise::plugin::{chat_template, lifecycle};
use bindings::mortise::plugin::types::Fault;
use bindings::mortise::plugin::{model, settings};

/// Renderer that `prepare` compiled. An instance serves one model and has one thread.
static RENDERER: OnceLock<Renderer> = OnceLock::new();

/// The schema of the settings: the host tells a misspelt one by its line.
#[used]
#[allow(
    unsafe_code,
    reason = "a section of the component, which no code reads"
)]
#[unsafe(link_section = "mortise:settings-schema")]
static SCHEMA: [u8; include_bytes!("../settings.schema.json").len()] =
    *include_bytes!("../settings.schema.json");

struct Plugin;

fn fault(error: RenderError) -> Fault {
    match error {
        RenderError::Conversation(text) => Fault::Invalid(text),
        RenderError::Template(text) => Fault::Unsupported(text),
        error @ RenderError::TooComplex => Fault::TooComplex(error.to_string()),
    }
}

impl lifecycle::Guest for Plugin {
    fn prepare() -> Result<(), Fault> {
        let description = model::describe();
        let model = Model {
            chat_template: description.chat_template,
            bos_token: description.bos_token,
            eos_token: description.eos_token,
            control_tokens: description
                .control_tokens
                .into_iter()
                .map(|token| ControlToken {
                    text: token.text,
                    special: token.special,
                })
                .collect(),
        };
        let renderer = Renderer::new(&settings::get(), model)
            .map_err(|error| Fault::Invalid(error.to_string()))?;
        RENDERER
            .set(renderer)
            .map_err(|_| Fault::Internal("`prepare` was called twice".to_owned()))
    }
}

impl chat_template::Guest for Plugin {
    fn render(input: chat_template::Input) -> Result<chat_template::Output, Fault> {
        let renderer = RENDERER
            .get()
            .ok_or_else(|| Fault::Internal("a call arrived before `prepare`".to_owned()))?;
        let output = renderer
            .render(&Input {
                messages: input.messages,
                tools: input.tools,
                arguments: input.arguments,
                add_generation_prompt: input.add_generation_prompt,
                continue_final_message: input.continue_final_message,
                today: input.today,
            })
            .map_err(fault)?;
        Ok(chat_template::Output {
            segments: output
                .segments
                .into_iter()
                .map(|segment| match segment {
                    segments::Segment::Special(text) => chat_template::Segment::Special(text),
                    segments::Segment::Plain(text) => chat_template::Segment::Plain(text),
                })
                .collect(),
            stop: output.stop,
            opens_reasoning: output.opens_reasoning,
        })
    }
}
