//! Rules for the calls of a format, made from the marks by which it is read.

use mortise_plugin_sdk::Fault;
use mortise_plugin_sdk::formats::{Python, Tags, Typing, Writing, Written};
use mortise_plugin_sdk::tools::{Tool, Tools};

use crate::marks::{mark, quote, text_until};
use crate::schema::{Argument, arguments, choices, json_rule, object};
use crate::style::Style;

/// Calls in one answer.
const MAX_CALLS: usize = 16;

/// Rules of which the first, `calls`, is one call or several of the allowed tools.
///
/// # Errors
/// [`Fault::Invalid`] if no grammar holds a model to the format, or to these tools in it.
pub(crate) fn rules(style: &Style, tools: &Tools) -> Result<Vec<String>, Fault> {
    let spec = style.format.spec();
    let mut rules = Rules {
        style,
        lines: Vec::new(),
    };
    match &spec.writing {
        Writing::Json(written) => rules.json(written, tools)?,
        Writing::Tags(tags) => rules.tags(tags, tools)?,
        Writing::Python(python) => rules.python(python, tools)?,
        Writing::Literals(literals) => rules.literals(literals, tools)?,
        Writing::Nested(nested) => rules.nested(nested, tools)?,
        Writing::Free => {
            return Err(Fault::Invalid(format!(
                "calls cannot be forced with this model, nor combined with `response_format`: it writes them in the \
                 format `{}`, for which there is no grammar; set `tool_choice` to `auto` or `none`, and leave \
                 `response_format` out where there are tools",
                spec.name
            )));
        }
    }
    let any: Vec<String> = (0..tools.iter().len())
        .map(|index| format!("call_{index}"))
        .collect();
    rules.lines.push(format!("call: {}", any.join(" | ")));
    Ok(rules.lines)
}

pub(crate) struct Rules<'a> {
    pub(crate) style: &'a Style,
    pub(crate) lines: Vec<String>,
}

