//! Guardrails: what is asked and answered is looked at, and may be refused.

use std::cell::RefCell;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::bindings::guardrail::exports::mortise::plugin as wit;
use crate::bindings::lifecycle::exports::mortise::plugin::lifecycle;
use crate::{Fault, prepared};

pub use crate::bindings::guardrail::exports::mortise::plugin::guardrail::{
    Call, Context, Part, Refusal, Traits, Verdict,
};
pub use crate::bindings::imports::mortise::plugin::types::Finish;

/// A guardrail. Make it a component with [`export!`](crate::export).
pub trait Guardrail: Sized + 'static {
    /// The operator's table of the configuration; [`NoSettings`](crate::NoSettings) if there is none.
    type Settings: DeserializeOwned;

    /// Prepare an instance; called once on each instance, before all else.
    ///
    /// # Errors
    /// Settings that make no sense: the server then does not take the plugin.
    fn prepare(settings: Self::Settings) -> Result<Self, Fault>;

    /// Parts of a request that the guardrail looks at; it is told of no others. Text for the user unless overridden.
    fn traits(&self) -> Traits {
        Traits::content()
    }

    /// Look at the messages of a request, an array of OpenAI chat messages, or a string, the prompt.
    /// Called if the traits have `input`. [`Verdict::Pass`] and [`Verdict::refuse`] are verdicts on them.
    ///
    /// # Errors
    /// A fault refuses the request with a 500, unless the operator said otherwise.
    fn check_input(&self, context: &Context, messages: &Value) -> Result<Verdict, Fault> {
        let _ = (context, messages);
        Ok(Verdict::Pass)
    }

    /// Begin to look at one choice; none if nothing in it is to be looked at.
    ///
    /// # Errors
    /// A fault ends the answer with an error, unless the operator said otherwise.
    fn open(&'static self, context: Context) -> Result<Option<Box<dyn Session>>, Fault>;
}

/// One choice being looked at. The text comes as it is made; where it is cut says nothing.
pub trait Session {
    /// Take the next text of a part. A verdict stands for all that was handed over so far, of which the last
    /// `held` bytes before `text` are still held back.
    ///
    /// # Errors
    /// A fault ends the answer with an error, unless the operator said otherwise.
    fn feed(&mut self, part: &Part, text: &str, held: usize) -> Result<Verdict, Fault>;

    /// The choice has ended: the last verdict. Of the last part, `held` bytes are held back.
    ///
    /// # Errors
    /// As for [`feed`](Self::feed).
    fn close(&mut self, reason: Finish, held: usize) -> Result<Verdict, Fault> {
        let _ = (reason, held);
        Ok(Verdict::Pass)
    }
}

impl Traits {
    /// Traits of a guardrail that looks at text for the user only.
    pub const fn content() -> Self {
        Self {
            input: false,
            content: true,
            reasoning: false,
            call_arguments: false,
        }
    }
}

impl Verdict {
    /// Verdict that refuses, with a code for logs and metrics (small letters, digits, `_`) and a text for the caller.
    pub fn refuse(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Refuse(Refusal {
            code: code.into(),
            message: message.into(),
        })
    }
}

/// All that messages say: their texts, those of parts included, a line each.
pub fn text_of(messages: &Value) -> String {
    let mut text = String::new();
    let mut add = |said: &Value| {
        if let Some(said) = said.as_str() {
            text.push_str(said);
            text.push('\n');
        }
    };
    add(messages);
    for message in messages.as_array().into_iter().flatten() {
        add(&message["content"]);
        for part in message["content"].as_array().into_iter().flatten() {
            add(&part["text"]);
        }
    }
    text
}

/// Exports of [`export!`](crate::export) for a guardrail.
#[doc(hidden)]
pub struct Component<G>(PhantomData<G>);

/// A session as the host holds it.
#[doc(hidden)]
pub struct SessionCell(RefCell<Box<dyn Session>>);

impl<G: Guardrail> lifecycle::Guest for Component<G> {
    fn prepare() -> Result<(), Fault> {
        prepared::keep(G::prepare(prepared::settings()?)?)
    }
}

impl<G: Guardrail> wit::guardrail::Guest for Component<G> {
    type Session = SessionCell;

    fn describe() -> Traits {
        let nothing = Traits {
            content: false,
            ..Traits::content()
        };
        prepared::plugin::<G>().map_or(nothing, G::traits)
    }

    fn check_input(context: Context, messages: String) -> Result<Verdict, Fault> {
        let messages = serde_json::from_str(&messages)
            .map_err(|error| Fault::Internal(format!("the messages: {error}")))?;
        prepared::plugin::<G>()?.check_input(&context, &messages)
    }

    fn open(context: Context) -> Result<Option<wit::guardrail::Session>, Fault> {
        let session = prepared::plugin::<G>()?.open(context)?;
        let cell = |session| SessionCell(RefCell::new(session));
        Ok(session.map(|session| wit::guardrail::Session::new(cell(session))))
    }
}

impl wit::guardrail::GuestSession for SessionCell {
    fn feed(&self, part: Part, text: String, held: u32) -> Result<Verdict, Fault> {
        self.0.borrow_mut().feed(&part, &text, held as usize)
    }

    fn close(&self, reason: Finish, held: u32) -> Result<Verdict, Fault> {
        self.0.borrow_mut().close(reason, held as usize)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_of_messages_are_found_wherever_they_stand() {
        let messages = json!([
            {"role": "system", "content": "one"},
            {"role": "user", "content": [{"type": "text", "text": "two"}, {"type": "image_url"}]},
            {"role": "assistant", "content": null},
        ]);
        assert_eq!(text_of(&messages), "one\ntwo\n");
        assert_eq!(text_of(&json!("three")), "three\n");
    }
}
