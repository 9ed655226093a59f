//! The inner plugin of one that `mortise plugin compose` puts around another: it is of the same kind, and asked as the host
//! would ask it. Only a plugin that is composed may have the feature `inner`: with it, a component calls another one.

use crate::Fault;
use crate::bindings::inner::mortise::plugin as wit;
use crate::chat_template::{Input, Output};
use crate::output_parser::{Event, Finish, GrammarSource, Session, Setup};
use crate::policy::{Decision, Facts, Usage};

/// The inner chat template.
#[derive(Debug)]
pub struct Template(());

impl Template {
    /// Prepare the inner plugin. Call this once, in your own `prepare`.
    ///
    /// # Errors
    /// Faults of its `prepare`: the settings below the key `inner` make no sense, or the model does not suit it.
    pub fn prepare() -> Result<Self, Fault> {
        wit::lifecycle::prepare().map(|()| Self(()))
    }

    /// Render a conversation by the inner template.
    ///
    /// # Errors
    /// Faults of the inner template.
    pub fn render(&self, input: &Input) -> Result<Output, Fault> {
        wit::chat_template::render(input)
    }
}

/// The inner output parser.
#[derive(Debug)]
pub struct Parser(());

impl Parser {
    /// Prepare the inner plugin. Call this once, in your own `prepare`.
    ///
    /// # Errors
    /// Faults of its `prepare`: the settings below the key `inner` make no sense, or the parser does not read the
    /// format of the model.
    pub fn prepare() -> Result<Self, Fault> {
        wit::lifecycle::prepare().map(|()| Self(()))
    }

    /// True if the format of the inner parser has special tokens. Pass this on where you pass text on.
    pub fn keep_special_tokens(&self) -> bool {
        wit::output_parser::describe().keep_special_tokens
    }

    /// Grammar that the inner parser wants the output to follow.
    ///
    /// # Errors
    /// Faults of the inner parser.
    pub fn constraint(
        &self,
        setup: &Setup,
        wanted: Option<&GrammarSource>,
    ) -> Result<Option<GrammarSource>, Fault> {
        wit::output_parser::constraint(setup, wanted)
    }

    /// Begin to read one answer by the inner parser; none if nothing in the answer could need parsing.
    ///
    /// # Errors
    /// Faults of the inner parser.
    pub fn open(&self, setup: &Setup) -> Result<Option<ParserSession>, Fault> {
        Ok(wit::output_parser::open(setup)?.map(ParserSession))
    }
}

/// A session of the inner parser.
#[derive(Debug)]
pub struct ParserSession(wit::output_parser::Session);

impl Session for ParserSession {
    fn feed(&mut self, text: &str, tokens: &[u32]) -> Result<Vec<Event>, Fault> {
        self.0.feed(text, tokens)
    }

    fn close(&mut self, reason: Finish) -> Result<Vec<Event>, Fault> {
        self.0.close(reason)
    }
}

/// The inner policy.
#[derive(Debug)]
pub struct Policy(());

impl Policy {
    /// Prepare the inner plugin. Call this once, in your own `prepare`.
    ///
    /// # Errors
    /// Faults of its `prepare`: the settings below the key `inner` make no sense.
    pub fn prepare() -> Result<Self, Fault> {
        wit::lifecycle::prepare().map(|()| Self(()))
    }

    /// Decide by the inner policy.
    ///
    /// # Errors
    /// Faults of the inner policy.
    pub fn authorize(&self, facts: &Facts) -> Result<Decision, Fault> {
        wit::policy::authorize(facts)
    }

    /// Let the inner policy learn what a request used. The lease must be the one that the inner policy gave.
    ///
    /// # Errors
    /// Faults of the inner policy.
    pub fn account(&self, usage: &Usage) -> Result<(), Fault> {
        wit::policy::account(usage)
    }
}
