//! Tools: what the server runs itself while a model answers.

use std::marker::PhantomData;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::bindings::lifecycle::exports::mortise::plugin::lifecycle;
use crate::bindings::tool::exports::mortise::plugin as wit;
use crate::{Fault, prepared};

pub use crate::bindings::tool::exports::mortise::plugin::tool::{Context, Declaration, Failure};

/// A plugin that offers tools. Make it a component with [`export!`](crate::export).
pub trait Tool: Sized + 'static {
    /// The operator's table of the configuration; [`NoSettings`](crate::NoSettings) if there is none.
    type Settings: DeserializeOwned;

    /// Called once on each instance, first.
    ///
    /// # Errors
    /// Settings that make no sense: the server then does not take the plugin.
    fn prepare(settings: Self::Settings) -> Result<Self, Fault>;

    /// The tools that there are under these settings, 1 to 64.
    fn describe(&self) -> Vec<Declaration>;

    /// Run one of them. The host has checked `arguments`, an object, against the declared schema. The
    /// result is text for the model.
    ///
    /// # Errors
    /// [`Failure::Refused`] is told to the model, which may try again; [`Failure::Internal`] is a defect.
    fn call(&self, name: &str, arguments: Value, context: Context) -> Result<String, Failure>;
}

impl Declaration {
    /// A tool with this name, description and JSON Schema of its arguments, an object's.
    pub fn new(name: &str, description: &str, parameters: &Value) -> Self {
        Self {
            name: name.to_owned(),
            description: description.to_owned(),
            parameters: parameters.to_string(),
        }
    }
}

/// Exports of [`export!`](crate::export) for a tool.
#[doc(hidden)]
pub struct Component<T>(PhantomData<T>);

impl<T: Tool> lifecycle::Guest for Component<T> {
    fn prepare() -> Result<(), Fault> {
        prepared::keep(T::prepare(prepared::settings()?)?)
    }
}

impl<T: Tool> wit::tool::Guest for Component<T> {
    fn describe() -> Vec<Declaration> {
        prepared::plugin::<T>().map(T::describe).unwrap_or_default()
    }

    fn call(name: String, arguments: String, context: Context) -> Result<String, Failure> {
        let defect = |error: &dyn std::fmt::Display| Failure::Internal(error.to_string());
        let tool = prepared::plugin::<T>().map_err(|error| defect(&error))?;
        let arguments = serde_json::from_str(&arguments).map_err(|error| defect(&error))?;
        tool.call(&name, arguments, context)
    }
}
