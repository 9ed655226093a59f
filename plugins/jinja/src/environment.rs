//! A Jinja environment that behaves as the one of `transformers.utils.chat_template_utils`.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};

use crate::strftime::Day;
use crate::{marks, methods, python_json};

/// Macro calls within each other. The stack of a guest is one mebibyte.
const MAX_RECURSION: usize = 100;
/// Instructions of one rendering. Templates in use take 20 to 100 for each message, and 40 000 messages
/// fill the longest contexts; what takes more will not end soon. Counted, so that the same conversation
/// meets the same end on every machine, before the host loses patience with the plugin.
pub(crate) const MAX_STEPS: u64 = 4_000_000;
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
    environment.set_fuel(Some(MAX_STEPS));
    environment.set_unknown_method_callback(methods::call);
    environment.add_filter("tojson", python_json::tojson);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.add_filter("length", length);
    environment.add_filter("count", length);
    environment.add_test("sequence", is_sequence);
    environment.add_test("iterable", is_iterable);
    refuse_other_templates(source)?;
    environment.add_template_owned(NAME, without_generation_tags(source))?;
    Ok(environment)
}

/// There is one template, and statements that read another are no statements. Said here and not when a
/// conversation comes to the place.
fn refuse_other_templates(source: &str) -> Result<(), Error> {
    let mut rest = source;
    while let Some(at) = rest.find("{%").into_iter().chain(rest.find("{#")).min() {
        let (mark, inner) = rest[at..].split_at(2);
        let word = inner.trim_start_matches(['-', '+']).trim_start();
        let end = word.find(|c: char| !c.is_alphanumeric() && c != '_');
        let word = &word[..end.unwrap_or(word.len())];
        let skipped = match (mark, word) {
            ("{#", _) => inner.find("#}"),
            (_, "raw") => inner.find("endraw"),
            (_, "include" | "import" | "from" | "extends") => {
                let line = source[..source.len() - inner.len()].lines().count();
                return Err(Error::new(
                    ErrorKind::SyntaxError,
                    format!("unknown statement {word} in line {line}: there is no other template"),
                ));
            }
            _ => Some(0),
        };
        rest = skipped.map_or("", |skipped| &inner[skipped..]);
    }
    Ok(())
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

/// Breaks do not count.
fn length(value: &Value) -> Result<usize, Error> {
    if let Some(text) = value.as_str() {
        return Ok(marks::restore(text).chars().count());
    }
    if value.is_undefined() {
        return Ok(0);
    }
    value.len().ok_or_else(|| {
        Error::new(
            ErrorKind::InvalidOperation,
            format!("a value of type {} has no length", value.kind()),
        )
    })
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
    is_sequence(value) || value.kind() == ValueKind::Iterable
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b5_no_statement_reads_another_template() {
        for (reads, line) in [
            ("{% include '/etc/passwd' %}", 1),
            ("a\n{%- import '/etc/passwd' as p %}{{ p }}", 2),
            ("{# a #}{%+from '/etc/passwd' import p -%}", 1),
            (
                "{% raw %}{% include %}{% endraw %}\n\n{%extends 'chat'%}",
                3,
            ),
        ] {
            let error = compile(reads).expect_err(reads).to_string();
            assert!(error.contains("unknown statement"), "{error}");
            assert!(error.contains(&format!("in line {line}:")), "{error}");
        }
        for reads_none in [
            "{# {% include 'x' %} #}{% raw %}{% import %}{% endraw %}",
            "{% if imported is defined %}{{ from_user }}{% endif %}",
            "{% set include_tools = true %}",
            "{# {% include",
        ] {
            if let Err(error) = compile(reads_none) {
                assert!(!error.to_string().contains("unknown"), "{error}");
                assert!(reads_none.ends_with("include"), "{error}");
            }
        }
    }
}
