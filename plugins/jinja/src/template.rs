//! One rendering of a compiled template, with the messages as they are.

use minijinja::{Environment, Value as Jinja};
use serde_json::{Map, Value};

use crate::environment;

/// Variables of a template besides the messages.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    fields: Map<String, Value>,
}

impl Arguments {
    /// Set a variable.
    pub(crate) fn set(&mut self, name: &str, value: Value) {
        self.fields.insert(name.to_owned(), value);
    }

    /// Set a variable that is not set.
    pub(crate) fn set_absent(&mut self, name: &str, value: Value) {
        self.fields.entry(name).or_insert(value);
    }

    /// Value of a variable.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name)
    }

    /// Unset a variable.
    pub(crate) fn remove(&mut self, name: &str) {
        self.fields.shift_remove(name);
    }
}

/// Render messages as they are.
pub(crate) fn render_raw(
    environment: &Environment<'_>,
    arguments: &Arguments,
    messages: &Value,
) -> Result<String, minijinja::Error> {
    let mut context = arguments.fields.clone();
    context.insert("messages".to_owned(), messages.clone());
    let context = Jinja::from(minijinja::value::Serde(context));
    environment.get_template(environment::NAME)?.render(context)
}
