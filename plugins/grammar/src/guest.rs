//! The WIT world `grammar-plugin` over [`crate::engine`].

use std::cell::RefCell;

use crate::engine::{Engine, Vocabulary};
use crate::error::GrammarError;
use crate::matcher::{self, Mask, Status};
use crate::source::Source;

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
        world: "grammar-plugin",
    });
    use super::Plugin;
    export!(Plugin);
}

use bindings::exports::mortise::plugin::{grammar as wit, lifecycle};
use bindings::mortise::plugin::types::{Fault, GrammarSource};
use bindings::mortise::plugin::{mask_sink, settings, vocabulary};

thread_local! {
    /// Engine that `prepare` built. An instance serves one model and has one thread.
    static ENGINE: RefCell<Option<Engine>> = const { RefCell::new(None) };
}

struct Plugin;

struct Matcher(RefCell<matcher::Matcher>);

fn fault(error: GrammarError) -> Fault {
    match error {
        GrammarError::Invalid(text) => Fault::Invalid(text),
        GrammarError::TooComplex(text) => Fault::TooComplex(text),
        GrammarError::Internal(text) => Fault::Internal(text),
    }
}

impl lifecycle::Guest for Plugin {
    fn prepare() -> Result<(), Fault> {
        let settings = settings::get();
        if settings.trim() != "{}" {
            return Err(Fault::Invalid(format!(
                "the grammar plugin has no settings, but was given {settings}"
            )));
        }
        let table = vocabulary::get();
        let engine = Engine::new(&Vocabulary {
            bytes: table.bytes,
            offsets: table.offsets,
            eos: table.eos,
            control: table.control,
        })
        .map_err(fault)?;
        ENGINE.with_borrow_mut(|slot| *slot = Some(engine));
        Ok(())
    }
}

impl wit::Guest for Plugin {
    type Matcher = Matcher;

    fn compile(source: GrammarSource) -> Result<wit::Matcher, Fault> {
        let source = match source {
            GrammarSource::JsonObject => Source::JsonObject,
            GrammarSource::JsonSchema(schema) => Source::JsonSchema(schema),
            GrammarSource::Regex(regex) => Source::Regex(regex),
            GrammarSource::Lark(grammar) => Source::Lark(grammar),
        };
        ENGINE.with_borrow_mut(|engine| {
            let engine = engine
                .as_mut()
                .ok_or_else(|| Fault::Internal("a call arrived before `prepare`".to_owned()))?;
            engine.compile(&source).map(resource).map_err(fault)
        })
    }
}

impl wit::GuestMatcher for Matcher {
    fn mask(&self, slot: u32) -> Result<wit::Status, Fault> {
        let (mask, now) = self.0.borrow_mut().mask().map_err(fault)?;
        push(slot, &mask);
        Ok(status(now))
    }

    fn advance(&self, tokens: Vec<u32>, slot: u32) -> Result<wit::Step, Fault> {
        let mut matcher = self.0.borrow_mut();
        matcher.accept(&tokens).map_err(fault)?;
        let (mask, now) = matcher.mask().map_err(fault)?;
        push(slot, &mask);
        Ok(wit::Step {
            status: status(now),
            forced: matcher::forced(&mask, now),
        })
    }

    fn probe(&self, tokens: Vec<u32>) -> Result<u32, Fault> {
        let accepted = self.0.borrow_mut().probe(&tokens).map_err(fault)?;
        u32::try_from(accepted).map_err(|error| Fault::Internal(error.to_string()))
    }

    fn rollback(&self, count: u32) -> Result<(), Fault> {
        self.0.borrow_mut().rollback(count as usize).map_err(fault)
    }

    fn fork(&self) -> Result<wit::Matcher, Fault> {
        Ok(resource(self.0.borrow().fork()))
    }
}

fn resource(matcher: matcher::Matcher) -> wit::Matcher {
    wit::Matcher::new(Matcher(RefCell::new(matcher)))
}

fn push(slot: u32, mask: &Mask) {
    match mask {
        Mask::Dense(words) => mask_sink::dense(slot, words),
        Mask::Only(tokens) => mask_sink::only(slot, tokens),
        Mask::AllBut(tokens) => mask_sink::all_but(slot, tokens),
    }
}

fn status(status: Status) -> wit::Status {
    match status {
        Status::Active => wit::Status::Active,
        Status::Accepting => wit::Status::Accepting,
        Status::Finished => wit::Status::Finished,
    }
}
