//! A Jinja environment that behaves as the one of `transformers.utils.chat_template_utils`.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};

use crate::strftime::Day;
use crate::{methods, python_json};

/// Macro calls within each other. The stack of a guest is one mebibyte.
const MAX_RECURSION: usize = 100;
/// Prefixes the detail of an error that a template raised on purpose.
pub(crate) const RAISED: &str = "raised: ";
/// The only template of an environment.
pub(crate) const NAME: &str = "chat";
/// The variable that carries the date, hidden from templates by its name.
pub(crate) const TODAY: &str = "__today";

/// Compile a template.
pub(crate) fn compile(source: &str) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(
        SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()?,
    );
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_recursion_limit(MAX_RECURSION);
    environment.set_unknown_method_callback(methods::call);
    environment.add_filter("tojson", python_json::tojson);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.add_test("sequence", is_sequence);
    environment.add_test("iterable", is_iterable);
    environment.add_template_owned(NAME, without_generation_tags(source))?;
    Ok(environment)
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    Err(Error::new(
        ErrorKind::InvalidOperation,
        format!("{RAISED}{message}"),
    ))
}

fn strftime_now(state: &minijinja::State, format: &str) -> Result<String, Error> {
    let today = state.lookup(TODAY).unwrap_or_default();
    let day = today.as_str().and_then(Day::parse).ok_or_else(|| {
        Error::new(
            ErrorKind::InvalidOperation,
            format!("`today` is `{today}`; it must be YYYY-MM-DD"),
        )
    })?;
    Ok(day.format(format))
}

/// In Python strings and maps have a length and items, and so has what is undefined.
fn is_sequence(value: &Value) -> bool {
    value.is_undefined()
        || matches!(
            value.kind(),
            ValueKind::Seq | ValueKind::String | ValueKind::Map
        )
}

fn is_iterable(value: &Value) -> bool {
    is_sequence(value) || value.try_iter().is_ok()
}

/// `{% generation %}` marks what an assistant said, for training. It opens a scope and no more,
/// as `{% with %}` does.
fn without_generation_tags(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        text.push_str(before);
        let inner = tag.trim_start_matches(['-', '+']);
        text.push_str(&tag[..tag.len() - inner.len()]);
        let word = inner.trim_start();
        text.push_str(&inner[..inner.len() - word.len()]);
        rest = word;
        for (name, replacement) in [("generation", "with"), ("endgeneration", "endwith")] {
            if let Some(after) = word.strip_prefix(name)
                && after
                    .trim_start()
                    .trim_start_matches(['-', '+'])
                    .starts_with("%}")
            {
                text.push_str(replacement);
                rest = after;
            }
        }
    }
    text.push_str(rest);
    text
}
