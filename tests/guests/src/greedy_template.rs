//! A chat template that wants to know the time.

wit_bindgen::generate!({
    path: "../../wit/v0.3",
    inline: "
        package test:guests;
        world greedy {
            include mortise:plugin/chat-template-plugin@0.3.0;
            import mortise:plugin/clock@0.3.0;
        }
    ",
    world: "test:guests/greedy",
    generate_all,
});

use exports::mortise::plugin::{chat_template, lifecycle};
use mortise::plugin::types::Fault;

struct Greedy;

impl lifecycle::Guest for Greedy {
    fn prepare() -> Result<(), Fault> {
        Ok(())
    }
}

impl chat_template::Guest for Greedy {
    fn render(_input: chat_template::Input) -> Result<chat_template::Output, Fault> {
        let now = mortise::plugin::clock::unix_millis();
        Err(Fault::Internal(now.to_string()))
    }
}

export!(Greedy);
