//! A chat template that shows its settings as the prompt, and does first what they say, such as `{"render": "loop"}`.

wit_bindgen::generate!({
    path: "../../wit/v0.3",
    world: "mortise:plugin/chat-template-plugin@0.3.0",
    generate_all,
});

use std::sync::atomic::{AtomicBool, Ordering};

use exports::mortise::plugin::{chat_template, lifecycle};
use mortise::plugin::settings;
use mortise::plugin::types::Fault;

use crate::parts::{act, value};

struct Inner;

static PREPARED: AtomicBool = AtomicBool::new(false);

impl lifecycle::Guest for Inner {
    fn prepare() -> Result<(), Fault> {
        PREPARED.store(true, Ordering::Relaxed);
        match value(&settings::get(), "prepare").as_str() {
            "fault" => Err(Fault::Invalid("the inner does not like this".to_owned())),
            command => {
                act(command);
                Ok(())
            }
        }
    }
}

impl chat_template::Guest for Inner {
    fn render(_: chat_template::Input) -> Result<chat_template::Output, Fault> {
        if !PREPARED.load(Ordering::Relaxed) {
            return Err(Fault::Internal(
                "a call arrived before `prepare`".to_owned(),
            ));
        }
        act(&value(&settings::get(), "render"));
        Ok(chat_template::Output {
            segments: vec![chat_template::Segment::Plain(settings::get())],
            stop: Vec::new(),
            opens_reasoning: false,
        })
    }
}

export!(Inner);
