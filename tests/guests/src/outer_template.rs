//! A chat template around another one, which does what its settings say, such as `{"outer": "loop"}`.

wit_bindgen::generate!({
    path: "../../wit/v0.3",
    inline: "
        package test:guests;
        world outer {
            include mortise:plugin/chat-template-plugin@0.3.0;
            import mortise:plugin/lifecycle@0.3.0;
            import mortise:plugin/chat-template@0.3.0;
        }
    ",
    world: "test:guests/outer",
    generate_all,
});

use exports::mortise::plugin::{chat_template, lifecycle};
use mortise::plugin::types::Fault;
use mortise::plugin::{chat_template as inner, lifecycle as inner_lifecycle, settings};

use crate::parts::{act, value};

struct Outer;

impl lifecycle::Guest for Outer {
    fn prepare() -> Result<(), Fault> {
        match value(&settings::get(), "outer").as_str() {
            "unprepared" => Ok(()),
            _ => inner_lifecycle::prepare(),
        }
    }
}

impl chat_template::Guest for Outer {
    fn render(input: chat_template::Input) -> Result<chat_template::Output, Fault> {
        let settings = settings::get();
        match value(&settings, "outer").as_str() {
            "many" => loop {
                let _ = ask(&input);
            },
            command => act(command),
        }
        let mut output = ask(&input)?;
        output
            .segments
            .insert(0, chat_template::Segment::Plain(settings));
        Ok(output)
    }
}

fn ask(input: &chat_template::Input) -> Result<chat_template::Output, Fault> {
    let output = inner::render(&inner::Input {
        messages: input.messages.clone(),
        tools: input.tools.clone(),
        arguments: input.arguments.clone(),
        add_generation_prompt: input.add_generation_prompt,
        continue_final_message: input.continue_final_message,
        today: input.today.clone(),
    })?;
    let segments = output.segments.into_iter().map(|segment| match segment {
        inner::Segment::Special(text) => chat_template::Segment::Special(text),
        inner::Segment::Plain(text) => chat_template::Segment::Plain(text),
    });
    Ok(chat_template::Output {
        segments: segments.collect(),
        stop: output.stop,
        opens_reasoning: output.opens_reasoning,
    })
}

export!(Outer);
