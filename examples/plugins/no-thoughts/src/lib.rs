//! An output parser around another one: what the model thought is left out of the answer, in whatever format the inner
//! parser reads it. Tool calls and content pass as they are.
//!
//! Build: `cargo build --release --target wasm32-wasip2`; then
//! `mortise plugin compose target/wasm32-wasip2/release/no_thoughts.wasm --output no_thoughts.wasm`.

use mortise_plugin_sdk::inner::{Parser, ParserSession};
use mortise_plugin_sdk::output_parser::{
    Event, Finish, GrammarSource, OutputParser, Session, Setup,
};
use mortise_plugin_sdk::{Fault, Model, NoSettings};

mortise_plugin_sdk::export!(output_parser: NoThoughts);

struct NoThoughts(Parser);

impl OutputParser for NoThoughts {
    type Settings = NoSettings;

    fn prepare(_: NoSettings, _: Model) -> Result<Self, Fault> {
        Parser::prepare().map(Self)
    }

    fn keep_special_tokens(&self) -> bool {
        self.0.keep_special_tokens()
    }

    fn constraint(
        &self,
        setup: &Setup,
        wanted: Option<GrammarSource>,
    ) -> Result<Option<GrammarSource>, Fault> {
        self.0.constraint(setup, wanted.as_ref())
    }

    fn open(&'static self, setup: Setup) -> Result<Option<Box<dyn Session>>, Fault> {
        let session = self.0.open(&setup)?;
        Ok(session.map(|session| Box::new(Answer(session)) as Box<dyn Session>))
    }
}

/// One answer, without its thoughts.
struct Answer(ParserSession);

impl Session for Answer {
    fn feed(&mut self, text: &str, tokens: &[u32]) -> Result<Vec<Event>, Fault> {
        self.0.feed(text, tokens).map(without_thoughts)
    }

    fn close(&mut self, reason: Finish) -> Result<Vec<Event>, Fault> {
        self.0.close(reason).map(without_thoughts)
    }
}

fn without_thoughts(mut events: Vec<Event>) -> Vec<Event> {
    events.retain(|event| !matches!(event, Event::Reasoning(_)));
    events
}
