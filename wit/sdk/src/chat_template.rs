//! Chat templates: a conversation becomes the prompt of a model.

use std::marker::PhantomData;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::bindings::chat_template::exports::mortise::plugin as wit;
use crate::bindings::imports::mortise::plugin::model;
use crate::bindings::lifecycle::exports::mortise::plugin::lifecycle;
use crate::{Fault, Model, prepared};

pub use crate::bindings::chat_template::exports::mortise::plugin::chat_template::{
    Input, Output, Segment,
};

/// A chat template. Make it a component with [`export!`](crate::export).
pub trait ChatTemplate: Sized + 'static {
    /// The operator's table of the configuration; [`NoSettings`](crate::NoSettings) if there is none.
    type Settings: DeserializeOwned;

    /// Called once on each instance, first.
    ///
    /// # Errors
    /// Settings that make no sense, or a model that this template does not suit: the server then does
    /// not take the plugin.
    fn prepare(settings: Self::Settings, model: Model) -> Result<Self, Fault>;

    /// Render one conversation. Equal input must give equal output: prompts are cached.
    ///
    /// # Errors
    /// [`Fault::Invalid`] is the caller's and becomes a 400 with its text.
    fn render(&self, input: Input) -> Result<Output, Fault>;
}

impl Input {
    /// The conversation: an array of OpenAI chat messages.
    ///
    /// # Errors
    /// [`Fault::Invalid`] when it is no array.
    pub fn conversation(&self) -> Result<Vec<Value>, Fault> {
        serde_json::from_str(&self.messages)
            .map_err(|error| Fault::Invalid(format!("messages: {error}")))
    }
}

/// A prompt being written. What came from a caller goes in with [`plain`](Self::plain), where it can
/// never become a control token.
#[derive(Debug, Default)]
pub struct Prompt {
    segments: Vec<Segment>,
}

impl Prompt {
    /// An empty prompt.
    pub fn new() -> Self {
        Self::default()
    }

    /// Append a control token, such as `<|im_start|>`, or text that holds some.
    pub fn special(&mut self, text: impl Into<String>) -> &mut Self {
        self.segments.push(Segment::Special(text.into()));
        self
    }

    /// Append text in which nothing is a control token, whatever it contains.
    pub fn plain(&mut self, text: impl Into<String>) -> &mut Self {
        self.segments.push(Segment::Plain(text.into()));
        self
    }

    /// The output of a template that adds no stop strings and opens no reasoning.
    pub fn into_output(self) -> Output {
        Output {
            segments: self.segments,
            stop: Vec::new(),
            opens_reasoning: false,
        }
    }
}

/// Exports of [`export!`](crate::export) for a chat template.
#[doc(hidden)]
pub struct Component<T>(PhantomData<T>);

impl<T: ChatTemplate> lifecycle::Guest for Component<T> {
    fn prepare() -> Result<(), Fault> {
        prepared::keep(T::prepare(prepared::settings()?, model::describe())?)
    }
}

impl<T: ChatTemplate> wit::chat_template::Guest for Component<T> {
    fn render(input: Input) -> Result<Output, Fault> {
        prepared::plugin::<T>()?.render(input)
    }
}
