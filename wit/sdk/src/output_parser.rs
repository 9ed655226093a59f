//! Output parsers: generated text becomes content, reasoning and tool calls.

use std::cell::RefCell;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use crate::bindings::imports::mortise::plugin::model;
use crate::bindings::lifecycle::exports::mortise::plugin::lifecycle;
use crate::bindings::output_parser::exports::mortise::plugin as wit;
use crate::bindings::reasoning::exports::mortise::plugin::reasoning;
use crate::{Fault, Model, prepared};

pub use crate::bindings::imports::mortise::plugin::types::{Finish, GrammarSource};
pub use crate::bindings::output_parser::exports::mortise::plugin::output_parser::{
    CallArguments, CallBegin, Event, Setup, ToolChoice,
};
pub use crate::bindings::reasoning::exports::mortise::plugin::reasoning::Marks;

/// An output parser. Make it a component with [`export!`](crate::export).
pub trait OutputParser: Sized + 'static {
    /// The operator's table of the configuration; [`NoSettings`](crate::NoSettings) if there is none.
    type Settings: DeserializeOwned;

    /// Called once on each instance, first.
    ///
    /// # Errors
    /// Settings that make no sense, or a model whose format this parser does not read: the server then
    /// does not take the plugin.
    fn prepare(settings: Self::Settings, model: Model) -> Result<Self, Fault>;

    /// Whether the format is written with tokens that the tokenizer file marks special, which are
    /// otherwise left out of the text.
    fn keep_special_tokens(&self) -> bool {
        false
    }

    /// Texts around a block of reasoning, by which the host can end one that has used up its tokens; none
    /// if no text ends it.
    fn reasoning(&self) -> Option<Marks> {
        None
    }

    /// The grammar that the whole output must follow so that the wanted format and any forced call
    /// come out right. Passes on what is wanted, so forced calls are not enforced unless you do.
    ///
    /// # Errors
    /// [`Fault::Invalid`] for tools that make no sense.
    fn constraint(
        &self,
        setup: &Setup,
        wanted: Option<GrammarSource>,
    ) -> Result<Option<GrammarSource>, Fault> {
        let _ = setup;
        Ok(wanted)
    }

    /// Begin to read one answer; none if nothing in it could need parsing. [`stream::open`] makes a
    /// session of a function that reads the format from beginning to end.
    ///
    /// # Errors
    /// [`Fault::Invalid`] for tools that make no sense.
    ///
    /// [`stream::open`]: crate::stream::open
    fn open(&'static self, setup: Setup) -> Result<Option<Box<dyn Session>>, Fault>;
}

/// One answer being parsed. How the text is cut must not change the concatenated events.
pub trait Session {
    /// Take the next text, and the tokens it came from.
    ///
    /// # Errors
    /// A fault ends the answer with an error; text that is no call is no fault but content.
    fn feed(&mut self, text: &str, tokens: &[u32]) -> Result<Vec<Event>, Fault>;

    /// The answer has ended; hand out what was held back.
    ///
    /// # Errors
    /// As for [`feed`](Self::feed).
    fn close(&mut self, reason: Finish) -> Result<Vec<Event>, Fault>;
}

/// Exports of [`export!`](crate::export) for an output parser.
#[doc(hidden)]
pub struct Component<P>(PhantomData<P>);

/// A session as the host holds it.
#[doc(hidden)]
pub struct SessionCell(RefCell<Box<dyn Session>>);

impl<P: OutputParser> lifecycle::Guest for Component<P> {
    fn prepare() -> Result<(), Fault> {
        prepared::keep(P::prepare(prepared::settings()?, model::describe())?)
    }
}

impl<P: OutputParser> wit::output_parser::Guest for Component<P> {
    type Session = SessionCell;

    fn describe() -> wit::output_parser::Traits {
        wit::output_parser::Traits {
            keep_special_tokens: prepared::plugin::<P>().is_ok_and(P::keep_special_tokens),
        }
    }

    fn constraint(
        setup: Setup,
        wanted: Option<GrammarSource>,
    ) -> Result<Option<GrammarSource>, Fault> {
        prepared::plugin::<P>()?.constraint(&setup, wanted)
    }

    fn open(setup: Setup) -> Result<Option<wit::output_parser::Session>, Fault> {
        let session = prepared::plugin::<P>()?.open(setup)?;
        let cell = |session| SessionCell(RefCell::new(session));
        Ok(session.map(|session| wit::output_parser::Session::new(cell(session))))
    }
}

impl<P: OutputParser> reasoning::Guest for Component<P> {
    fn describe() -> Option<Marks> {
        prepared::plugin::<P>().ok().and_then(P::reasoning)
    }
}

impl wit::output_parser::GuestSession for SessionCell {
    fn feed(&self, text: String, tokens: Vec<u32>) -> Result<Vec<Event>, Fault> {
        self.0.borrow_mut().feed(&text, &tokens)
    }

    fn close(&self, reason: Finish) -> Result<Vec<Event>, Fault> {
        self.0.borrow_mut().close(reason)
    }
}
