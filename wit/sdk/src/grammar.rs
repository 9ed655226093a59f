//! Grammars: what may be generated, as masks over the vocabulary.

use std::cell::RefCell;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use crate::bindings::grammar::exports::mortise::plugin as wit;
use crate::bindings::imports::mortise::plugin::{mask_sink, vocabulary};
use crate::bindings::lifecycle::exports::mortise::plugin::lifecycle;
use crate::{Fault, prepared};

pub use crate::bindings::grammar::exports::mortise::plugin::grammar::Status;
pub use crate::bindings::imports::mortise::plugin::types::GrammarSource;
pub use crate::bindings::imports::mortise::plugin::vocabulary::Table as Vocabulary;

/// A grammar. Make it a component with [`export!`](crate::export).
pub trait Grammar: Sized + 'static {
    /// The operator's table of the configuration; [`NoSettings`](crate::NoSettings) if there is none.
    type Settings: DeserializeOwned;

    /// Called once on each instance, first, with the tokens of the model.
    ///
    /// # Errors
    /// Settings that make no sense: the server then does not take the plugin.
    fn prepare(settings: Self::Settings, vocabulary: Vocabulary) -> Result<Self, Fault>;

    /// Compile what an answer must look like.
    ///
    /// # Errors
    /// [`Fault::Invalid`] for a source that is wrong, [`Fault::TooComplex`] for one that takes too much
    /// work, [`Fault::Unsupported`] for one that this grammar does not take: with
    /// `on_failure = "fallback"` the server's own takes it.
    fn compile(&'static self, source: GrammarSource) -> Result<Box<dyn Matcher>, Fault>;
}

/// One sequence being constrained.
pub trait Matcher {
    /// State of the matcher.
    fn status(&self) -> Status;

    /// Tokens that may come next. End-of-sequence tokens belong in it unless the status is
    /// [`Status::Active`].
    fn allowed(&self) -> Allowed;

    /// Fault, if it cannot be followed further: [`Fault::TooComplex`] ends the answer as the
    /// caller's fault. Asked before [`Matcher::allowed`].
    fn fault(&self) -> Option<Fault> {
        None
    }

    /// Take one token. `false` if it is not allowed; nothing has changed then.
    fn accept(&mut self, token: u32) -> bool;

    /// Take back the last `count` tokens. `false` if there were fewer; nothing has changed then.
    fn rollback(&mut self, count: usize) -> bool;

    /// Tokens that must follow whatever the model says, possibly none.
    fn forced(&self) -> Vec<u32> {
        Vec::new()
    }

    /// An independent copy in the present state.
    fn fork(&self) -> Box<dyn Matcher>;
}

/// A set of tokens, in the way that is shortest to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allowed {
    /// These, in any order.
    Only(Vec<u32>),
    /// All but these, in any order.
    AllBut(Vec<u32>),
    /// A bit for each token: bit `i % 32` of word `i / 32`.
    Mask(Vec<u32>),
}

impl Vocabulary {
    /// Each token that is text, with its bytes, which need not be valid UTF-8. Control tokens are left
    /// out.
    pub fn texts(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let ends = self.offsets.windows(2).zip(0..);
        ends.filter_map(|(ends, id)| {
            let bytes = self.bytes.get(ends[0] as usize..ends[1] as usize)?;
            let is_text = !bytes.is_empty() && self.control.binary_search(&id).is_err();
            is_text.then_some((id, bytes))
        })
    }
}

/// Exports of [`export!`](crate::export) for a grammar.
#[doc(hidden)]
pub struct Component<G>(PhantomData<G>);

/// A matcher as the host holds it.
#[doc(hidden)]
pub struct MatcherCell(RefCell<Box<dyn Matcher>>);

impl MatcherCell {
    fn handle(matcher: Box<dyn Matcher>) -> wit::grammar::Matcher {
        wit::grammar::Matcher::new(Self(RefCell::new(matcher)))
    }
}

impl<G: Grammar> lifecycle::Guest for Component<G> {
    fn prepare() -> Result<(), Fault> {
        prepared::keep(G::prepare(prepared::settings()?, vocabulary::get())?)
    }
}

impl<G: Grammar> wit::grammar::Guest for Component<G> {
    type Matcher = MatcherCell;

    fn compile(source: GrammarSource) -> Result<wit::grammar::Matcher, Fault> {
        Ok(MatcherCell::handle(
            prepared::plugin::<G>()?.compile(source)?,
        ))
    }
}

/// Hand the mask of the present state to the host.
fn push(matcher: &dyn Matcher, slot: u32) -> Result<Status, Fault> {
    if let Some(fault) = matcher.fault() {
        return Err(fault);
    }
    match matcher.allowed() {
        Allowed::Only(tokens) => mask_sink::only(slot, &tokens),
        Allowed::AllBut(tokens) => mask_sink::all_but(slot, &tokens),
        Allowed::Mask(words) => mask_sink::dense(slot, &words),
    }
    Ok(matcher.status())
}

/// Take tokens up to the first that does not fit; how many that were.
fn take(matcher: &mut dyn Matcher, tokens: &[u32]) -> usize {
    tokens
        .iter()
        .take_while(|token| matcher.accept(**token))
        .count()
}

fn undo(matcher: &mut dyn Matcher, count: usize) -> Result<(), Fault> {
    match matcher.rollback(count) {
        true => Ok(()),
        false => Err(Fault::Internal(format!("{count} tokens were not taken"))),
    }
}

impl wit::grammar::GuestMatcher for MatcherCell {
    fn mask(&self, slot: u32) -> Result<Status, Fault> {
        push(&**self.0.borrow(), slot)
    }

    fn advance(&self, tokens: Vec<u32>, slot: u32) -> Result<wit::grammar::Step, Fault> {
        let matcher = &mut **self.0.borrow_mut();
        let taken = take(matcher, &tokens);
        if let Some(token) = tokens.get(taken) {
            undo(matcher, taken)?;
            // The host hands in what the mask allowed, so this is nobody's request gone wrong.
            return Err(Fault::Internal(format!("token {token} does not fit")));
        }
        Ok(wit::grammar::Step {
            status: push(matcher, slot)?,
            forced: matcher.forced(),
        })
    }

    fn probe(&self, tokens: Vec<u32>) -> Result<u32, Fault> {
        let matcher = &mut **self.0.borrow_mut();
        let taken = take(matcher, &tokens);
        undo(matcher, taken)?;
        Ok(u32::try_from(taken).unwrap_or(u32::MAX))
    }

    fn rollback(&self, count: u32) -> Result<(), Fault> {
        undo(&mut **self.0.borrow_mut(), count as usize)
    }

    fn fork(&self) -> Result<wit::grammar::Matcher, Fault> {
        Ok(Self::handle(self.0.borrow().fork()))
    }
}