impl Rules<'_> {
    pub(crate) fn mark(&self, text: &str) -> String {
        mark(self.style, text)
    }

    /// One `call`, or several where there may be.
    pub(crate) fn several(&self, call: &str, between: Option<&str>, parallel: bool) -> String {
        match between {
            Some(between) if parallel => format!(
                "{call} ({} {call}){{0,{}}}",
                self.mark(between),
                MAX_CALLS - 1
            ),
            _ => call.to_owned(),
        }
    }

    fn json(&mut self, written: &Written, tools: &Tools) -> Result<(), Fault> {
        let calls = self.several("call", written.between, tools.parallel());
        let (open, close) = written.section;
        let line = format!("calls: {} {calls} {}", self.mark(open), self.mark(close));
        self.lines.push(line);
        for (index, tool) in tools.iter().enumerate() {
            let head = self.head(written.head, tool)?;
            self.lines.push(format!(
                "call_{index}: {head} {} {}",
                json_rule(object(tool)),
                self.mark(written.tail)
            ));
        }
        Ok(())
    }

    /// Text before arguments, with the name of the tool and the number of the call.
    fn head(&self, head: &str, tool: &Tool) -> Result<String, Fault> {
        let mut parts = Vec::new();
        for part in head.split_inclusive('}') {
            if let Some(before) = part.strip_suffix("{}") {
                parts.push(self.mark(before));
                parts.push(quote(&self.name(tool, before.ends_with('"'))?));
            } else if let Some(before) = part.strip_suffix("{#}") {
                parts.push(self.mark(before));
                parts.push("/[0-9]{1,2}/".to_owned());
            } else {
                parts.push(self.mark(part));
            }
        }
        Ok(parts.join(" "))
    }

    /// The name of a tool between the quotes of JSON, or bare.
    pub(crate) fn name(&self, tool: &Tool, quoted: bool) -> Result<String, Fault> {
        if quoted {
            let literal = quote(&tool.name);
            let inner = literal
                .strip_prefix('"')
                .and_then(|rest| rest.strip_suffix('"'));
            return Ok(inner.unwrap_or_default().to_owned());
        }
        let fits = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        match tool.name.chars().all(fits) && !tool.name.starts_with(char::is_numeric) {
            true => Ok(tool.name.clone()),
            false => Err(self.refused("name", &tool.name)),
        }
    }

    fn refused(&self, what: &str, name: &str) -> Fault {
        Fault::Invalid(format!(
            "the {what} `{name}` of a tool cannot be forced in the format `{}`, in which this model writes calls: use \
             letters, digits, `_`, `-` and `.`, and no digit first",
            self.style.format.name()
        ))
    }

    pub(crate) fn key(&self, key: &str) -> Result<String, Fault> {
        let fits = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        match key.chars().all(fits) && !key.is_empty() && !key.starts_with(char::is_numeric) {
            true => Ok(quote(key)),
            false => Err(self.refused("parameter", key)),
        }
    }

    fn python(&mut self, python: &Python, tools: &Tools) -> Result<(), Fault> {
        let calls = self.several("call", Some(python.between), tools.parallel());
        let (open, close) = python.section;
        let line = format!("calls: {} {calls} {}", self.mark(open), self.mark(close));
        self.lines.push(line);
        for (index, tool) in tools.iter().enumerate() {
            let name = self.name(tool, false)?;
            let all = arguments(self.style.format.name(), tool)?;
            self.lines.push(format!(
                "call_{index}: {} first_{index}_0 \")\"",
                quote(&format!("{name}("))
            ));
            for (at, argument) in all.iter().enumerate() {
                let key = self.key(argument.key)?;
                let value = json_rule(argument.schema.clone());
                self.lines
                    .push(format!("value_{index}_{at}: {key} \"=\" {value}"));
            }
            self.separated(index, &all);
        }
        Ok(())
    }

    /// Arguments from the first on, and from a later one: those that are not required may be left out, and
    /// commas stand between those that are there.
    fn separated(&mut self, tool: usize, all: &[Argument]) {
        for (at, argument) in all.iter().enumerate() {
            let next = at + 1;
            let (value, rest) = (format!("value_{tool}_{at}"), format!("rest_{tool}_{next}"));
            let (first, more) = match argument.required {
                true => (String::new(), format!("\", \" {value} {rest}")),
                false => (
                    format!(" | first_{tool}_{next}"),
                    format!("(\", \" {value})? {rest}"),
                ),
            };
            self.lines
                .push(format!("first_{tool}_{at}: {value} {rest}{first}"));
            self.lines.push(format!("rest_{tool}_{at}: {more}"));
        }
        let end = all.len();
        self.lines.push(format!("first_{tool}_{end}: \"\""));
        self.lines.push(format!("rest_{tool}_{end}: \"\""));
    }

    fn tags(&mut self, tags: &Tags, tools: &Tools) -> Result<(), Fault> {
        let (open, close) = tags.sections.first().copied().unwrap_or_default();
        let around = |inner: &str| match open.is_empty() {
            true => inner.to_owned(),
            false => format!(
                "{} {inner} {}",
                self.mark(&format!("{open}{}", tags.gap)),
                self.mark(&format!("{}{close}", tags.gap))
            ),
        };
        let lines = match tags.together {
            true => {
                let several = self.several("call", Some(tags.gap), tools.parallel());
                vec![format!("calls: {}", around(&several))]
            }
            false => vec![
                format!(
                    "calls: {}",
                    self.several("block", Some(tags.gap), tools.parallel())
                ),
                format!("block: {}", around("call")),
            ],
        };
        self.lines.extend(lines);
        let close = tags.value.1.trim_start_matches('\n');
        self.lines.push(text_until(self.style, "text", close));
        for (index, tool) in tools.iter().enumerate() {
            self.tagged_call(tags, index, tool)?;
        }
        Ok(())
    }

    fn tagged_call(&mut self, tags: &Tags, index: usize, tool: &Tool) -> Result<(), Fault> {
        let all = arguments(self.style.format.name(), tool)?;
        let mut parts = vec![
            self.mark(tags.call.0),
            quote(&self.name(tool, false)?),
            self.head(&format!("{}{}", tags.call.1, tags.gap), tool)?,
        ];
        for (at, argument) in all.iter().enumerate() {
            let rule = format!("value_{index}_{at}");
            let value = self.tagged_value(tags, tool, argument)?;
            self.lines.push(format!("{rule}: {value}"));
            parts.push(match argument.required {
                true => rule,
                false => format!("{rule}?"),
            });
        }
        parts.push(self.mark(&format!("{}{}", tags.call.2, tags.behind)));
        self.lines
            .push(format!("call_{index}: {}", parts.join(" ")));
        Ok(())
    }

    /// A key and its value. Where the schema allows a text, the value is one: the reader takes it for something
    /// else where the schema allows that too.
    fn tagged_value(&self, tags: &Tags, tool: &Tool, argument: &Argument) -> Result<String, Fault> {
        let types = tool.types(argument.key);
        let is_text = types.is_empty() || types.contains(&"string");
        let attribute = match (tags.typing, is_text) {
            (Typing::Schema, _) => String::new(),
            (Typing::Attribute(text, _), true) => text.to_owned(),
            (Typing::Attribute(_, json), false) => json.replace(
                "\"object\"",
                match types.first() {
                    Some(&"integer" | &"number") => "\"number\"",
                    Some(&"array") => "\"array\"",
                    Some(&"boolean") => "\"boolean\"",
                    Some(&"null") => "\"null\"",
                    _ => "\"object\"",
                },
            ),
        };
        let (open, close) = tags.value;
        let gap = match open.trim_end_matches('\n').is_empty() || tags.typing != Typing::Schema {
            true => "",
            false => tags.gap,
        };
        let head = [
            self.mark(tags.key.0),
            self.key(argument.key)?,
            self.mark(&format!("{}{gap}{attribute}{open}", tags.key.1)),
        ];
        let value = match choices(&argument.schema) {
            _ if !is_text => format!(
                "{} {}",
                json_rule(argument.schema.clone()),
                self.mark(close)
            ),
            Some(choices) if !choices.is_empty() => {
                let each: Vec<String> = choices.into_iter().map(quote).collect();
                format!("({}) {}", each.join(" | "), self.mark(close))
            }
            _ => "text".to_owned(),
        };
        Ok(format!(
            "{} {value} {}",
            head.join(" "),
            self.mark(tags.gap)
        ))
    }
}
