//! The WIT world `output-parser-plugin` over [`crate::session`] and [`crate::constraint`].

use std::cell::RefCell;
use std::sync::OnceLock;

use crate::constraint::{self, GrammarSource};
use crate::session::{self, Event};
use crate::style::{ControlToken, Model, Setup, SetupError, Style, ToolChoice};

#[allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    clippy::all,
    reason = "generated from wit/v0.2"
)]
mod bindings {
    wit_bindgen::generate!({
        path: "../../wit/v0.2",
        world: "output-parser-plugin",
    });
    use super::Plugin;
    export!(Plugin);
}

use bindings::exports::mortise::plugin::{lifecycle, output_parser as wit};
use bindings::mortise::plugin::types::{Fault, Finish, GrammarSource as WitSource};
use bindings::mortise::plugin::{model, settings};

/// What `prepare` decided. An instance serves one model and has one thread.
static STYLE: OnceLock<Style> = OnceLock::new();

struct Plugin;

struct Session(RefCell<session::Session>);

fn prepared() -> Result<&'static Style, Fault> {
    STYLE
        .get()
        .ok_or_else(|| Fault::Internal("a call arrived before `prepare`".to_owned()))
}

fn invalid(error: SetupError) -> Fault {
    Fault::Invalid(error.to_string())
}

fn checked(setup: &wit::Setup) -> Result<Setup, Fault> {
    let choice = match &setup.tool_choice {
        wit::ToolChoice::None => ToolChoice::None,
        wit::ToolChoice::Auto => ToolChoice::Auto,
        wit::ToolChoice::Required => ToolChoice::Required,
        wit::ToolChoice::Named(name) => ToolChoice::Named(name.clone()),
    };
    Setup::new(&setup.tools, &choice, setup.parallel, setup.opens_reasoning).map_err(invalid)
}

impl lifecycle::Guest for Plugin {
    fn prepare() -> Result<(), Fault> {
        let description = model::describe();
        let model = Model {
            architecture: description.architecture,
            chat_template: description.chat_template.unwrap_or_default(),
            control_tokens: description
                .control_tokens
                .into_iter()
                .map(|token| ControlToken {
                    id: token.id,
                    text: token.text,
                    special: token.special,
                })
                .collect(),
        };
        let style = Style::new(&settings::get(), model).map_err(invalid)?;
        STYLE
            .set(style)
            .map_err(|_| Fault::Internal("`prepare` was called twice".to_owned()))
    }
}

impl wit::Guest for Plugin {
    type Session = Session;

    fn describe() -> wit::Traits {
        wit::Traits {
            keep_special_tokens: STYLE.get().is_some_and(Style::keep_special_tokens),
        }
    }

    fn constraint(
        setup: wit::Setup,
        wanted: Option<WitSource>,
    ) -> Result<Option<WitSource>, Fault> {
        let wanted = wanted.map(|source| match source {
            WitSource::JsonObject => GrammarSource::JsonObject,
            WitSource::JsonSchema(schema) => GrammarSource::JsonSchema(schema),
            WitSource::Regex(regex) => GrammarSource::Regex(regex),
            WitSource::Lark(grammar) => GrammarSource::Lark(grammar),
        });
        let source = constraint::constraint(prepared()?, &checked(&setup)?, wanted);
        Ok(source.map_err(invalid)?.map(|source| match source {
            GrammarSource::JsonObject => WitSource::JsonObject,
            GrammarSource::JsonSchema(schema) => WitSource::JsonSchema(schema),
            GrammarSource::Regex(regex) => WitSource::Regex(regex),
            GrammarSource::Lark(grammar) => WitSource::Lark(grammar),
        }))
    }

    fn open(setup: wit::Setup) -> Result<Option<wit::Session>, Fault> {
        let session = session::open(prepared()?, &checked(&setup)?);
        Ok(session.map(|session| wit::Session::new(Session(RefCell::new(session)))))
    }
}

impl wit::GuestSession for Session {
    /// The formats are told by their text, so the tokens it came from are not needed.
    fn feed(&self, text: String, _tokens: Vec<u32>) -> Result<Vec<wit::Event>, Fault> {
        Ok(events(self.0.borrow_mut().feed(&text)))
    }

    /// What is held back is handed out whatever the reason.
    fn close(&self, _reason: Finish) -> Result<Vec<wit::Event>, Fault> {
        Ok(events(self.0.borrow_mut().close()))
    }
}

fn events(events: Vec<Event>) -> Vec<wit::Event> {
    events
        .into_iter()
        .map(|event| match event {
            Event::Content(text) => wit::Event::Content(text),
            Event::Reasoning(text) => wit::Event::Reasoning(text),
            Event::CallBegin { index, id, name } => {
                wit::Event::CallBegin(wit::CallBegin { index, id, name })
            }
            Event::CallArguments { index, delta } => {
                wit::Event::CallArguments(wit::CallArguments { index, delta })
            }
            Event::CallEnd { index } => wit::Event::CallEnd(index),
        })
        .collect()
}
